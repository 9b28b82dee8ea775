"""Sockets of other services' clients, with audio and transcripts on the same socket."""

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
from voice_gateway.audio_socket import ENDED, RESTART, AudioSocket, Close
from voice_gateway.bearer import caller_headers, session_of, subprotocol_of
from voice_gateway.event_stream import EventStream
from voice_gateway.gateway import Gateway
from voice_gateway.refusals import Refusal, store_unavailable
from voice_gateway.rtp import FRAME_MS, first_frame, milliseconds_between, timestamp_of
from voice_gateway.socket_lease import SocketLease
from voice_runtime import tasks
from voice_runtime.sessions import Session
from voice_runtime.transcripts import BEFORE_ALL, EventId, EventKind, Transcript

WAITING = 256
"""Maximum number of queued messages for a slow client; further transcripts wait in the store."""
LAST_WORDS_S = 30.0
"""Maximum time for which a client that has sent all audio waits for its last finals."""
PAUSE_S = 2.0
"""Maximum time for which a socket whose session ends with it stays open for a current speaker when this process
stops."""
LEAVING_S = 2.5
"""Time to wait for its last finals then, within the total of five seconds."""
ARRIVED_S = 1.0
"""Messages sent this long before a message of the client are assumed to have arrived; later ones are repeated on its
next socket."""

NOT_READING = Close(1008, "the client does not read its messages")
LEFT = replace(RESTART, ends_session=True)


@dataclass(frozen=True)
class Opening:
    """Arguments of a new socket.

    Attributes:
        outlives: Whether the session outlives the socket.
        frame: Number of the first frame.
        start_ms: Position of that frame in the session's audio.
    """

    session: Session
    lease: SocketLease
    frame: int
    outlives: bool
    start_ms: int = 0


class ClientSocket(AudioSocket):
    """Implements another service's protocol.

    A session that was opened for this socket ends with it. A session whose token the caller has presented waits for the
    caller as usual, and continues after the last final that was sent.
    """

    say_when_sent = (ENDED, RESTART, LEFT)

    def __init__(self, gateway: Gateway, websocket: WebSocket, opening: Opening) -> None:
        super().__init__(gateway, websocket, opening.session, opening.lease, opening.frame)
        self._opening = opening
        self._stream = EventStream(gateway, opening.session, place_of(opening.session))
        self._outbox: asyncio.Queue[Mapping[str, Any]] = asyncio.Queue(WAITING)
        self._all_told = asyncio.Event()
        self._sent: deque[tuple[EventId, float]] = deque()
        self._noting: asyncio.Task[None] | None = None
        self._is_gone = False
        self._is_quiet = asyncio.Event()
        self._is_quiet.set()

    @classmethod
    async def run(cls, websocket: WebSocket) -> None:
        """Serve a client until either side ends it."""
        gateway: Gateway = websocket.app.state.gateway
        websocket.state.requested_at = time.monotonic()
        try:
            gateway.check_connections()
            cls.check(websocket.query_params)
            await cls._serve(gateway, websocket)
        except Refusal as refusal:
            await websocket.send_denial_response(refusal.response())
        except RedisError:
            await websocket.send_denial_response(store_unavailable().response())

    @classmethod
    async def _serve(cls, gateway: Gateway, websocket: WebSocket) -> None:
        session, outlives = await session_of(gateway, websocket, cls.wanted(websocket.query_params))
        with contextlib.ExitStack() as counted:
            opening = await cls._open(gateway, session, counted, outlives=outlives)
            await cls._accept(gateway, websocket, session)
            await cls(gateway, websocket, opening).serve()

    @classmethod
    async def _open(
        cls, gateway: Gateway, session: Session, counted: contextlib.ExitStack, *, outlives: bool
    ) -> Opening:
        """Reserve the resources of a socket for a session.

        Args:
            counted: Counts the connection until it is closed.

        Raises:
            Refusal: No host has a free slot; a session that was opened for the socket is closed.
        """
        try:
            counted.enter_context(gateway.connection())
            lease, address = await admit_socket(gateway, session)
        except Refusal:
            if not outlives:
                await gateway.sessions.close(session)
            raise
        frame = first_frame()
        await gateway.sessions.take_audio_from(session, address, timestamp_of(frame))
        await gateway.sessions.resume(session)
        start_ms = 0 if session.begins_at is None else milliseconds_between(session.begins_at, timestamp_of(frame))
        return Opening(session, lease, frame, outlives, start_ms)

    @classmethod
    async def _accept(cls, gateway: Gateway, websocket: WebSocket, session: Session) -> None:
        headers = [*cls.headers(session), *caller_headers(gateway, session)]
        await websocket.accept(subprotocol_of(websocket), headers=headers)

    @classmethod
    def check(cls, asked: QueryParams) -> None:
        """Validate the query parameters.

        Raises:
            Refusal: An option is not supported.
        """

    @classmethod
    def wanted(cls, asked: QueryParams) -> Mapping[str, object]:  # noqa: ARG003  of some protocols
        """Return the settings in the query parameters, as fields of a request for a session."""
        return {}

    @classmethod
    def headers(cls, session: Session) -> list[tuple[bytes, bytes]]:  # noqa: ARG003  of some protocols
        """Return additional headers of the accepting response."""
        return []

    @abstractmethod
    def _hear(self, said: Transcript) -> Iterable[Mapping[str, Any]]:
        """Return the messages for a transcript."""

    @abstractmethod
    def _settles(self, said: Transcript) -> bool:
        """Return True if transcripts up to this one need not be repeated on another socket."""

    def _farewell(self) -> Iterable[Mapping[str, Any]]:
        """Return the messages after the last transcript."""
        return ()

    def _more(self) -> Iterable[Coroutine[None, None, Close]]:
        return (self._follow(), self._deliver())

    async def _end(self, close: Close) -> None:
        # A session without a known token cannot be resumed.
        await super()._end(close if self._opening.outlives else replace(close, ends_session=True))

    async def _leave(self) -> Close:
        """Close during a pause, since speech is lost while a session that ends with its socket moves."""
        close = await super()._leave()
        if not self._opening.outlives:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._is_quiet.wait(), PAUSE_S)
        return close

    async def _finish(self, close: Close) -> None:
        """Send the remaining transcripts."""
        if self._is_gone or close not in self.say_when_sent:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LEAVING_S if self._gateway.leaving.is_set() else LAST_WORDS_S):
                if close.ends_session:
                    await self._all_told.wait()
                    self._tell(self._farewell())
                await self._outbox.join()

    async def _handle(self, message: Message) -> Close | None:
        self._is_gone = message["type"] == "websocket.disconnect"
        if self._outbox.full():
            return NOT_READING
        if self._sent and not self._is_gone:
            self._confirm()
        return await super()._handle(message)

    async def _work_off(self, close: Close) -> Close:
        if self._opening.outlives:
            return await super()._work_off(close)
        working, leaving = (
            asyncio.ensure_future(super()._work_off(close)),
            asyncio.ensure_future(self._wait_until_closed_by_peer()),
        )
        try:
            await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
            return working.result() if working.done() else close
        finally:
            await tasks.end((working, leaving))

    async def _wait_until_closed_by_peer(self) -> None:
        """Return after the client has disconnected, since it will not return to the session."""
        while not self._is_gone:
            self._is_gone = (await self._websocket.receive())["type"] == "websocket.disconnect"

    @property
    def _place_ms(self) -> int:
        """Position of the next audio in the session."""
        return self._opening.start_ms + FRAME_MS * self._taken

    def _confirm(self) -> None:
        """Mark messages sent a while ago as received, since the client was still connected then."""
        told = None
        while self._sent and asyncio.get_running_loop().time() - self._sent[0][1] >= ARRIVED_S:
            told, _ = self._sent.popleft()
        if told:
            self._noting = asyncio.create_task(self._note(told))

    async def _note(self, told: EventId) -> None:
        with contextlib.suppress(RedisError):
            await self._gateway.sessions.note(self._session, told=str(told))

    def _set_format(self, audio: AudioFormat) -> None:
        """Use another audio format from now on."""
        if audio != self._format:
            if self._framer:
                self._put(self._framer.end())
            self._format, self._framer = audio, Framer(audio)

    def _tell(self, messages: Iterable[Mapping[str, Any]]) -> None:
        for message in messages:
            with contextlib.suppress(asyncio.QueueFull):
                self._outbox.put_nowait(message)

    async def _follow(self) -> Close:
        """Send transcripts until the end."""
        while not self._all_told.is_set():
            found, complete = await self._stream.step()
            for place, said in found:
                if said.kind is EventKind.SPEECH_STARTED:
                    self._is_quiet.clear()
                elif said.kind is EventKind.SPEECH_STOPPED:
                    self._is_quiet.set()
                for message in self._hear(said):
                    await self._outbox.put(message)
                self._stream.seen(place)
                if said.kind is EventKind.FINAL and (trace := self._gateway.traces.of(self._session.ssrc)):
                    read_at = time.monotonic()
                    await self._outbox.join()
                    trace.add("deliver", read_at, time.monotonic(), utterance=str(said.utterance))
                if self._opening.outlives and self._settles(said):
                    await self._outbox.join()
                    self._sent.append((place, asyncio.get_running_loop().time()))
                if said.kind is EventKind.END:
                    self._all_told.set()
            if complete is not None and not found:
                self._all_told.set()
        return ENDED

    async def _deliver(self) -> Close:
        """Send queued messages."""
        while True:
            message = await self._outbox.get()
            try:
                await self._websocket.send_text(json.dumps(message))
            except (WebSocketDisconnect, RuntimeError):
                self._is_gone = True
            finally:
                self._outbox.task_done()


def place_of(session: Session) -> EventId:
    """Return the position after which a session's next socket continues."""
    return EventId.of(session.told) if session.told else BEFORE_ALL
