"""WebSockets that cannot monopolize the event loop, regardless of their client."""

import asyncio
import time
import weakref
from collections.abc import Mapping
from typing import Any, ClassVar

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode
from websockets.http11 import Request

MAX_SLICE_BYTES = 4096
"""Maximum bytes per read. The limit equals 680 empty pings, the smallest frames, which take about 10 ms to process."""
BAD_REQUEST_RESPONSE = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
MIN_PAUSE_S = 0.001
PAUSE_FACTOR = 4
"""Ratio of a pause to the preceding processing time. All connections with a backlog together use at most a fifth of the
loop's time."""
MAX_TOTAL_LARGE_MESSAGE_BYTES = 256 << 20
"""Maximum total size, per process, of incomplete messages above the usual limit."""
CLIENT_READ_TIMEOUT_S = 20.0
"""Maximum time for which a client may leave pending data unread, and for closing its connection."""
MAX_UNREAD_BYTES = 64 * 1024
"""Maximum size of unread responses to a client's pings, above which no more data is read from it."""


class SlowReaderTimeoutProtocol(asyncio.Protocol):
    """Base of uvicorn's protocols, which closes connections whose client does not read its data.

    A closed transport keeps its connection until all written data has been read, and an application that sends data
    waits until then as well. A client that reads nothing would block both indefinitely.
    """

    loop: asyncio.AbstractEventLoop
    transport: asyncio.Transport
    _unread_timer: asyncio.TimerHandle | None = None
    _unread_bytes: int
    _was_closing: bool

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Limit the write buffer to 0, so that every byte that the kernel does not accept is reported."""
        super().connection_made(transport)
        self.transport.set_write_buffer_limits(high=0)
        if self.transport.get_write_buffer_size():  # from the previous protocol of the connection
            self.pause_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timeout for the lost connection."""
        self.stop_unread_timeout()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Start the timeout for the client."""
        super().pause_writing()
        self._start_unread_timeout()

    def resume_writing(self) -> None:
        """Stop the timeout, since the client has read everything."""
        self.stop_unread_timeout()
        super().resume_writing()

    def close_if_unread(self) -> None:
        """Close the connection, unless its client has read some data in the meantime."""
        if self._was_closing or self.transport.get_write_buffer_size() >= self._unread_bytes:
            self.transport.abort()
        else:
            self._start_unread_timeout()

    def _start_unread_timeout(self) -> None:
        self.stop_unread_timeout()
        self._unread_bytes = self.transport.get_write_buffer_size()
        self._was_closing = self.transport.is_closing()
        # With a strong reference, the timer would keep a closed connection and all of its buffers in memory for
        # seconds.
        self._unread_timer = self.loop.call_later(CLIENT_READ_TIMEOUT_S, _close_if_unread, weakref.ref(self))

    def stop_unread_timeout(self) -> None:
        """Stop the timeout, also when another protocol takes over the connection."""
        if self._unread_timer is not None:
            self._unread_timer.cancel()
            self._unread_timer = None


def _close_if_unread(reference: weakref.ref[SlowReaderTimeoutProtocol]) -> None:
    protocol = reference()
    if protocol:
        protocol.close_if_unread()


class PacedWebSocket(SlowReaderTimeoutProtocol, WebSocketsSansIOProtocol):
    """WebSocket that reads data in slices, and pauses after each one for a multiple of its processing time.

    A megabyte of pings is 170,000 frames: processed at once, it would delay all other callers for seconds. Audio in
    real time is never delayed, since the next frame arrives long after the pause.
    """

    paused_connections: ClassVar[set[asyncio.Protocol]] = set()
    """Connections with a backlog, across all protocols."""
    large_message_bytes_by_socket: ClassVar[dict["PacedWebSocket", int]] = {}
    """Received bytes of incomplete messages above the usual limit."""
    max_bytes_by_path: ClassVar[Mapping[str, int]] = {}

    @classmethod
    def with_limits(cls, max_bytes_by_path: Mapping[str, int]) -> type["PacedWebSocket"]:
        """Return the protocol for a server whose paths accept larger messages than ``ws_max_size``.

        Args:
            max_bytes_by_path: Limit of a message by path; for all other paths, it is ``ws_max_size``.
        """
        return type("PacedWebSocket", (cls,), {"max_bytes_by_path": max_bytes_by_path})

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401  uvicorn's
        super().__init__(*args, **kwargs)
        self._unread = bytearray()
        self._paused_until = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def data_received(self, data: bytes) -> None:
        """Process a slice, or store it until the connection's pause has ended."""
        if not self.handshake_initiated:
            super().data_received(data)
            if not self.handshake_initiated:
                self._refuse_malformed_request()
            return
        self._unread += data
        if self._timer is None:
            self._process_slice()

    def send_receive_event_to_app(self) -> None:
        """Close the connection if a text message is not UTF-8. uvicorn would log an error with a traceback."""
        if self.curr_msg_data_type == "text" and not _is_utf8(b"".join(self.frames)):
            self.frames = []
            self.conn.send_close(CloseCode.INVALID_DATA)
            self.handle_parser_exception()
            return
        super().send_receive_event_to_app()

    def handle_connect(self, event: Request) -> None:
        """Start the handshake, with the message limit for the path."""
        path = event.path.partition("?")[0]
        self.conn.max_message_size = self.max_bytes_by_path.get(path, self.config.ws_max_size)
        super().handle_connect(event)

    def keepalive_timeout(self) -> None:
        """Close a connection that does not respond to pings, unless its response may be in unread data."""
        if self.read_paused or self._unread:
            self.pending_ping_payload, self.pong_timer = None, None
            self.schedule_ping()
        else:
            super().keepalive_timeout()

    def resume_writing(self) -> None:
        """Resume reading once the client has read its responses."""
        super().resume_writing()
        if self._unread and self._timer is None:
            self._process_slice()

    async def receive(self) -> Any:  # noqa: ANN401  uvicorn's
        """Return the next message. No more data is received than can be processed."""
        message = await super().receive()
        if self._unread:
            self.transport.pause_reading()
        return message

    def connection_lost(self, exc: Exception | None) -> None:
        """Discard unread data."""
        self._end_pause()
        self._unread.clear()
        self.large_message_bytes_by_socket.pop(self, None)
        super().connection_lost(exc)

    def _refuse_malformed_request(self) -> None:
        """Respond with an error and close, if ``websockets`` cannot parse the request head.

        uvicorn, which passes the head in one call, would neither respond nor close, and would count the connection
        among those of callers.
        """
        answer = b"".join(self.conn.data_to_send())
        self.transport.write(answer or BAD_REQUEST_RESPONSE)
        self.transport.close()

    def _process_slice(self) -> None:
        self._end_pause()
        if self.transport.get_write_buffer_size() > MAX_UNREAD_BYTES:
            # A client that does not read the responses to its pings would fill this process's memory with them.
            self.transport.pause_reading()
            return
        started_at = time.perf_counter()
        if started_at >= self._paused_until:
            piece = bytes(self._unread[:MAX_SLICE_BYTES])
            del self._unread[:MAX_SLICE_BYTES]
            super().data_received(piece)
            self._limit_large_messages()
            ended_at = time.perf_counter()
            self._paused_until = ended_at + (ended_at - started_at) * PAUSE_FACTOR * max(
                1, len(self.paused_connections)
            )
        if self.transport.is_closing() or self.transport.get_protocol() is not self:
            return
        if self._unread:
            self.transport.pause_reading()
            self.paused_connections.add(self)
            rest_s = max(MIN_PAUSE_S, self._paused_until - time.perf_counter())
            self._timer = self.loop.call_later(rest_s, self._process_slice)
        elif not self.read_paused:
            self.transport.resume_reading()

    def _limit_large_messages(self) -> None:
        """Close the connection if incomplete messages on all connections exceed ``MAX_TOTAL_LARGE_MESSAGE_BYTES``."""
        buffered_bytes = len(self.conn.reader.buffer) + (self.conn.current_size or 0)
        if buffered_bytes <= self.config.ws_max_size:
            self.large_message_bytes_by_socket.pop(self, None)
            return
        self.large_message_bytes_by_socket[self] = buffered_bytes
        if sum(self.large_message_bytes_by_socket.values()) > MAX_TOTAL_LARGE_MESSAGE_BYTES:
            self.conn.fail(1013, "too many large messages arrive at a time; send smaller ones, or try again")
            self.handle_parser_exception()

    def _end_pause(self) -> None:
        self.paused_connections.discard(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
