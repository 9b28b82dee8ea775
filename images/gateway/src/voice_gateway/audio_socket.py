"""One caller's audio: WebSocket in, RTP out."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from redis.exceptions import RedisError
from starlette.types import Message
from starlette.websockets import WebSocket, WebSocketDisconnect

from voice_gateway.audio import AudioError, AudioFormat, Framer
from voice_gateway.gateway import Gateway
from voice_gateway.pacer import BUFFER_S, FRAME_S, Pacer
from voice_gateway.places import HELD_S
from voice_gateway.rtp import BYE, COMMIT, RtpSender
from voice_gateway.socket_lease import SocketLease
from voice_gateway.waits import Waits
from voice_runtime.sessions import Session, SessionState
from voice_runtime.transcripts import BEFORE_ALL

MESSAGE_BYTES = 64 * 1024
"""2 s at 16 kHz; the server closes with 1009 above it."""
HELD_BACK_S = 10.0
"""Longest that a caller may send faster than real time without a pause; until then it is read only as fast as that."""
WATCH_EVERY_S = 2.0
"""Twice in the lifetime of a socket's right to its session."""
NO_HOST_S = 5.0
"""Longest that a socket waits for a VAD host."""
ALREADY_SAID_S = 0.2
"""A session that is older than its socket has transcripts by then; a new one cannot have any."""
FOLLOW_S = 60.0
NORMAL_CLOSURE = 1000
"""A caller that ends on purpose says so (RFC 6455, section 7.4.1); a page that is left says 1001, a lost connection
nothing."""
FLUSH_S = BUFFER_S + 2
"""What is buffered takes that long to leave."""

log = logging.getLogger(__name__)


class Start(AudioFormat):
    """First message of a socket whose audio is not PCM16 at 16 kHz."""

    model_config = ConfigDict(extra="forbid")

    type: Literal["start"]


class Commit(BaseModel):
    """Asks for what was said so far, without waiting for a pause."""

    model_config = ConfigDict(extra="forbid")

    type: Literal["commit"]


class End(BaseModel):
    """Last message of a socket."""

    model_config = ConfigDict(extra="forbid")

    type: Literal["end"]


Control = TypeAdapter[Start | Commit | End](Annotated[Start | Commit | End, Field(discriminator="type")])


@dataclass(frozen=True)
class Close:
    """How a socket ends.

    Attributes:
        code: Of RFC 6455, section 7.4, and IANA's registry.
        reason: What the caller is told.
        ends_session: Whether the caller has said all: nothing else ends a session before its grace period is over.
    """

    code: int
    reason: str
    ends_session: bool = False


ENDED = Close(1000, "all audio has been taken", ends_session=True)
CLOSED_ELSEWHERE = Close(1000, "the session was closed", ends_session=True)
BROKEN_OFF = Close(1006, "the connection broke off")
TOO_FAST = Close(1008, f"audio comes faster than real time, and {BUFFER_S:g} s of it wait already")
RESTART = Close(1012, "this gateway is stopping; connect again with the newest token")
LOST_LEASE = Close(1008, "another socket has this session")
NO_HOST = Close(1013, "no VAD host takes audio; try again")
NO_PLACE = Close(1013, "no ASR host takes this session; try again")


class AudioSocket:
    """Takes audio, and watches over its session meanwhile.

    Attributes:
        say_when_sent: Closes that tell the caller that all it has sent is on its way, and that another socket may be
            opened.
    """

    say_when_sent: tuple[Close, ...] = (ENDED, RESTART)

    def __init__(
        self, gateway: Gateway, websocket: WebSocket, session: Session, lease: SocketLease, frame: int
    ) -> None:
        self._gateway = gateway
        self._websocket = websocket
        self._session = session
        self._lease = lease
        self._rtp = RtpSender(session.ssrc, gateway.settings.rtp_port, gateway.fleet, frame)
        self._pacer = Pacer(self._rtp.send)
        self._format = AudioFormat()
        self._framer: Framer | None = None
        self._speed = Speed()
        self._asked_at: float = getattr(websocket.state, "asked_at", time.monotonic())
        self._heard_at = time.monotonic()

    async def serve(self) -> None:
        """Run until either side ends it."""
        endings = [asyncio.create_task(each) for each in (self._take(), self._watch(), self._leave(), *self._more())]
        measuring = asyncio.create_task(self._measure())
        try:
            done, _ = await asyncio.wait(endings, return_when=asyncio.FIRST_COMPLETED)
            await self._end(next(iter(done)).result())
        finally:
            for task in (*endings, measuring):
                task.cancel()
            self._gateway.traces.end(self._session)
            self._pacer.close()
            self._rtp.close()

    def _more(self) -> Iterable[Coroutine[None, None, Close]]:
        """Return what else may end a socket that does more than to take audio."""
        return ()

    async def _end(self, close: Close) -> None:
        if close not in (*self.say_when_sent, BROKEN_OFF):
            await self._say(close)
        if close.ends_session:
            self._mark(BYE)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._pacer.empty(), FLUSH_S)
        try:
            await self._let_go(close)
        except RedisError:
            log.exception("session could not be closed", extra={"fields": {"ssrc": self._session.ssrc}})
        await self._finish(close)
        log.info("socket closed", extra={"fields": {"ssrc": self._session.ssrc, "code": close.code}})
        if close in self.say_when_sent:
            await self._say(close)

    async def _finish(self, close: Close) -> None:
        """Do what is left when the session has been let go, before the caller is told."""

    async def _let_go(self, close: Close) -> None:
        sessions, places = self._gateway.sessions, self._gateway.places
        if close.ends_session:
            await sessions.close(self._session)
            await places.leave(self._session.ssrc)
        elif await self._lease.is_held():
            grace_s = self._gateway.settings.reconnect_grace_s
            await sessions.lapse(self._session, grace_s)
            await places.leave(self._session.ssrc, grace_s)

    async def _say(self, close: Close) -> None:
        # The caller may have gone first.
        with contextlib.suppress(WebSocketDisconnect, RuntimeError):
            await self._websocket.close(close.code, close.reason)

    async def _take(self) -> Close:
        """Take messages until the caller ends, goes, or sends what it may not."""
        while True:
            await self._pacer.room()
            # Without a timeout of its own, which would be two timers a message: `_watch` looks at the clock.
            message = await self._websocket.receive()
            self._heard_at = time.monotonic()
            close = self._handle(message)
            if close:
                return close

    def _handle(self, message: Message) -> Close | None:
        if message["type"] == "websocket.disconnect":
            return ENDED if message["code"] == NORMAL_CLOSURE else BROKEN_OFF
        audio: bytes | None = message.get("bytes")
        return self._control(message["text"]) if audio is None else self._add(audio)

    def _add(self, audio: bytes) -> Close | None:
        self._framer = self._framer or Framer(self._format)
        try:
            frames = self._framer.take(audio)
        except AudioError as error:
            return Close(1007, str(error))
        self._pacer.put(frames)
        return TOO_FAST if self._speed.is_too_fast(len(frames), full=self._pacer.is_full) else None

    def _control(self, text: str) -> Close | None:
        try:
            message = Control.validate_json(text)
        except ValidationError as error:
            problem = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(map(str, problem["loc"]))
            # A reason has at most 123 bytes (RFC 6455, section 5.5).
            reason = f"text is for start, commit and end only: {place} {problem['msg']}"
            return Close(1003, reason.encode()[:120].decode(errors="ignore"))
        if isinstance(message, End):
            return ENDED
        if isinstance(message, Commit):
            self._mark(COMMIT)
            return None
        if self._framer is not None:
            return Close(1003, "`start` comes once, before any audio")
        self._format = message
        self._framer = Framer(message)
        return None

    def _mark(self, notice: bytes) -> None:
        """Send a notice behind all that has come."""
        self._pacer.put([*(self._framer.end() if self._framer else ()), notice])
        self._framer = Framer(self._format) if self._framer else None

    async def _watch(self) -> Close:
        """Keep the socket's right to its session, and notice when the session ends."""
        hosts_seen, idle_s = time.monotonic(), self._gateway.settings.idle_timeout_s
        while True:
            await asyncio.sleep(WATCH_EVERY_S)
            if not self._pacer.is_full and time.monotonic() - self._heard_at > idle_s:
                return Close(1008, f"no audio for {idle_s:g} s")
            if time.time() >= self._session.expires_at:
                return Close(1008, f"a session lasts {self._gateway.settings.session_max_s} s at most")
            if self._rtp.has_host:
                hosts_seen = time.monotonic()
            elif time.monotonic() - hosts_seen > NO_HOST_S:
                return NO_HOST
            with contextlib.suppress(RedisError):
                if not await self._lease.renew():
                    return LOST_LEASE
                session = await self._gateway.sessions.read(self._session.ssrc)
                if session is None or session.state is SessionState.CLOSED:
                    return CLOSED_ELSEWHERE
                if session.refused_at:
                    self._gateway.metrics.count("SessionsRefused")
                    return NO_PLACE
                await self._gateway.places.hold(session.ssrc, time.time() + HELD_S)
                if session.lapses_at:  # written by an older socket, behind this one's back
                    await self._gateway.sessions.resume(session)

    async def _leave(self) -> Close:
        await self._gateway.leaving.wait()
        return RESTART

    async def _measure(self) -> None:
        """Tell how long this caller waits; of sessions that this gateway began."""
        followers, loop, after = self._gateway.followers, asyncio.get_running_loop(), BEFORE_ALL
        trace = self._gateway.traces.begin(self._session, self._asked_at)
        if await followers.news(self._session.ssrc, after, ALREADY_SAID_S):
            return
        waits = Waits(self._gateway.metrics, trace, self._pacer.sent_at)
        while not waits.is_done:
            for place, said in await followers.news(self._session.ssrc, after, FOLLOW_S):
                after = place
                waits.hear(said, loop.time())


class Speed:
    """Tells a caller that sends faster than real time from one that catches up after a pause."""

    def __init__(self) -> None:
        self._began_at: float | None = None
        self._received_s = 0.0
        self._held_since: float | None = None

    def is_too_fast(self, frames: int, *, full: bool) -> bool:
        """Count frames that came, and return whether there have been too many for too long."""
        now = time.monotonic()
        self._began_at = self._began_at or now
        self._received_s += frames * FRAME_S
        ahead_s = self._received_s - (now - self._began_at)
        if not full or ahead_s < BUFFER_S / 2:
            self._held_since = None
            return False
        self._held_since = self._held_since or now
        return now - self._held_since > HELD_BACK_S
