"""HTTP/1.1 for public programs: connections without a request are limited in time and number."""

import asyncio
import re
import time
import weakref
from typing import Any

import h11
from starlette.requests import HTTPConnection
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.h11_impl import H11Protocol

from voice_runtime.fair_admission import FairSet
from voice_runtime.websocket import REST, SHORTEST_REST_S, SLICE_BYTES, PacedWebSocket, UnreadLimit

HEAD_WITHIN_S = 10.0
"""Timeout for the head of a request, from the start of the connection or the first byte of the head."""
HEAD_BYTES = 16 * 1024
KEEP_ALIVE_S = 75
"""Longer than the minute for which clients keep an idle connection, so that none sends a request into a closing one."""
WITHOUT_REQUEST = 1024
"""Maximum number of connections of a server without a request in progress."""
TURN_S = 0.005
"""CPU time after which a connection is paused."""
REQUEST_S = 0.001
"""CPU time of a request and its response, after which a connection is paused as well."""

_PORT = re.compile(r"^(\d+\.\d+\.\d+\.\d+|\[.+\]):\d+$")


def client_address(connection: HTTPConnection, *, forwarded: bool) -> str:
    """Return the address of a client, or an empty string if it is unknown.

    Args:
        connection: The client's request.
        forwarded: Whether a proxy that appends to X-Forwarded-For is in front: the address is then the last one in the
            header, since the client can choose all before it. Azure's application gateway adds a port:
            https://learn.microsoft.com/azure/application-gateway/how-application-gateway-works
    """
    added = ",".join(connection.headers.getlist("X-Forwarded-For")).rpartition(",")[2].strip() if forwarded else ""
    return _PORT.sub(r"\1", added) or (connection.client.host if connection.client else "")


class PromptProtocol(UnreadLimit, H11Protocol):
    """Closes connections that send no complete request head in time.

    Uvicorn itself waits indefinitely after the first byte.

    ``with_room`` returns the class for a server. Above its maximum of waiting connections, the address with the most of
    them loses its oldest one. Connections with a request in progress, and WebSockets, are not counted, unless the
    client does not read its response.

    No connection can monopolize the event loop: 256 KiB of the smallest chunks are 40,000 events, a second of CPU time.
    Such a connection is paused after each turn, like a ``PacedWebSocket``, and after each request.
    """

    waiting: FairSet["PromptProtocol"]
    _timer: asyncio.TimerHandle | None = None
    _resting: asyncio.TimerHandle | None = None

    def __init__(self, *args: Any, **more: Any) -> None:  # noqa: ANN401  uvicorn's
        super().__init__(*args, **more)
        self._unread = bytearray()
        self._is_answered = False

    @classmethod
    def with_room(cls, connections: int = WITHOUT_REQUEST) -> type["PromptProtocol"]:
        """Return the protocol of a server with this maximum of connections without a request."""
        return type("PromptProtocol", (cls,), {"waiting": FairSet(connections)})

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start to wait for the first request."""
        super().connection_made(transport)
        self.flow = _Flow(transport, self)
        self._wait()
        self._arm()

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the connection."""
        self._stop_waiting()
        self._stop_resting()
        self._unread.clear()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Process the data, now or after the connection's pause, and check whether a request is in progress."""
        self._unread += data
        if self._resting is None:
            self.read_on()
        else:  # uvicorn itself resumes it
            self.transport.pause_reading()

    def read_on(self) -> None:
        """Process unread data for a turn."""
        self._stop_resting()
        if self.transport.is_closing():
            return
        begun = time.thread_time()  # CPU time of other processes is not counted for this connection
        if self._is_answered:
            self._is_answered = False
            super().on_response_complete()
            self._look()
            if self.transport.get_protocol() is not self:
                self._unread.clear()
                return
        while self._unread and not self.flow.read_paused:
            piece = bytes(self._unread[:SLICE_BYTES])
            del self._unread[:SLICE_BYTES]
            super().data_received(piece)
            self._look()
            if self.transport.is_closing() or self.transport.get_protocol() is not self:
                self._unread.clear()  # a WebSocket's client sends nothing before the response to its request
                return
            took_s = time.thread_time() - begun
            if took_s >= TURN_S:
                self._rest(took_s)
                return
        if not self.flow.read_paused:
            self.transport.resume_reading()

    def read_on_unless_resting(self) -> None:
        """Process unread data, unless the connection is paused."""
        if self._resting is None:
            self.read_on()

    def _rest(self, took_s: float) -> None:
        self.transport.pause_reading()
        PacedWebSocket.resting.add(self)
        rest_s = max(SHORTEST_REST_S, took_s * REST * len(PacedWebSocket.resting))
        self._resting = self.loop.call_later(rest_s, self.read_on)

    def _stop_resting(self) -> None:
        PacedWebSocket.resting.discard(self)
        if self._resting is not None:
            self._resting.cancel()
            self._resting = None

    def pause_writing(self) -> None:
        """Wait for the client to read its answer."""
        super().pause_writing()
        self._wait()

    def resume_writing(self) -> None:
        """See whether a request is in progress."""
        super().resume_writing()
        self._look()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """Pass the connection to the WebSocket protocol."""
        self._stop_waiting()
        self.stop_unread_limit()
        super().handle_websocket_upgrade(event)

    def on_response_complete(self) -> None:
        """Start to wait for the next request, which is handled after the connection's pause."""
        self._look()
        if self.transport.is_closing():
            super().on_response_complete()
            return
        self._is_answered = True
        if self._resting is None:
            self._rest(REQUEST_S)

    def _look(self) -> None:
        if self.transport.get_protocol() is not self:
            return
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_waiting()
            return
        self._wait()
        # An idle connection has uvicorn's own timeout, which ends with the first byte.
        has_begun = self.conn.their_state is not h11.IDLE or self.conn.trailing_data[0]
        if has_begun and self._timer is None:
            self._arm()

    def _wait(self) -> None:
        if self in self.waiting:
            return
        removed = self.waiting.add(self, self.client[0] if self.client else "")
        if removed is not None:
            _end(removed.transport)

    def _arm(self) -> None:
        # A weak reference: otherwise, the timer would keep the connection with all of its buffers for seconds after its
        # end.
        self._timer = self.loop.call_later(HEAD_WITHIN_S, _close, weakref.ref(self))

    def _stop_waiting(self) -> None:
        self.waiting.discard(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class _Flow(FlowControl):
    """Flow control of a connection that processes received data before it receives more."""

    def __init__(self, transport: asyncio.Transport, protocol: PromptProtocol) -> None:
        super().__init__(transport)
        self._protocol = protocol

    def resume_reading(self) -> None:
        """Resume processing after the current data."""
        if self.read_paused:
            self.read_paused = False
            self._protocol.loop.call_soon(self._protocol.read_on_unless_resting)


def _close(reference: weakref.ref[PromptProtocol]) -> None:
    protocol = reference()
    if protocol:
        _end(protocol.transport)


def _end(transport: asyncio.Transport) -> None:
    """Close a connection, also where its client does not read what was written to it."""
    transport.close()
    if transport.get_write_buffer_size():
        transport.abort()
