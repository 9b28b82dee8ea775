"""Sockets of other services' clients: audio in and transcripts out on the same one."""

import asyncio
import contextlib
import json
import time
from abc import abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from redis.exceptions import RedisError
from starlette.datastructures import QueryParams
from starlette.types import Message
from starlette.websockets import WebSocket, WebSocketDisconnect

from voice_gateway.audio import AudioFormat, Framer
from voice_gateway.audio_route import let_in
from voice_gateway.audio_socket import ENDED, RESTART, AudioSocket, Close
from voice_gateway.bearer import session_of
from voice_gateway.event_stream import EventStream
from voice_gateway.gateway import Gateway
from voice_gateway.refusals import Refusal, store_away
from voice_gateway.rtp import first_frame, timestamp_of
from voice_gateway.socket_lease import SocketLease
from voice_runtime.sessions import Session
from voice_runtime.transcripts import BEFORE_ALL, EventId, EventKind, Transcript

WAITING = 256
"""Messages that may wait for a client that reads slowly; transcripts wait in the store before that."""
LAST_WORDS_S = 30.0
"""Longest that a client that has said all waits for its last finals."""
PAUSE_S = 2.0
"""Longest that a socket whose session ends with it stays for somebody who speaks, where this process stops."""
LEAVING_S = 2.5
"""How long it waits for its last finals then: five seconds are all that anybody has."""
ARRIVED_S = 1.0
"""What was sent so long before a message of the client has come to it; the rest is told again on its next socket."""

NOT_READING = Close(1008, "the client reads nothing")
LEFT = replace(RESTART, ends_session=True)


@dataclass(frozen=True)
class Opening:
    """What a socket is opened with.

    Attributes:
        outlives: Whether the session outlives the socket.
        frame: Number of the first frame.
    """

    session: Session
    lease: SocketLease
    frame: int
    outlives: bool


class ClientSocket(AudioSocket):
    """Speaks another service's protocol.

    A session that was opened for this socket ends with it. One whose token the caller brought waits for it as ever, and
    goes on behind the last final that it was told.
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
        websocket.state.asked_at = time.monotonic()
        try:
            with gateway.connection():
                async with cls._open(gateway, websocket) as opened:
                    await opened.serve()
        except Refusal as refusal:
            await websocket.send_denial_response(refusal.response())
        except RedisError:
            await websocket.send_denial_response(store_away().response())

    @classmethod
    @contextlib.asynccontextmanager
    async def _open(cls, gateway: Gateway, websocket: WebSocket) -> AsyncIterator[Self]:
        cls.check(websocket.query_params)
        asked = websocket.query_params
        session, outlives = await session_of(gateway, websocket, cls.language(asked), cls.end_of_turn_ms(asked))
        try:
            lease, address = await let_in(gateway, session)
        except Refusal:
            if not outlives:
                await gateway.sessions.close(session)
            raise
        frame = first_frame()
        await gateway.sessions.take_audio_from(session, address, timestamp_of(frame))
        await gateway.sessions.resume(session)
        await websocket.accept(headers=cls.headers(session))
        yield cls(gateway, websocket, Opening(session, lease, frame, outlives))

    @classmethod
    def check(cls, asked: QueryParams) -> None:
        """Read the address.

        Raises:
            Refusal: It asks for what there is not.
        """

    @classmethod
    def language(cls, asked: QueryParams) -> str | None:  # noqa: ARG003  of some protocols
        """Return the spoken language that an address names."""
        return None

    @classmethod
    def end_of_turn_ms(cls, asked: QueryParams) -> int | None:  # noqa: ARG003  of some protocols
        """Return the silence that ends a turn, where an address says so."""
        return None

    @classmethod
    def headers(cls, session: Session) -> list[tuple[bytes, bytes]]:  # noqa: ARG003  of some protocols
        """Return headers of the answer that lets the client in."""
        return []

    @abstractmethod
    def _hear(self, said: Transcript) -> Iterable[Mapping[str, Any]]:
        """Return the messages for a transcript."""

    @abstractmethod
    def _settles(self, said: Transcript) -> bool:
        """Return whether the client needs none of what came up to there again, on another socket."""

    def _farewell(self) -> Iterable[Mapping[str, Any]]:
        """Return what is told when all has been said."""
        return ()

    def _more(self) -> Iterable[Coroutine[None, None, Close]]:
        return (self._follow(), self._deliver())

    async def _end(self, close: Close) -> None:
        # Nobody can come back to a session that nobody has a token of.
        await super()._end(close if self._opening.outlives else replace(close, ends_session=True))

    async def _leave(self) -> Close:
        """Leave in a pause: of a session that ends with its socket nobody hears what is said meanwhile."""
        close = await super()._leave()
        if not self._opening.outlives:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._is_quiet.wait(), PAUSE_S)
        return close

    async def _finish(self, close: Close) -> None:
        """Tell what is still to be heard."""
        if self._is_gone or close not in self.say_when_sent:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LEAVING_S if self._gateway.leaving.is_set() else LAST_WORDS_S):
                if close.ends_session:
                    await self._all_told.wait()
                    self._tell(self._farewell())
                await self._outbox.join()

    def _handle(self, message: Message) -> Close | None:
        self._is_gone = message["type"] == "websocket.disconnect"
        if self._outbox.full():
            return NOT_READING
        if self._sent and not self._is_gone:
            self._confirm()
        return super()._handle(message)

    def _confirm(self) -> None:
        """Note as told what was sent a while ago: who still speaks had a connection then."""
        told = None
        while self._sent and asyncio.get_running_loop().time() - self._sent[0][1] >= ARRIVED_S:
            told, _ = self._sent.popleft()
        if told:
            self._noting = asyncio.create_task(self._note(told))

    async def _note(self, told: EventId) -> None:
        with contextlib.suppress(RedisError):
            await self._gateway.sessions.note(self._session, told=str(told))

    def _set_format(self, audio: AudioFormat) -> None:
        """Read audio otherwise from now on."""
        if audio != self._format:
            if self._framer:
                self._pacer.put(self._framer.end())
            self._format, self._framer = audio, Framer(audio)

    def _tell(self, messages: Iterable[Mapping[str, Any]]) -> None:
        for message in messages:
            with contextlib.suppress(asyncio.QueueFull):
                self._outbox.put_nowait(message)

    async def _follow(self) -> Close:
        """Tell what is heard, to the end."""
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
        """Send what waits."""
        while True:
            message = await self._outbox.get()
            try:
                await self._websocket.send_text(json.dumps(message))
            except (WebSocketDisconnect, RuntimeError):
                self._is_gone = True
            finally:
                self._outbox.task_done()


def place_of(session: Session) -> EventId:
    """Return the place behind which a session's next socket goes on."""
    return EventId.of(session.told) if session.told else BEFORE_ALL
