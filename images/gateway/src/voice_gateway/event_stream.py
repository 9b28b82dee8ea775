"""Streams transcripts as server-sent events (HTML Standard, section 9.2)."""

import contextlib
import json
import time
from collections.abc import AsyncIterator

from redis.exceptions import RedisError
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from voice_blueprint.contract.session_api import HEARTBEATS_PER_IDLE_TIMEOUT, LAST_EVENT_ID_HEADER, TOKEN_HEADER
from voice_gateway.followers import Events
from voice_gateway.gateway import Gateway
from voice_gateway.refusals import Refusal
from voice_runtime.sessions import Session
from voice_runtime.transcripts import STREAM_START, EventId, EventKind, Transcript

CHECK_INTERVAL_S = 1.0
"""Interval at which a closed session or a stopping gateway is detected."""
RECONNECT_DELAY_MS = 1000

SETTLE_DELAY_S = 2.0
"""Time for which a closed session's stream remains open. Without BYE, the VAD tier may still send an utterance."""
FINALS_TIMEOUT_S = 30.0
"""Maximum time for which a closed session's stream waits for its last final transcripts."""

NO_SLOT_DETAIL = "no ASR host takes this session: what is said now is not transcribed; connect again"

EVENT_STREAM_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


async def stream_events(request: Request) -> Response:
    """Stream a session's transcript, from its start or after ``Last-Event-ID``."""
    gateway: Gateway = request.app.state.gateway
    session = await gateway.authenticate(request.path_params["id"], request.headers.get(TOKEN_HEADER))
    last = request.headers.get(LAST_EVENT_ID_HEADER)
    try:
        after = EventId.parse(last) if last else STREAM_START
    except ValueError as error:
        raise Refusal(400, "bad request", f"{LAST_EVENT_ID_HEADER}: {error}") from None
    with contextlib.ExitStack() as resources:
        resources.enter_context(gateway.count_connection())
        resources.enter_context(gateway.count_reader(session.ssrc))
        return ReleasingStreamingResponse(EventStream(gateway, session, after).iter_lines(), resources.pop_all())


class ReleasingStreamingResponse(StreamingResponse):
    """A streaming response that releases its resources when it ends for any reason."""

    def __init__(self, lines: AsyncIterator[str], resources: contextlib.ExitStack) -> None:
        super().__init__(lines, media_type="text/event-stream", headers=EVENT_STREAM_HEADERS)
        self._resources = resources

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._resources:
            await super().__call__(scope, receive, send)


class EventStream:
    """The events of a session for one reader."""

    def __init__(self, gateway: Gateway, session: Session, after: EventId) -> None:
        self._gateway = gateway
        self._session = session
        self._after = after
        self._closed_at: float | None = None
        self._refused_at = self._reported_at = self._lost_ms = 0
        self._wrong_payload = 0
        self._reported_wrong_payload = False
        self._heartbeat_interval_s = gateway.settings.idle_timeout_s / HEARTBEATS_PER_IDLE_TIMEOUT
        self._token_interval_s = gateway.settings.token_ttl_s / 2

    async def iter_lines(self) -> AsyncIterator[str]:
        """Yield the text of the stream until the session has ended, or until this process stops."""
        yield f"retry: {RECONNECT_DELAY_MS}\n\n"
        heartbeat_at = token_at = time.monotonic()
        while not self._gateway.shutting_down.is_set():
            if time.monotonic() >= token_at:
                yield self._build_token_event()
                token_at = time.monotonic() + self._token_interval_s
                heartbeat_at = time.monotonic() + self._heartbeat_interval_s
            if time.monotonic() >= heartbeat_at:
                yield ": still here\n\n"
                heartbeat_at = time.monotonic() + self._heartbeat_interval_s
            new_events, complete = await self.read_events()
            if self._refused_at > self._reported_at:
                self._reported_at = self._refused_at
                yield _format_event("error", {"error": "no capacity", "detail": NO_SLOT_DETAIL})
            if self._wrong_payload and not self._reported_wrong_payload:
                self._reported_wrong_payload = True
                yield _format_event("error", {"error": "wrong payload", "detail": self._build_wrong_payload_detail()})
            if complete is not None and not new_events:
                yield self._build_end_event(complete=complete)
                return
            read_at = time.monotonic()
            for position, transcript in new_events:
                if transcript.kind is EventKind.END:
                    await self._check_completion()
                    yield self._build_end_event(complete=True)
                    return
                data = transcript.model_dump_json(exclude_defaults=True)
                yield f"id: {position}\nevent: {transcript.kind}\ndata: {data}\n\n"
                self.advance(position)
                if transcript.kind is EventKind.FINAL and (trace := self._gateway.traces.get(self._session.ssrc)):
                    trace.add_span("deliver", read_at, time.monotonic(), utterance=str(transcript.utterance))
                heartbeat_at = time.monotonic() + self._heartbeat_interval_s
        yield _format_event("resume", {"last_event_id": str(self._after)})

    async def read_events(self) -> tuple[Events, bool | None]:
        """Return new events, and a flag that is True if all speech was transcribed.

        The flag is ``None`` until the session is over.
        """
        # Completion is checked before the events are read, since a final transcript is published before its audio
        # counts as transcribed.
        complete = await self._check_completion()
        try:
            return await self._wait_for_next_events(immediately=complete is not None), complete
        except RedisError:
            return [], None

    def advance(self, position: EventId) -> None:
        """Continue after a position."""
        self._after = position

    async def _wait_for_next_events(self, *, immediately: bool) -> list[tuple[EventId, Transcript]]:
        if immediately:
            return await self._gateway.transcripts.read(self._session.ssrc, self._after)
        return await self._gateway.followers.wait_for_next_events(
            self._session.ssrc, self._after, min(CHECK_INTERVAL_S, self._heartbeat_interval_s)
        )

    def _build_end_event(self, *, complete: bool) -> str:
        return _format_event("end", {"complete": complete and not self._lost_ms, "lost_ms": self._lost_ms})

    async def _check_completion(self) -> bool | None:
        """Return ``None`` while further events may follow; afterwards, return True if all speech was transcribed."""
        try:
            session = await self._gateway.sessions.read(self._session.ssrc)
        except RedisError:
            return None
        if session is None:
            return False
        self._refused_at, self._lost_ms = session.refused_at, session.lost_ms
        self._wrong_payload = session.wrong_payload_count
        if not session.is_over:
            return None
        now = time.monotonic()
        self._closed_at = self._closed_at or now
        closed_for = now - self._closed_at
        if closed_for >= SETTLE_DELAY_S and session.is_transcribed:
            return True
        return False if closed_for >= FINALS_TIMEOUT_S else None

    def _build_wrong_payload_detail(self) -> str:
        media = self._session.media
        return (
            f"{self._wrong_payload} packets are not {media.codec}/{media.rate} of {media.packet_ms} ms with payload "
            f"type {media.payload_type} and are not transcribed: send that, or open a session with another `media`"
        )

    def _build_token_event(self) -> str:
        """Return an event with a new token for reconnecting, since streams outlive tokens."""
        token, expires_at = self._gateway.tokens.create(self._session.id)
        return _format_event("token", {"token": token, "expires_at": expires_at.isoformat(timespec="seconds")})


def _format_event(name: str, data: dict[str, object]) -> str:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n"
