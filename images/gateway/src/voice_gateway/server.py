"""Runs the gateway's process with two ports, one event loop, and a graceful shutdown."""

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Iterator

import uvicorn
from starlette.applications import Starlette

from voice_blueprint.contract.network import Tier
from voice_blueprint.contract.session_api import REALTIME_PATH
from voice_gateway.apps import create_media_api, create_session_api
from voice_gateway.archiver import Archiver
from voice_gateway.audio_socket import MAX_MESSAGE_BYTES
from voice_gateway.gateway import Gateway
from voice_gateway.prometheus_metrics import PrometheusMetrics
from voice_gateway.public_hosts import PublicHostProber
from voice_gateway.realtime import MAX_EVENT_BYTES
from voice_gateway.settings import GatewaySettings
from voice_gateway.synthetic_call import SyntheticCaller
from voice_gateway.usage_report import UsageReporter
from voice_runtime import tasks
from voice_runtime.http import (
    KEEP_ALIVE_TIMEOUT_S,
    MAX_IDLE_CONNECTIONS,
    MAX_REQUEST_HEAD_BYTES,
    RequestHeadTimeoutProtocol,
)
from voice_runtime.metrics import Metrics
from voice_runtime.protection import TaskProtection
from voice_runtime.store import StoreSettings, connect
from voice_runtime.websocket import PacedWebSocket

METRICS_INTERVAL_S = 1.0
STOP_TIMEOUT_S = 5
"""Maximum time for remaining requests after all clients have been asked to leave."""
USAGE_REPORT_TIMEOUT_S = 3
"""Maximum time after the grace period for which a stopping process waits for the usage of its last sessions."""
DRAIN_POLL_INTERVAL_S = 0.1
MAX_CONNECTIONS_PER_CALLER = 2
"""Number of session API connections in addition to each audio socket or event stream: one for a request that opens or
closes a session, and one for a health check."""

log = logging.getLogger(__name__)


class _Server(uvicorn.Server):
    """A server that leaves signal handling to the process, since the process runs two servers."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def open_listener(settings: GatewaySettings, port: int) -> socket.socket:
    """Open a listening socket on a port.

    Raises:
        OSError: The port is in use.
    """
    listener = socket.create_server((settings.bind_address, port), backlog=2048)
    # Every connection inherits this option. The kernel closes a connection whose peer acknowledges no data for that
    # long.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(settings.idle_timeout_s * 1000))
    return listener


def _create_server(app: Starlette, settings: GatewaySettings) -> _Server:
    return _Server(
        uvicorn.Config(
            app,
            http=RequestHeadTimeoutProtocol.with_connection_limit(),
            ws=PacedWebSocket.with_limits({REALTIME_PATH: MAX_EVENT_BYTES}),
            ws_max_size=MAX_MESSAGE_BYTES,
            ws_per_message_deflate=False,
            h11_max_incomplete_event_size=MAX_REQUEST_HEAD_BYTES,
            timeout_keep_alive=KEEP_ALIVE_TIMEOUT_S,
            limit_concurrency=MAX_CONNECTIONS_PER_CALLER * settings.max_connections + MAX_IDLE_CONNECTIONS,
            timeout_graceful_shutdown=STOP_TIMEOUT_S,
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
        )
    )


async def serve(settings: GatewaySettings, store_settings: StoreSettings) -> None:
    """Run until a signal requests the shutdown and all callers have left.

    Raises:
        OSError: A port is in use, or a password file cannot be read.
    """
    store = connect(store_settings)
    gateway = Gateway(settings, store, _create_metrics(settings))
    listeners = [open_listener(settings, port) for port in (settings.http_port, settings.media_port)]
    servers = [_create_server(app, settings) for app in (create_session_api(gateway), create_media_api(gateway))]
    for each in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(each, gateway.draining.set)
    protection = TaskProtection(store, Tier.GATEWAY, lambda: gateway.connections > 0)
    coroutines = [
        gateway.fleet.refresh_periodically(),
        gateway.followers.run(),
        _publish_metrics(gateway),
        protection.run(),
    ]
    if settings.media_tls:
        coroutines += [
            PublicHostProber(settings.media_host, gateway.metrics, api_host=settings.api_host).run(),
            SyntheticCaller(gateway, f"wss://{settings.media_host}").run(),
        ]
    if gateway.archive:
        coroutines += [Archiver(store, gateway.archive).run(), UsageReporter(store, gateway.archive).run()]
    background = [asyncio.create_task(each) for each in coroutines]
    server_tasks = [
        asyncio.create_task(server.serve(sockets=[listener]))
        for server, listener in zip(servers, listeners, strict=True)
    ]
    log.info("serving", extra={"fields": {"http_port": settings.http_port, "media_port": settings.media_port}})
    stop_by = await _drain(gateway)
    for server in servers:
        server.should_exit = True
    await asyncio.gather(*server_tasks)
    report_timeout_s = settings.reconnect_grace_s + USAGE_REPORT_TIMEOUT_S
    await gateway.usage.wait_for_reports(min(report_timeout_s, stop_by - asyncio.get_running_loop().time()))
    await tasks.cancel_tasks((*background, *tasks.list_other_tasks()))
    await store.aclose()
    await asyncio.to_thread(gateway.traces.close)
    gateway.metrics.flush()
    log.info("stopped")


def _create_metrics(settings: GatewaySettings) -> Metrics:
    if settings.prometheus_port is None:
        return Metrics(settings.deployment, settings.fleet)
    return PrometheusMetrics(settings.deployment, settings.fleet, settings.bind_address, settings.prometheus_port)


async def _drain(gateway: Gateway) -> float:
    """Wait for the stop signal, and then for callers to finish.

    After the timeout, ask the remaining callers to reconnect. Return the event loop's time by which all callers must
    have left. Until then, the process may wait for the usage of their sessions.
    """
    await gateway.draining.wait()
    stop_by = asyncio.get_running_loop().time() + gateway.settings.drain_timeout_s + STOP_TIMEOUT_S
    log.info("draining", extra={"fields": {"connections": gateway.connections}})
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(gateway.settings.drain_timeout_s):
            await _wait_until_closed(gateway)
    gateway.shutting_down.set()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(STOP_TIMEOUT_S):
            await _wait_until_closed(gateway)
    return stop_by


async def _wait_until_closed(gateway: Gateway) -> None:
    while gateway.connections:
        await asyncio.sleep(DRAIN_POLL_INTERVAL_S)


async def _publish_metrics(gateway: Gateway) -> None:
    while True:
        await asyncio.sleep(METRICS_INTERVAL_S)
        gateway.metrics.observe("OpenSockets", gateway.connections)
        gateway.metrics.flush()
