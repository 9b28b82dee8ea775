"""Sockets for clients of other speech services, which send audio and receive transcripts on the same socket."""

import asyncio
import contextlib
import json
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Coroutine, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from redis.exceptions import RedisError
from starlette.datastructures import QueryParams
from starlette.types import Message
from starlette.websockets import WebSocket, WebSocketDisconnect

from voice_gateway.audio import AudioFormat, Framer
from voice_gateway.audio_route import admit_socket
from voice_gateway.audio_socket import NORMAL_END, SERVICE_RESTART, AudioSocket, CloseReason
from voice_gateway.bearer import build_caller_headers, open_or_resume_session, select_subprotocol
from voice_gateway.event_stream import EventStream
from voice_gateway.gateway import Gateway
from voice_gateway.refusals import Refusal, build_store_unavailable_refusal
from voice_gateway.rtp import FRAME_MS, calculate_elapsed_ms, calculate_first_frame_number, calculate_rtp_timestamp
from voice_gateway.socket_lease import SocketLease
from voice_runtime import tasks
from voice_runtime.sessions import Session
from voice_runtime.transcripts import STREAM_START, EventId, EventKind, Transcript

MAX_OUTBOX_MESSAGES = 256
"""Maximum number of queued messages for a slow client. Further transcripts wait in the store."""
FINALS_TIMEOUT_S = 30.0
"""Maximum time for which a client that has sent all audio waits for its last final transcripts."""
SPEECH_PAUSE_TIMEOUT_S = 2.0
"""Maximum time for which a stopping process waits for a speaker to pause, if the session ends with the socket."""
SHUTDOWN_TIMEOUT_S = 2.5
"""Maximum time for which a stopping process then waits for the last final transcripts, within a total of five
seconds."""
ASSUMED_DELIVERY_DELAY_S = 1.0
"""Messages that were sent this long before a message of the client are assumed to have arrived. Later messages are
repeated on the client's next socket."""

CLIENT_TOO_SLOW = CloseReason(1008, "the client does not read its messages")
SHUTDOWN = replace(SERVICE_RESTART, ends_session=True)


@dataclass(frozen=True)
class SocketArguments:
    """Arguments for a new socket.

    Attributes:
        session_outlives_socket: Whether the session outlives the socket.
        frame_number: Number of the first frame.
        start_ms: Position of that frame in the session's audio.
    """

    session: Session
    lease: SocketLease
    frame_number: int
    session_outlives_socket: bool
    start_ms: int


class ClientSocket(AudioSocket):
    """Base class of sockets that implement another service's protocol, such as OpenAI's Realtime API.

    A session that was opened for this socket ends with the socket. A session whose token the caller has presented waits
    for the caller as usual, and continues after the last final transcript that was sent.
    """

    close_reasons_sent_after_flush = (NORMAL_END, SERVICE_RESTART, SHUTDOWN)

    def __init__(self, gateway: Gateway, websocket: WebSocket, arguments: SocketArguments) -> None:
        super().__init__(gateway, websocket, arguments.session, arguments.lease, arguments.frame_number)
        self._arguments = arguments
        self._stream = EventStream(gateway, arguments.session, get_resume_position(arguments.session))
        self._outbox: asyncio.Queue[Mapping[str, Any]] = asyncio.Queue(MAX_OUTBOX_MESSAGES)
        self._delivery_complete = asyncio.Event()
        self._sent: deque[tuple[EventId, float]] = deque()
        self._record_task: asyncio.Task[None] | None = None
        self._is_disconnected = False
        self._speech_paused = asyncio.Event()
        self._speech_paused.set()

    @classmethod
    async def run(cls, websocket: WebSocket) -> None:
        """Serve a client until either side closes the connection."""
        gateway: Gateway = websocket.app.state.gateway
        websocket.state.requested_at = time.monotonic()
        try:
            gateway.check_connection_capacity()
            cls.validate_query(websocket.query_params)
            await cls._serve(gateway, websocket)
        except Refusal as refusal:
            await websocket.send_denial_response(refusal.to_response())
        except RedisError:
            await websocket.send_denial_response(build_store_unavailable_refusal().to_response())

    @classmethod
    async def _serve(cls, gateway: Gateway, websocket: WebSocket) -> None:
        session, session_outlives_socket = await open_or_resume_session(
            gateway, websocket, cls.parse_session_settings(websocket.query_params)
        )
        with contextlib.ExitStack() as resources:
            opening = await cls._reserve_resources(
                gateway, session, resources, session_outlives_socket=session_outlives_socket
            )
            await cls._accept(gateway, websocket, session, [opening])
            await cls(gateway, websocket, opening).serve()

    @classmethod
    async def _reserve_resources(
        cls, gateway: Gateway, session: Session, resources: contextlib.ExitStack, *, session_outlives_socket: bool
    ) -> SocketArguments:
        """Reserve the resources that a socket needs for a session.

        A session that was opened for the socket has a grace period until the socket is accepted, since its client may
        disconnect before then, or the store may become unavailable.

        Args:
            resources: Stack that counts the connection until the stack is closed.

        Raises:
            Refusal: No host has a free slot; a session that was opened for the socket is closed.
        """
        if not session_outlives_socket:
            await gateway.sessions.start_grace_period(session, gateway.settings.reconnect_grace_s)
        try:
            resources.enter_context(gateway.count_connection())
            lease, address = await admit_socket(gateway, session)
        except Refusal:
            if not session_outlives_socket:
                await gateway.sessions.close(session)
            raise
        frame = calculate_first_frame_number()
        await gateway.sessions.set_gateway(session, address, calculate_rtp_timestamp(frame))
        start_ms = (
            0 if session.begins_at is None else calculate_elapsed_ms(session.begins_at, calculate_rtp_timestamp(frame))
        )
        return SocketArguments(session, lease, frame, session_outlives_socket, start_ms)

    @classmethod
    async def _accept(
        cls, gateway: Gateway, websocket: WebSocket, session: Session, openings: Iterable[SocketArguments]
    ) -> None:
        """Accept a socket, and resume the sessions that it serves."""
        headers = [*cls.build_response_headers(session), *build_caller_headers(gateway, session)]
        await websocket.accept(select_subprotocol(websocket), headers=headers)
        # If the store is unavailable, the session is resumed when the socket renews its lease.
        with contextlib.suppress(RedisError):
            for opening in openings:
                await gateway.sessions.resume(opening.session)

    @classmethod
    def validate_query(cls, query: QueryParams) -> None:
        """Validate the query parameters.

        Raises:
            Refusal: An option is not supported.
        """

    @classmethod
    def parse_session_settings(cls, query: QueryParams) -> Mapping[str, object]:  # noqa: ARG003  used by some protocols
        """Return the settings in the query parameters, as fields of a session request."""
        return {}

    @classmethod
    def build_response_headers(cls, session: Session) -> list[tuple[bytes, bytes]]:  # noqa: ARG003  used by some protocols
        """Return additional headers for the accepting response."""
        return []

    @abstractmethod
    def _convert_event(self, transcript: Transcript) -> Iterable[Mapping[str, Any]]:
        """Convert an event to the client's protocol."""

    @abstractmethod
    def _is_checkpoint(self, transcript: Transcript) -> bool:
        """Return True if transcripts up to this one need not be repeated on another socket."""

    def _build_final_messages(self) -> Iterable[Mapping[str, Any]]:
        """Return the messages after the last transcript."""
        return ()

    def _create_additional_tasks(self) -> Iterable[Coroutine[None, None, CloseReason]]:
        return (self._enqueue_transcript_messages(), self._send_queued_messages())

    async def _end(self, close: CloseReason) -> None:
        # A session without a known token cannot be resumed.
        await super()._end(close if self._arguments.session_outlives_socket else replace(close, ends_session=True))

    async def _wait_for_shutdown(self) -> CloseReason:
        """Wait for the shutdown, and then for a pause in speech if the session ends with the socket.

        Without a pause, speech would be lost while the caller of such a session moves to another gateway.
        """
        close = await super()._wait_for_shutdown()
        if not self._arguments.session_outlives_socket:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._speech_paused.wait(), SPEECH_PAUSE_TIMEOUT_S)
        return close

    async def _finish_before_close(self, close: CloseReason) -> None:
        """Send the remaining transcripts."""
        if self._is_disconnected or close not in self.close_reasons_sent_after_flush:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(
                SHUTDOWN_TIMEOUT_S if self._gateway.shutting_down.is_set() else FINALS_TIMEOUT_S
            ):
                if close.ends_session:
                    await self._delivery_complete.wait()
                    self._enqueue_messages(self._build_final_messages())
                await self._outbox.join()

    async def _handle_message(self, message: Message) -> CloseReason | None:
        self._is_disconnected = message["type"] == "websocket.disconnect"
        if self._outbox.full():
            return CLIENT_TOO_SLOW
        if self._sent and not self._is_disconnected:
            self._confirm_delivery()
        return await super()._handle_message(message)

    async def _flush(self, close: CloseReason) -> CloseReason:
        if self._arguments.session_outlives_socket:
            return await super()._flush(close)
        flush_task, disconnect_task = (
            asyncio.ensure_future(super()._flush(close)),
            asyncio.ensure_future(self._wait_for_disconnect()),
        )
        try:
            await asyncio.wait({flush_task, disconnect_task}, return_when=asyncio.FIRST_COMPLETED)
            return flush_task.result() if flush_task.done() else close
        finally:
            await tasks.cancel_tasks((flush_task, disconnect_task))

    async def _wait_for_disconnect(self) -> None:
        """Wait until the client has disconnected. A client cannot return to a session that ends with the socket."""
        while not self._is_disconnected:
            self._is_disconnected = (await self._websocket.receive())["type"] == "websocket.disconnect"

    @property
    def _position_ms(self) -> int:
        """Position of the next audio in the session."""
        return self._arguments.start_ms + FRAME_MS * self._received_frames

    def _confirm_delivery(self) -> None:
        """Record that messages sent a while ago have arrived, since the client is still connected."""
        last_delivered = None
        while self._sent and asyncio.get_running_loop().time() - self._sent[0][1] >= ASSUMED_DELIVERY_DELAY_S:
            last_delivered, _ = self._sent.popleft()
        if last_delivered:
            self._record_task = asyncio.create_task(self._record_delivery(last_delivered))

    async def _record_delivery(self, last_delivered: EventId) -> None:
        with contextlib.suppress(RedisError):
            await self._gateway.sessions.update(self._session, told=str(last_delivered))

    def _set_audio_format(self, audio_format: AudioFormat) -> None:
        """Use another audio format for all following audio."""
        if audio_format != self._format:
            if self._framer:
                self._enqueue_frames(self._framer.flush())
            self._format, self._framer = audio_format, Framer(audio_format)

    def _enqueue_messages(self, messages: Iterable[Mapping[str, Any]]) -> None:
        for message in messages:
            with contextlib.suppress(asyncio.QueueFull):
                self._outbox.put_nowait(message)

    async def _enqueue_transcript_messages(self) -> CloseReason:
        """Enqueue the messages of new transcripts until the session has ended."""
        while not self._delivery_complete.is_set():
            new_events, complete = await self._stream.read_events()
            for position, transcript in new_events:
                if transcript.kind is EventKind.SPEECH_STARTED:
                    self._speech_paused.clear()
                elif transcript.kind is EventKind.SPEECH_STOPPED:
                    self._speech_paused.set()
                for message in self._convert_event(transcript):
                    await self._outbox.put(message)
                self._stream.advance(position)
                if transcript.kind is EventKind.FINAL and (trace := self._gateway.traces.get(self._session.ssrc)):
                    read_at = time.monotonic()
                    await self._outbox.join()
                    trace.add_span("deliver", read_at, time.monotonic(), utterance=str(transcript.utterance))
                if self._arguments.session_outlives_socket and self._is_checkpoint(transcript):
                    await self._outbox.join()
                    self._sent.append((position, asyncio.get_running_loop().time()))
                if transcript.kind is EventKind.END:
                    self._delivery_complete.set()
            if complete is not None and not new_events:
                self._delivery_complete.set()
        return NORMAL_END

    async def _send_queued_messages(self) -> CloseReason:
        """Send queued messages to the client until cancelled."""
        while True:
            message = await self._outbox.get()
            try:
                await self._websocket.send_text(json.dumps(message))
            except (WebSocketDisconnect, RuntimeError):
                self._is_disconnected = True
            finally:
                self._outbox.task_done()


def get_resume_position(session: Session) -> EventId:
    """Return the position after which a session's next socket continues."""
    return EventId.parse(session.last_sent_event) if session.last_sent_event else STREAM_START
