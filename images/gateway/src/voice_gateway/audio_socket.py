"""Receives a caller's audio over a WebSocket, and sends it to the VAD tier as RTP."""

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

from voice_gateway.audio import AudioFormat, Encoding, Framer, InvalidAudioError
from voice_gateway.decoder_process import IncrementalDecoder
from voice_gateway.gateway import MAX_CONTAINER_AUDIO_SOCKETS, Gateway
from voice_gateway.latencies import SocketLatencyRecorder
from voice_gateway.pacer import FRAME_S, MAX_REDUCED_BUFFER_S, Pacer
from voice_gateway.rtp import BYE, COMMIT, RtpSender
from voice_gateway.slot_reservations import RESERVATION_TTL_S
from voice_gateway.socket_lease import SocketLease
from voice_runtime import tasks
from voice_runtime.sessions import Session, SessionState
from voice_runtime.transcripts import STREAM_START

MAX_MESSAGE_BYTES = 64 * 1024
"""Maximum size of a message: 2 s of audio at 16 kHz. After a larger message, the server closes the socket with code
1009."""
SESSION_CHECK_INTERVAL_S = 2.0
"""Interval at which a socket checks its session, and renews its lease. Two intervals fit into the lifetime of the
lease."""
VAD_HOST_WAIT_TIMEOUT_S = 5.0
"""Maximum time for which a socket waits for a VAD host."""
EARLIER_EVENTS_TIMEOUT_S = 0.2
"""Maximum time for reading the existing transcripts of a session that is older than its socket. A new session has
none."""
EVENT_TIMEOUT_S = 60.0
NORMAL_CLOSURE = 1000
"""Close code that a caller sends to end its audio on purpose (RFC 6455, section 7.4.1). A page that is closed sends
1001, and a lost connection has no code."""
FLUSH_TIMEOUT_S = MAX_REDUCED_BUFFER_S + 2
"""Maximum time for sending buffered audio, if the socket closes before its caller has ended the audio."""
MAX_CLOSE_REASON_BYTES = 123
"""Maximum length of the reason in a close frame (RFC 6455, section 5.5)."""

log = logging.getLogger(__name__)


class StartMessage(AudioFormat):
    """First message of a socket whose audio is not PCM16 at 16 kHz."""

    model_config = ConfigDict(extra="forbid")

    type: Literal["start"]


class CommitMessage(BaseModel):
    """Requests the transcript so far, without waiting for a pause."""

    model_config = ConfigDict(extra="forbid")

    type: Literal["commit"]


class EndMessage(BaseModel):
    """Last message that a client sends on a socket."""

    model_config = ConfigDict(extra="forbid")

    type: Literal["end"]


CONTROL_MESSAGE_ADAPTER = TypeAdapter[StartMessage | CommitMessage | EndMessage](
    Annotated[StartMessage | CommitMessage | EndMessage, Field(discriminator="type")]
)


@dataclass(frozen=True)
class CloseReason:
    """Reason for closing a socket.

    Attributes:
        code: Code of RFC 6455, section 7.4, and IANA's registry.
        reason: Text of the reason, which the caller receives.
        ends_session: Whether the caller has finished; otherwise, the session only ends after its grace period.
    """

    code: int
    reason: str
    ends_session: bool = False


NORMAL_END = CloseReason(1000, "all audio has been taken", ends_session=True)
SESSION_CLOSED = CloseReason(1000, "the session was closed", ends_session=True)
CLIENT_DISCONNECTED = CloseReason(1006, "the connection broke off")
SERVICE_RESTART = CloseReason(1012, "this gateway is stopping; connect again with the newest token")
QUOTA_EXCEEDED = CloseReason(
    1008, "the minutes that this caller has a day are used up; more at 00:00 UTC", ends_session=True
)
LEASE_LOST = CloseReason(1008, "another socket has this session")
VAD_HOST_UNAVAILABLE = CloseReason(1013, "no VAD host takes audio; try again")
ASR_SLOT_UNAVAILABLE = CloseReason(1013, "no ASR host takes this session; try again")
DECODER_UNAVAILABLE = CloseReason(
    1013, f"this gateway decodes {MAX_CONTAINER_AUDIO_SOCKETS} containers at a time; try again, or send pcm16 or opus"
)


class AudioSocket:
    """Receives a session's audio, and monitors the session.

    Attributes:
        close_reasons_sent_after_flush: Reasons for which the close frame is sent only after all audio has been
            forwarded. The caller may then open another socket.
    """

    close_reasons_sent_after_flush: tuple[CloseReason, ...] = (NORMAL_END, SERVICE_RESTART)

    def __init__(
        self, gateway: Gateway, websocket: WebSocket, session: Session, lease: SocketLease, frame_number: int
    ) -> None:
        self._gateway = gateway
        self._websocket = websocket
        self._session = session
        self._lease = lease
        self._rtp = RtpSender(session.ssrc, gateway.settings.rtp_port, gateway.fleet, frame_number)
        self._pacer = Pacer(self._rtp.send, gateway.backlog)
        self._format = AudioFormat()
        self._framer: Framer | None = None
        self._container: IncrementalDecoder | None = None
        self._received_frames = 0
        """Number of received frames, except those that were cleared before they were sent."""
        self._counted_frames = 0
        """Number of these frames that are already counted as the caller's usage."""
        self._requested_at: float = getattr(websocket.state, "requested_at", time.monotonic())
        self._received_at = time.monotonic()

    async def serve(self) -> None:
        """Serve the socket until either side closes it."""
        closing_tasks = [
            asyncio.create_task(each)
            for each in (
                self._receive_messages(),
                self._monitor_session(),
                self._wait_for_shutdown(),
                *self._create_additional_tasks(),
            )
        ]
        measurement = asyncio.create_task(self._measure_transcript_latency())
        try:
            done, _ = await asyncio.wait(closing_tasks, return_when=asyncio.FIRST_COMPLETED)
            await self._end(next(iter(done)).result())
        finally:
            await tasks.cancel_tasks((*closing_tasks, measurement))
            self._gateway.traces.end(self._session)
            if self._container:
                self._gateway.container_slots.release()
                await self._container.stop()
            self._pacer.close()
            self._rtp.close()

    def _create_additional_tasks(self) -> Iterable[Coroutine[None, None, CloseReason]]:
        """Return further tasks that may end the socket."""
        return ()

    async def _end(self, close: CloseReason) -> None:
        if close not in (*self.close_reasons_sent_after_flush, CLIENT_DISCONNECTED):
            await self._send_close(close)
        if close.ends_session:
            self._send_notice(BYE)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._pacer.wait_until_empty(), FLUSH_TIMEOUT_S)
        try:
            await self._release_session(close)
        except RedisError:
            log.exception("session could not be closed", extra={"fields": {"ssrc": self._session.ssrc}})
        await self._finish_before_close(close)
        log.info("socket closed", extra={"fields": {"ssrc": self._session.ssrc, "code": close.code}})
        if close in self.close_reasons_sent_after_flush:
            await self._send_close(close)

    async def _finish_before_close(self, close: CloseReason) -> None:
        """Complete the work between the release of the session and the notification of the caller."""

    async def _count_audio(self) -> bool:
        """Count the audio since the last call, and return True if the caller may send more audio today."""
        frames, self._counted_frames = self._received_frames - self._counted_frames, self._received_frames
        return await self._gateway.usage.count_audio(self._session, frames * FRAME_S)

    async def _release_session(self, close: CloseReason) -> None:
        with contextlib.suppress(RedisError):
            await self._count_audio()
        grace_s = 0.0 if close.ends_session else self._gateway.settings.reconnect_grace_s
        self._gateway.usage.schedule_report(self._session, grace_s)
        sessions, reservations = self._gateway.sessions, self._gateway.reservations
        if close.ends_session:
            await sessions.close(self._session)
            await reservations.release(self._session.ssrc)
        elif await self._lease.is_held():
            grace_s = self._gateway.settings.reconnect_grace_s
            await sessions.start_grace_period(self._session, grace_s)
            await reservations.release(self._session.ssrc, grace_s)

    async def _send_close(self, close: CloseReason) -> None:
        # The caller may have disconnected first.
        with contextlib.suppress(WebSocketDisconnect, RuntimeError):
            await self._websocket.close(close.code, close.reason)

    async def _receive_messages(self) -> CloseReason:
        """Receive messages until the caller ends the audio, disconnects, or sends an invalid message."""
        try:
            while True:
                await self._pacer.wait_until_not_full()
                # A timeout here would need two timers per message; `_monitor_session` checks the clock.
                message = await self._websocket.receive()
                self._received_at = time.monotonic()
                close = await self._handle_message(message)
                if close:
                    return await self._flush(close)
        except InvalidAudioError as error:
            return CloseReason(1007, _truncate_reason(str(error)))

    async def _flush(self, close: CloseReason) -> CloseReason:
        """Wait until all audio that the caller has sent ahead of real time has been forwarded."""
        if close in (NORMAL_END, CLIENT_DISCONNECTED):
            if self._container:
                await self._container.finish()
            await self._pacer.wait_until_empty()
        return close

    async def _handle_message(self, message: Message) -> CloseReason | None:
        if message["type"] == "websocket.disconnect":
            return NORMAL_END if message["code"] == NORMAL_CLOSURE else CLIENT_DISCONNECTED
        audio: bytes | None = message.get("bytes")
        return await self._handle_control_message(message["text"]) if audio is None else await self._add_audio(audio)

    async def _add_audio(self, audio: bytes) -> CloseReason | None:
        if self._format.encoding is not Encoding.CONTAINER:
            self._send_audio(audio)
            return None
        if self._container is None:
            if self._gateway.container_slots.locked():
                return DECODER_UNAVAILABLE
            await self._gateway.container_slots.acquire()
            self._container = IncrementalDecoder(self._gateway.settings.session_max_s, self._send_decoded_audio)
        await self._container.add(audio)
        return None

    def _send_audio(self, audio: bytes) -> None:
        """Send audio in frames.

        Raises:
            InvalidAudioError: The bytes are not audio of the format.
        """
        self._framer = self._framer or Framer(self._format)
        self._enqueue_frames(self._framer.push(audio))

    async def _send_decoded_audio(self, samples: bytes) -> None:
        await self._pacer.wait_until_not_full()
        self._send_audio(samples)

    def _enqueue_frames(self, frames: list[bytes]) -> None:
        self._received_frames += len(frames)
        self._pacer.put(frames)

    async def _handle_control_message(self, text: str) -> CloseReason | None:
        try:
            message = CONTROL_MESSAGE_ADAPTER.validate_json(text)
        except ValidationError as error:
            problem = error.errors(include_url=False, include_input=False)[0]
            field = ".".join(map(str, problem["loc"]))
            return CloseReason(
                1003, _truncate_reason(f"text is for start, commit and end only: {field} {problem['msg']}")
            )
        if isinstance(message, EndMessage):
            return NORMAL_END
        if isinstance(message, CommitMessage):
            await self._commit_audio()
            return None
        if self._framer is not None:
            return CloseReason(1003, "`start` comes once, before any audio")
        self._format = message
        self._framer = Framer(message)
        return None

    async def _commit_audio(self) -> None:
        """Request a final transcript of the speech so far."""
        if self._container:
            await self._container.wait_until_read()
        self._send_notice(COMMIT)

    def _send_notice(self, notice: bytes) -> None:
        """Send a notice after all received audio."""
        if self._framer:
            self._enqueue_frames(self._framer.flush())
            self._framer = Framer(self._format)
        self._pacer.put([notice])

    async def _monitor_session(self) -> CloseReason:
        """Renew the socket's lease on its session, and detect the end of the session."""
        host_seen_at, idle_s = time.monotonic(), self._gateway.settings.idle_timeout_s
        while True:
            await asyncio.sleep(SESSION_CHECK_INTERVAL_S)
            if self._is_idle():
                return CloseReason(1008, f"no audio for {idle_s:g} s")
            if time.time() >= self._session.expires_at:
                return CloseReason(1008, f"a session lasts {self._gateway.settings.session_max_s} s at most")
            if self._rtp.has_host:
                host_seen_at = time.monotonic()
            elif time.monotonic() - host_seen_at > VAD_HOST_WAIT_TIMEOUT_S:
                return VAD_HOST_UNAVAILABLE
            with contextlib.suppress(RedisError):
                if close := await self._renew_lease_and_slot():
                    return close

    async def _renew_lease_and_slot(self) -> CloseReason | None:
        """Renew the lease and the slot. Return a reason for closing if the socket cannot continue."""
        if not await self._lease.renew():
            return LEASE_LOST
        session = await self._gateway.sessions.read(self._session.ssrc)
        if session is None or session.state is SessionState.CLOSED:
            return SESSION_CLOSED
        if session.refused_at:
            self._gateway.metrics.count("SessionsRefused")
            return ASR_SLOT_UNAVAILABLE
        if not await self._count_audio():
            return QUOTA_EXCEEDED
        await self._gateway.reservations.extend(session.ssrc, time.time() + RESERVATION_TTL_S)
        if session.reconnect_by:  # an older socket has set it in the meantime
            await self._gateway.sessions.resume(session)
        return None

    def _is_idle(self) -> bool:
        if not self._pacer.is_empty:
            self._received_at = time.monotonic()  # audio that arrived ahead of real time is still being sent
        return time.monotonic() - self._received_at > self._gateway.settings.idle_timeout_s

    async def _wait_for_shutdown(self) -> CloseReason:
        await self._gateway.shutting_down.wait()
        return SERVICE_RESTART

    async def _measure_transcript_latency(self) -> None:
        """Measure how long this caller waits for transcripts, unless the session already had transcripts."""
        followers, loop, after = self._gateway.followers, asyncio.get_running_loop(), STREAM_START
        trace = self._gateway.traces.begin(self._session, self._requested_at)
        if await followers.wait_for_next_events(self._session.ssrc, after, EARLIER_EVENTS_TIMEOUT_S):
            return
        waits = SocketLatencyRecorder(self._gateway.metrics, trace, self._pacer.get_sent_time)
        while not waits.is_done:
            for position, transcript in await followers.wait_for_next_events(
                self._session.ssrc, after, EVENT_TIMEOUT_S
            ):
                after = position
                waits.record(transcript, loop.time())


def _truncate_reason(text: str) -> str:
    """Return the part of a reason that fits into a close frame."""
    return text.encode()[:MAX_CLOSE_REASON_BYTES].decode(errors="ignore")
