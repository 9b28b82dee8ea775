"""The process: two ports, one event loop, and an orderly end."""

import asyncio
import contextlib
import logging
import signal
import socket
import weakref
from collections.abc import Iterator

import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

from voice_gateway.apps import media_api, session_api
from voice_gateway.audio_socket import MESSAGE_BYTES
from voice_gateway.exposed import Exposed
from voice_gateway.gateway import Gateway
from voice_gateway.settings import GatewaySettings
from voice_runtime import tasks
from voice_runtime.metrics import Metrics
from voice_runtime.store import StoreSettings, connect

METRICS_EVERY_S = 1.0
REQUEST_TIMEOUT_S = 10.0
"""Longest that a connection may take to send its first request's head."""
KEEP_ALIVE_S = 75
"""Above the minute that clients keep an idle connection for: none should send a request into one that is closing."""
HEAD_BYTES = 16 * 1024
STOP_TIMEOUT_S = 5
"""What requests get that are still running when everybody has been told to leave."""
DRAIN_LOOK_S = 0.1
PER_CALLER_CONNECTIONS = 2
"""Of the session API beside each audio socket or event stream: an opening or closing request, and a health check."""

log = logging.getLogger(__name__)


class ImpatientProtocol(H11Protocol):
    """Closes connections that never ask for anything; uvicorn itself waits for ever."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait."""
        super().connection_made(transport)
        # Weak: a timer that held the connection would keep it, and all of its buffers, for seconds after its end.
        self.loop.call_later(REQUEST_TIMEOUT_S, _close_unless_asked, weakref.ref(self))


def _close_unless_asked(reference: weakref.ref[ImpatientProtocol]) -> None:
    protocol = reference()
    # A WebSocket has a protocol of its own by then.
    if protocol and protocol.cycle is None and protocol.transport.get_protocol() is protocol:
        protocol.transport.close()


class _Server(uvicorn.Server):
    """A server that leaves signals to the process, which has two of them."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def listen(settings: GatewaySettings, port: int) -> socket.socket:
    """Open a port.

    Raises:
        OSError: It is taken.
    """
    listener = socket.create_server((settings.bind_address, port), backlog=2048)
    # Inherited by every connection: the kernel ends those whose peer takes nothing for that long, although it is there.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(settings.idle_timeout_s * 1000))
    return listener


def _server(app: Starlette, settings: GatewaySettings) -> _Server:
    return _Server(
        uvicorn.Config(
            app,
            http=ImpatientProtocol,
            ws="websockets-sansio",
            ws_max_size=MESSAGE_BYTES,
            ws_per_message_deflate=False,
            h11_max_incomplete_event_size=HEAD_BYTES,
            timeout_keep_alive=KEEP_ALIVE_S,
            limit_concurrency=PER_CALLER_CONNECTIONS * settings.max_connections,
            timeout_graceful_shutdown=STOP_TIMEOUT_S,
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
        )
    )


async def serve(settings: GatewaySettings, store_settings: StoreSettings) -> None:
    """Run until a signal asks for the end and everybody has left.

    Raises:
        OSError: A port is taken, or the file of a password cannot be read.
    """
    store = connect(store_settings)
    gateway = Gateway(settings, store, _metrics(settings))
    listeners = [listen(settings, port) for port in (settings.http_port, settings.media_port)]
    servers = [_server(app, settings) for app in (session_api(gateway), media_api(gateway))]
    for each in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(each, gateway.draining.set)
    background = [
        asyncio.create_task(each) for each in (gateway.fleet.watch(), gateway.followers.run(), _publish(gateway))
    ]
    serving = [
        asyncio.create_task(server.serve(sockets=[listener]))
        for server, listener in zip(servers, listeners, strict=True)
    ]
    log.info("serving", extra={"fields": {"http_port": settings.http_port, "media_port": settings.media_port}})
    await _drain(gateway)
    for server in servers:
        server.should_exit = True
    await asyncio.gather(*serving)
    await tasks.end((*background, *tasks.others()))
    await store.aclose()
    await asyncio.to_thread(gateway.traces.close)
    gateway.metrics.flush()
    log.info("stopped")


def _metrics(settings: GatewaySettings) -> Metrics:
    if settings.prometheus_port is None:
        return Metrics(settings.deployment, settings.fleet)
    return Exposed(settings.deployment, settings.fleet, settings.bind_address, settings.prometheus_port)


async def _drain(gateway: Gateway) -> None:
    """Wait for the signal, then until callers have finished or their time is up; whoever is left is told to move."""
    await gateway.draining.wait()
    log.info("draining", extra={"fields": {"connections": gateway.connections}})
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(gateway.settings.drain_timeout_s):
            await _all_gone(gateway)
    gateway.leaving.set()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(STOP_TIMEOUT_S):
            await _all_gone(gateway)


async def _all_gone(gateway: Gateway) -> None:
    while gateway.connections:
        await asyncio.sleep(DRAIN_LOOK_S)


async def _publish(gateway: Gateway) -> None:
    while True:
        await asyncio.sleep(METRICS_EVERY_S)
        gateway.metrics.observe("OpenSockets", gateway.connections)
        gateway.metrics.flush()
