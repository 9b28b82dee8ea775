"""HTTP/1.1 for public programs, with limits on the duration and the number of connections without a request."""

import asyncio
import re
import time
import weakref
from typing import Any

import h11
from starlette.requests import HTTPConnection
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.h11_impl import H11Protocol

from voice_runtime.fair_admission import SourceLimitedSet
from voice_runtime.websocket import (
    MAX_SLICE_BYTES,
    MIN_PAUSE_S,
    PAUSE_FACTOR,
    PacedWebSocket,
    SlowReaderTimeoutProtocol,
)

REQUEST_HEAD_TIMEOUT_S = 10.0
"""Timeout for the head of a request, from the start of the connection or the first byte of the head."""
MAX_REQUEST_HEAD_BYTES = 16 * 1024
KEEP_ALIVE_TIMEOUT_S = 75
"""Idle timeout of a connection. Clients keep an idle connection for a minute, so that no client sends a request into a
closing connection."""
MAX_IDLE_CONNECTIONS = 1024
"""Maximum number of connections to a server without a request in progress."""
MAX_CPU_S_BEFORE_PAUSE = 0.005
"""Maximum CPU time of a connection before it is paused."""
ASSUMED_REQUEST_CPU_S = 0.001
"""Assumed CPU time of a request and its response, for the pause after each request."""

_ADDRESS_WITH_PORT_PATTERN = re.compile(r"^(\d+\.\d+\.\d+\.\d+|\[.+\]):\d+$")


def get_client_address(connection: HTTPConnection, *, forwarded: bool) -> str:
    """Return the address of a client, or an empty string if it is unknown.

    Args:
        connection: The client's request.
        forwarded: Whether a proxy in front of this program appends to X-Forwarded-For. If so, the last address in the
            header is returned, since the client can choose all earlier ones. Azure's application gateway adds a port:
            https://learn.microsoft.com/azure/application-gateway/how-application-gateway-works
    """
    forwarded_address = (
        ",".join(connection.headers.getlist("X-Forwarded-For")).rpartition(",")[2].strip() if forwarded else ""
    )
    return _ADDRESS_WITH_PORT_PATTERN.sub(r"\1", forwarded_address) or (
        connection.client.host if connection.client else ""
    )


class RequestHeadTimeoutProtocol(SlowReaderTimeoutProtocol, H11Protocol):
    """Closes connections that send no complete request head in time.

    Uvicorn itself waits indefinitely after the first byte.

    ``with_connection_limit`` returns the class for a server. Above its maximum of waiting connections, the address with
    the most waiting connections loses its oldest connection. Connections with a request in progress, and WebSockets,
    are not counted, unless the client does not read its response.

    No connection can monopolize the event loop. 256 KiB of the smallest chunks are 40,000 events, which take a second
    of CPU time. Such a connection is paused after each turn, like a ``PacedWebSocket``, and after each request.
    """

    waiting_connections: SourceLimitedSet["RequestHeadTimeoutProtocol"]
    _timer: asyncio.TimerHandle | None = None
    _pause_timer: asyncio.TimerHandle | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401  uvicorn's
        super().__init__(*args, **kwargs)
        self._unread = bytearray()
        self._is_answered = False

    @classmethod
    def with_connection_limit(cls, connections: int = MAX_IDLE_CONNECTIONS) -> type["RequestHeadTimeoutProtocol"]:
        """Return a protocol class that allows at most this number of connections without a request."""
        return type("RequestHeadTimeoutProtocol", (cls,), {"waiting_connections": SourceLimitedSet(connections)})

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start to wait for the first request."""
        super().connection_made(transport)
        self.flow = _DeferredFlowControl(transport, self)
        self._start_waiting()
        self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timers of the connection, and discard its data."""
        self._stop_waiting()
        self._end_pause()
        self._unread.clear()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Process the data, now or after the connection's pause, and check whether a request is in progress."""
        self._unread += data
        if self._pause_timer is None:
            self.continue_reading()
        else:  # uvicorn itself resumes it
            self.transport.pause_reading()

    def continue_reading(self) -> None:
        """Process unread data for a turn."""
        self._end_pause()
        if self.transport.is_closing():
            return
        started_at = time.thread_time()  # CPU time of other processes is not counted for this connection
        if self._is_answered:
            self._is_answered = False
            super().on_response_complete()
            self._update_state()
            if self.transport.get_protocol() is not self:
                self._unread.clear()
                return
        while self._unread and not self.flow.read_paused:
            piece = bytes(self._unread[:MAX_SLICE_BYTES])
            del self._unread[:MAX_SLICE_BYTES]
            super().data_received(piece)
            self._update_state()
            if self.transport.is_closing() or self.transport.get_protocol() is not self:
                self._unread.clear()  # a WebSocket's client sends nothing before the response to its request
                return
            elapsed_s = time.thread_time() - started_at
            if elapsed_s >= MAX_CPU_S_BEFORE_PAUSE:
                self._pause_reading_for(elapsed_s)
                return
        if not self.flow.read_paused:
            self.transport.resume_reading()

    def continue_reading_unless_paused(self) -> None:
        """Process unread data, unless the connection is paused."""
        if self._pause_timer is None:
            self.continue_reading()

    def _pause_reading_for(self, elapsed_s: float) -> None:
        self.transport.pause_reading()
        PacedWebSocket.paused_connections.add(self)
        rest_s = max(MIN_PAUSE_S, elapsed_s * PAUSE_FACTOR * len(PacedWebSocket.paused_connections))
        self._pause_timer = self.loop.call_later(rest_s, self.continue_reading)

    def _end_pause(self) -> None:
        PacedWebSocket.paused_connections.discard(self)
        if self._pause_timer is not None:
            self._pause_timer.cancel()
            self._pause_timer = None

    def pause_writing(self) -> None:
        """Wait for the client to read its response."""
        super().pause_writing()
        self._start_waiting()

    def resume_writing(self) -> None:
        """Check whether a request is in progress."""
        super().resume_writing()
        self._update_state()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """Pass the connection to the WebSocket protocol."""
        self._stop_waiting()
        self.stop_unread_timeout()
        super().handle_websocket_upgrade(event)

    def on_response_complete(self) -> None:
        """Start to wait for the next request, which is handled after the connection's pause."""
        self._update_state()
        if self.transport.is_closing():
            super().on_response_complete()
            return
        self._is_answered = True
        if self._pause_timer is None:
            self._pause_reading_for(ASSUMED_REQUEST_CPU_S)

    def _update_state(self) -> None:
        if self.transport.get_protocol() is not self:
            return
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_waiting()
            return
        self._start_waiting()
        # uvicorn's own timeout covers an idle connection until its first byte. Right after a response, the state is
        # still that of the completed request.
        has_begun = self.conn.their_state not in (h11.IDLE, h11.DONE) or self.conn.trailing_data[0]
        if has_begun and self._timer is None:
            self._start_timer()

    def _start_waiting(self) -> None:
        if self in self.waiting_connections:
            return
        removed = self.waiting_connections.add(self, self.client[0] if self.client else "")
        if removed is not None:
            _close_or_abort(removed.transport)

    def _start_timer(self) -> None:
        # With a strong reference, the timer would keep a closed connection and all of its buffers in memory for
        # seconds.
        self._timer = self.loop.call_later(REQUEST_HEAD_TIMEOUT_S, _close_if_alive, weakref.ref(self))

    def _stop_waiting(self) -> None:
        self.waiting_connections.discard(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class _DeferredFlowControl(FlowControl):
    """Flow control of a connection that processes received data before it receives more."""

    def __init__(self, transport: asyncio.Transport, protocol: RequestHeadTimeoutProtocol) -> None:
        super().__init__(transport)
        self._protocol = protocol

    def resume_reading(self) -> None:
        """Resume processing after the current data."""
        if self.read_paused:
            self.read_paused = False
            self._protocol.loop.call_soon(self._protocol.continue_reading_unless_paused)


def _close_if_alive(reference: weakref.ref[RequestHeadTimeoutProtocol]) -> None:
    protocol = reference()
    if protocol:
        _close_or_abort(protocol.transport)


def _close_or_abort(transport: asyncio.Transport) -> None:
    """Close a connection, even if its client does not read the data that was written to it."""
    transport.close()
    if transport.get_write_buffer_size():
        transport.abort()
