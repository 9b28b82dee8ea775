"""A gateway's listeners, its shutdown and its metrics, in this process."""

import asyncio
import contextlib
import signal
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, Mock, call

import httpx2
import pytest
import websockets
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

from images.conftest import BUSY_TIMEOUT_S, StoreServer
from images.gateway.tests.clocks import VirtualTime
from images.gateway.tests.running import NO_TLS
from images.gateway.tests.test_cells import SETTINGS
from voice_blueprint.contract.network import Tier
from voice_blueprint.contract.session_api import LIVENESS_PATH
from voice_gateway import server
from voice_gateway.gateway import Gateway
from voice_gateway.prometheus_metrics import PrometheusMetrics
from voice_gateway.settings import GatewaySettings
from voice_runtime.metrics import Metrics
from voice_sandbox.loopback import find_free_port


def settings(**changes: Any) -> GatewaySettings:
    return GatewaySettings(**SETTINGS | {"bind_address": "127.0.0.1"} | changes)


async def describe(request: Request) -> Response:
    assert request.client
    return JSONResponse({"client": request.client.host, "scheme": request.url.scheme})


async def greet(socket: WebSocket) -> None:
    await socket.accept()
    await socket.send_text("welcome")
    await socket.close()


@contextlib.asynccontextmanager
async def serving(found: server._Server, listener: socket.socket) -> AsyncIterator[str]:
    task = asyncio.create_task(found.serve(sockets=[listener]))
    yield f"127.0.0.1:{listener.getsockname()[1]}"
    found.should_exit = True
    await task


@pytest.mark.parametrize(("idle_timeout_s", "timeout_ms"), [(1, 1000), (30.5, 30_500)])
def test_the_kernel_closes_connections_whose_peer_acknowledges_nothing(idle_timeout_s: float, timeout_ms: int) -> None:
    with server.open_listener(settings(idle_timeout_s=idle_timeout_s), 0) as listener:
        assert listener.getsockname()[0] == "127.0.0.1"
        assert listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == timeout_ms


async def test_responses_do_not_name_the_server_and_trust_no_proxy_headers() -> None:
    routes = [Route("/", describe), WebSocketRoute("/socket", greet)]
    found = server._create_server(Starlette(routes=routes), settings())
    forwarded = {"X-Forwarded-For": "192.0.2.1", "X-Forwarded-Proto": "https"}
    async with serving(found, server.open_listener(settings(), 0)) as address, asyncio.timeout(BUSY_TIMEOUT_S):
        async with httpx2.AsyncClient(verify=NO_TLS) as client:
            answer = await client.get(f"http://{address}/", headers=forwarded)
        async with websockets.connect(f"ws://{address}/socket", proxy=None) as connection:
            assert await connection.recv() == "welcome"
            assert connection.response
            extensions = connection.response.headers.get("Sec-WebSocket-Extensions")
    assert "Server" not in answer.headers
    assert answer.json() == {"client": "127.0.0.1", "scheme": "http"}
    assert extensions is None, "compression would use memory for each socket"


async def test_requests_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Their paths contain the ids of sessions."""
    caplog.set_level("INFO")
    found = server._create_server(Starlette(routes=[Route("/", describe)]), settings())
    async with (
        serving(found, server.open_listener(settings(), 0)) as address,
        httpx2.AsyncClient(verify=NO_TLS) as client,
    ):
        assert (await client.get(f"http://{address}/")).status_code == 200
    assert not [record for record in caplog.records if record.name == "uvicorn.access"]


def test_a_port_has_two_connections_per_caller_and_1024_without_a_request() -> None:
    """The limit of connections without a request in docs/security.md."""
    for callers in (1, 1000):
        found = server._create_server(Starlette(), settings(max_connections=callers))
        assert found.config.limit_concurrency == 2 * callers + 1024


class Stopping:
    """The parts of a gateway that a shutdown needs."""

    def __init__(self, connections: int, drain_timeout_s: float) -> None:
        self.connections = connections
        self.settings = SimpleNamespace(drain_timeout_s=drain_timeout_s)
        self.draining, self.shutting_down = asyncio.Event(), asyncio.Event()
        self.metrics = Mock()

    @property
    def gateway(self) -> Any:
        return self


async def test_a_gateway_without_callers_stops_at_once() -> None:
    stopping, loop = Stopping(0, 600), asyncio.get_running_loop()
    draining = asyncio.create_task(server._drain(stopping.gateway))
    await asyncio.sleep(0.01)
    assert not draining.done(), "no stop is requested"
    before = loop.time()
    stopping.draining.set()
    async with asyncio.timeout(BUSY_TIMEOUT_S):
        stop_by = await draining
    assert stopping.shutting_down.is_set()
    assert before + 605 <= stop_by <= loop.time() + 605, "the grace period, and five seconds for remaining requests"


async def test_remaining_callers_are_asked_to_leave_after_the_grace_period() -> None:
    stopping = Stopping(1, 0.05)
    stopping.draining.set()
    draining = asyncio.create_task(server._drain(stopping.gateway))
    async with asyncio.timeout(BUSY_TIMEOUT_S):
        await stopping.shutting_down.wait()
        assert not draining.done(), "they have some seconds to leave"
        stopping.connections = 0
        await draining


async def test_callers_that_stay_do_not_prevent_the_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "STOP_TIMEOUT_S", 0.05)
    stopping = Stopping(1, 0.05)
    stopping.draining.set()
    async with asyncio.timeout(BUSY_TIMEOUT_S):
        await server._drain(stopping.gateway)
    assert stopping.connections == 1


async def test_a_stopping_gateway_counts_its_callers_every_tenth_of_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, stopping = VirtualTime(monkeypatch, "voice_gateway.server"), Stopping(1, 600)
    waiting = asyncio.create_task(server._wait_until_closed(stopping.gateway))
    await clock.run_for(0.15)
    stopping.connections = 0
    await clock.run_for(0.06)
    assert waiting.done()


async def test_metrics_are_published_every_second(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, gateway = VirtualTime(monkeypatch, "voice_gateway.server"), Stopping(3, 0)
    publishing = asyncio.create_task(server._publish_metrics(gateway.gateway))
    await clock.run_for(2.5)
    publishing.cancel()
    assert gateway.metrics.mock_calls == [call.observe("OpenSockets", 3), call.flush()] * 2


def test_metrics_are_logged_unless_they_have_a_port() -> None:
    assert type(server._create_metrics(settings())) is Metrics
    port = find_free_port()
    metrics = server._create_metrics(settings(prometheus_port=port))
    assert isinstance(metrics, PrometheusMetrics)

    def values(name: str) -> list[str]:
        lines = httpx2.get(f"http://127.0.0.1:{port}/metrics", verify=NO_TLS).text.splitlines()
        return [line.split()[-1] for line in lines if line.startswith(f'{name}{{Deployment="test",Fleet="gateway"')]

    metrics.count("SessionsCreated")
    metrics.count("SessionsCreated")
    metrics.observe("OpenSockets", 5)
    metrics.observe("OpenSockets", 3)
    metrics.observe("TimeToFinal", 250)
    metrics.flush()
    assert values("voice_sessions_created_total") == ["2.0"]
    assert values("voice_open_sockets") == ["3.0"]
    assert (values("voice_time_to_final_count"), values("voice_time_to_final_sum")) == (["1.0"], ["250.0"])
    metrics.flush()
    assert values("voice_open_sockets") == ["3.0"], "the last value remains"


def test_a_port_in_use_is_an_error() -> None:
    with server.open_listener(settings(), 0) as listener, pytest.raises(OSError, match="in use"):
        server.open_listener(settings(), listener.getsockname()[1])


@pytest.mark.parametrize(
    ("reconnect_grace_s", "drain_timeout_s", "waits_for_s"),
    [(1, 600, (4, 4)), (20, 600, (23, 23)), (20, 1, (0, 6))],
)
async def test_a_stopping_gateway_waits_for_the_usage_of_its_last_sessions(
    store_server: StoreServer,
    monkeypatch: pytest.MonkeyPatch,
    reconnect_grace_s: int,
    drain_timeout_s: int,
    waits_for_s: tuple[int, int],
) -> None:
    """Three seconds longer than a session waits for its caller, but no longer than a stop may last."""
    gateways: list[Gateway] = []
    protection = Mock(run=AsyncMock())
    waits = AsyncMock()

    def create(gateway: Gateway) -> Starlette:
        monkeypatch.setattr(gateway.usage, "wait_for_reports", waits)
        gateways.append(gateway)
        return Starlette(routes=[Route("/", describe)])

    monkeypatch.setattr(server, "create_session_api", create)
    monkeypatch.setattr(server, "TaskProtection", Mock(return_value=protection))
    monkeypatch.setattr("voice_gateway.server.tasks.list_other_tasks", lambda: ())
    ports = [find_free_port() for _ in range(2)]
    found = settings(
        http_port=ports[0], media_port=ports[1], media_tls=False,
        reconnect_grace_s=reconnect_grace_s, drain_timeout_s=drain_timeout_s,
    )  # fmt: skip
    serving_both = asyncio.create_task(server.serve(found, store_server.settings))
    async with asyncio.timeout(BUSY_TIMEOUT_S), httpx2.AsyncClient(verify=NO_TLS) as client:
        for port, path in zip(ports, ("/", LIVENESS_PATH), strict=True):
            while True:
                with contextlib.suppress(httpx2.TransportError):
                    if (await client.get(f"http://127.0.0.1:{port}{path}")).status_code == 200:
                        break
                await asyncio.sleep(0.01)
        [gateway] = gateways
        _, tier, is_busy = server.TaskProtection.call_args.args  # type: ignore[attr-defined]
        assert (tier, is_busy()) == (Tier.GATEWAY, False)
        with gateway.count_connection():
            assert is_busy(), "a gateway with a caller is not replaced"
        gateway.draining.set()
        await serving_both
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().remove_signal_handler(number)
    [wait] = waits.call_args_list
    assert waits_for_s[0] <= wait.args[0] <= waits_for_s[1]


@pytest.mark.parametrize("media_tls", [True, False])
@pytest.mark.parametrize("has_archive", [True, False])
async def test_a_gateway_runs_the_tasks_that_its_settings_need(
    store_server: StoreServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, media_tls: bool, has_archive: bool
) -> None:
    """Public names are only requested if there are any, and transcripts are only archived if there is an archive."""
    tasks = {name: AsyncMock() for name in ("PublicHostProber", "SyntheticCaller", "Archiver", "UsageReporter")}
    for name, task in tasks.items():
        monkeypatch.setattr(server, name, Mock(return_value=Mock(run=task)))
    monkeypatch.setattr("voice_gateway.server.tasks.list_other_tasks", lambda: ())
    drained = AsyncMock(return_value=0.0)
    monkeypatch.setattr(server, "_drain", drained)
    found = settings(
        http_port=find_free_port(), media_port=find_free_port(), media_tls=media_tls,
        archive_url=tmp_path.as_uri() if has_archive else "",
    )  # fmt: skip
    async with asyncio.timeout(BUSY_TIMEOUT_S):
        await server.serve(found, store_server.settings)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().remove_signal_handler(number)
    drained.assert_awaited_once()
    started = {name for name, task in tasks.items() if task.await_count}
    assert started == ({"PublicHostProber", "SyntheticCaller"} if media_tls else set()) | (
        {"Archiver", "UsageReporter"} if has_archive else set()
    )
