"""A gateway that serves, and hosts behind it."""

from collections.abc import AsyncIterator, Callable, Iterator

import pytest
from redis.asyncio import Redis

from blueprint.contract.network import Tier
from images.conftest import StoreServer
from images.gateway.tests.running import GatewayProcess, Hosts, VadHost, free_rtp_port

Start = Callable[..., GatewayProcess]


@pytest.fixture(scope="session")
def rtp_port() -> int:
    return free_rtp_port()


@pytest.fixture
async def hosts(store: Redis, store_server: StoreServer) -> AsyncIterator[Hosts]:
    """A host of each tier, with room."""
    found = Hosts(store)
    found.put(Tier.ASR, "asr-1")
    found.put(Tier.VAD, "vad-1")
    await found.beat()
    with found.beating(store_server.settings):
        yield found


@pytest.fixture
def vad(rtp_port: int) -> Iterator[VadHost]:
    host = VadHost(rtp_port)
    yield host
    host.stop()


@pytest.fixture
def start(store_server: StoreServer, rtp_port: int) -> Iterator[Start]:
    """Starts gateways with settings of the test's own."""
    started: list[GatewayProcess] = []

    def begin(**settings: object) -> GatewayProcess:
        started.append(GatewayProcess(store_server, rtp_port, **settings).start())
        return started[-1]

    yield begin
    for gateway in started:
        gateway.kill()


@pytest.fixture(scope="session")
def running_gateway(store_server: StoreServer, rtp_port: int) -> Iterator[GatewayProcess]:
    gateway = GatewayProcess(store_server, rtp_port, ALLOWED_ORIGINS="http://page.test,http://other.test").start()
    yield gateway
    gateway.kill()


@pytest.fixture
async def gateway(running_gateway: GatewayProcess, hosts: Hosts) -> GatewayProcess:
    """A gateway that has seen these hosts, and none of the test before."""
    async with hosts.away():
        await (await running_gateway.ready()).answers(503)
    return await running_gateway.takes_callers()
