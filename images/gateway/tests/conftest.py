"""A running gateway, and hosts of the other tiers."""

import socket
from collections.abc import AsyncIterator, Callable, Iterator

import pytest
from redis.asyncio import Redis

from images.conftest import StoreServer
from images.gateway.tests.issuer import Issuer
from images.gateway.tests.running import GatewayProcess, Hosts, VadHost
from voice_blueprint.contract.network import Tier
from voice_sandbox.loopback import find_free_port

Start = Callable[..., GatewayProcess]


@pytest.fixture(scope="session")
def rtp_port() -> int:
    return find_free_port(socket.SOCK_DGRAM)


@pytest.fixture
async def hosts(store: Redis, store_server: StoreServer) -> AsyncIterator[Hosts]:
    """A host of each tier with free slots."""
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
    """Starts gateways with the test's own settings."""
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
    """A gateway that has discovered these hosts, and none of the previous test."""
    async with hosts.away():
        await (await running_gateway.ready()).answers(503)
    return await running_gateway.accepts_callers()


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    """An issuer of callers' tokens."""
    found = Issuer()
    yield found
    found.answers.set()
    found.stop()
