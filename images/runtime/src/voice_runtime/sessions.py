"""Sessions in Valkey: who may send audio, and the progress of the transcript."""

import base64
import secrets
import time
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self

from redis.asyncio import Redis
from redis.asyncio.client import Pipeline

from voice_blueprint.contract.chunk import CHUNK_FRAME_SAMPLES
from voice_blueprint.contract.session_api import DEFAULT_END_OF_TURN_MS, SRTP_KEY_BYTES_BY_SUITE
from voice_blueprint.contract.state import SentAudioField, SessionField, TranscribedAudioField
from voice_runtime import state
from voice_runtime.media import DEFAULT_MEDIA_FORMAT, MediaFormat
from voice_runtime.redaction import Redaction
from voice_runtime.replies import decode_fields, decode_text
from voice_runtime.transcribed import write_transcription_progress

FRAME_S = CHUNK_FRAME_SAMPLES / 16_000


class SessionState(StrEnum):
    """Whether a session accepts audio."""

    OPEN = "open"
    CLOSED = "closed"


class SessionKind(StrEnum):
    """Transport of a session's audio."""

    GATEWAY = "gateway"
    EXTERNAL = "external"


@dataclass(frozen=True)
class Session:
    """A session's record.

    Attributes:
        id: Id in the API.
        caller: Caller who opened it.
        expires_at: Seconds since 1970 after which audio is rejected.
        reconnect_by: Seconds since 1970 at which the session ends if its audio socket was lost, otherwise 0.
        refused_at: Seconds since 1970 at which a full ASR host rejected its audio, or 0.
        begins_at: RTP timestamp of the first frame from its gateway; ``None`` if unknown.
        wrong_payload_count: Number of packets that do not match ``media``.
        srtp_key: Base64 of the master key and salt of a new external session. The key is not part of the record.
        end_of_turn_ms: Silence that ends a complete sentence.
        last_sequence: ``sequence`` of the last chunk that the VAD tier sent; -1 if none.
        chunk_count: Number of chunks that the VAD tier sent.
        last_transcribed_sequence: ``sequence`` of the last chunk that a final transcript covers; -1 if none.
        next_chunk_number: Number of the chunk after ``last_transcribed_sequence``; -1 if its utterance was aborted.
        lost_ms: Audio that never reached an engine.
        archived_from: Seconds since 1970 at which the session was opened, if its transcript is archived, otherwise 0.
        prompt: Words that are likely to occur.
        redact: Kinds of data redacted from transcripts.
        received_s: Audio received by its sockets, seconds.
        characters: Characters of its final transcripts.
        realtime: Settings with which a client of OpenAI's API connects, as JSON.
        last_sent_event: Id of the last event that was sent on an audio socket, or empty.
    """

    ssrc: int
    id: str
    state: SessionState
    kind: SessionKind
    caller: str
    expires_at: int
    reconnect_by: int = 0
    refused_at: int = 0
    srtp_key: str | None = None
    media: MediaFormat = DEFAULT_MEDIA_FORMAT
    language: str | None = None
    end_of_turn_ms: int = DEFAULT_END_OF_TURN_MS
    last_sequence: int = -1
    chunk_count: int = 0
    last_transcribed_sequence: int = -1
    next_chunk_number: int = 0
    lost_ms: int = 0
    begins_at: int | None = None
    archived_from: int = 0
    wrong_payload_count: int = 0
    prompt: str = ""
    redact: frozenset[Redaction] = frozenset()
    received_s: float = 0.0
    characters: int = 0
    realtime: str | None = None
    last_sent_event: str = ""

    @property
    def ends_at(self) -> int:
        """Seconds since 1970 at which the session ends, unless its caller closes it earlier."""
        return min(self.expires_at, self.reconnect_by or self.expires_at)

    @property
    def is_over(self) -> bool:
        """Whether the session accepts no more audio."""
        return self.state is SessionState.CLOSED or time.time() >= self.ends_at

    @property
    def audio_s(self) -> float:
        """Duration of the received audio in seconds.

        For an external session, it is the position of the last speech.
        """
        return self.received_s if self.kind is SessionKind.GATEWAY else (self.last_sequence + 1) * FRAME_S

    @property
    def srtp_suite(self) -> str | None:
        """Encryption suite of the packets, which follows from the length of the key; ``None`` for plain RTP."""
        size = len(base64.b64decode(self.srtp_key)) if self.srtp_key else 0
        return next((suite for suite, key_bytes in SRTP_KEY_BYTES_BY_SUITE.items() if key_bytes == size), None)

    @property
    def is_transcribed(self) -> bool:
        """Whether all sent speech has a final transcript."""
        return self.last_transcribed_sequence >= self.last_sequence

    @classmethod
    def from_fields(
        cls, ssrc: int, fields: dict[str, str], shipped: dict[str, str], transcribed: dict[str, str]
    ) -> Self | None:
        """Parse a record with its progress, or return ``None`` if the record is missing or invalid."""
        try:
            return cls(
                ssrc=ssrc,
                id=fields[SessionField.ID],
                state=SessionState(fields[SessionField.STATE]),
                kind=SessionKind(fields[SessionField.KIND]),
                caller=fields[SessionField.CALLER],
                expires_at=int(fields[SessionField.EXPIRES_AT]),
                reconnect_by=int(fields.get(SessionField.RECONNECT_DEADLINE, 0)),
                refused_at=int(transcribed.get(TranscribedAudioField.REFUSED_AT, 0)),
                media=MediaFormat.parse(fields.get(SessionField.MEDIA, str(DEFAULT_MEDIA_FORMAT))),
                language=fields.get(SessionField.LANGUAGE),
                end_of_turn_ms=int(fields.get(SessionField.END_OF_TURN_MS, DEFAULT_END_OF_TURN_MS)),
                archived_from=int(fields.get(SessionField.ARCHIVED_FROM, 0)),
                prompt=fields.get(SessionField.PROMPT, ""),
                redact=frozenset(map(Redaction, filter(None, fields.get(SessionField.REDACT, "").split(",")))),
                received_s=float(fields.get(SessionField.AUDIO_S, 0)),
                characters=int(transcribed.get(TranscribedAudioField.CHARACTERS, 0)),
                realtime=fields.get(SessionField.REALTIME),
                last_sent_event=fields.get(SessionField.LAST_SENT_EVENT, ""),
                last_sequence=int(shipped.get(SentAudioField.LAST_SEQUENCE, -1)),
                chunk_count=int(shipped.get(SentAudioField.CHUNKS, 0)),
                last_transcribed_sequence=int(transcribed.get(TranscribedAudioField.TRANSCRIBED_TO, -1)),
                next_chunk_number=int(transcribed.get(TranscribedAudioField.TRANSCRIBED_CHUNKS, 0)),
                lost_ms=int(transcribed.get(TranscribedAudioField.LOST_MS, 0)),
                wrong_payload_count=int(shipped.get(SentAudioField.WRONG_PAYLOAD, 0)),
                begins_at=int(fields[SessionField.BEGINS_AT]) if SessionField.BEGINS_AT in fields else None,
            )
        except (KeyError, ValueError):
            return None


def get_primary_language(tag: str) -> str:
    """Return the primary language of a tag such as ``de-CH`` (BCP 47), as models use it."""
    return tag.partition("-")[0].lower()


class TooManySessionsError(Exception):
    """A caller has the maximum number of active sessions."""


class SessionStore:
    """Creates, reads and closes sessions.

    A session whose record has expired, or was lost with a failed store, is not changed: a record that was created again
    would have no other fields, and possibly no expiry.
    """

    def __init__(self, store: Redis) -> None:
        self._store = store

    async def create(self, session: Session, *, max_sessions: int) -> bool:
        """Write the record of a new session, and return True unless another session has its SSRC.

        Raises:
            TooManySessionsError: The caller has ``max_sessions`` active sessions.
        """
        now = int(time.time())
        key_expires_at = session.expires_at + state.SESSION_RETENTION_S
        key = state.build_session_key(session.ssrc)
        # The identity is written first: the writer owns the SSRC, and the VAD tier admits nothing without the other
        # fields. It has an expiry from the start, since the client may repeat a completed command, or fail before it
        # writes the other fields.
        async with self._store.pipeline(transaction=True) as pipe:
            pipe.hsetnx(key, SessionField.ID, session.id)
            pipe.expireat(key, key_expires_at, nx=True)
            pipe.hget(key, SessionField.ID)
            *_, owner = await pipe.execute()
        if decode_text(owner) != session.id:
            return False
        async with self._store.pipeline(transaction=True) as pipe:
            pipe.zremrangebyscore(state.build_caller_sessions_key(session.caller), "-inf", now)
            _add_active_session(pipe, session, session.expires_at)
            pipe.zcard(state.build_caller_sessions_key(session.caller))
            *_, live = await pipe.execute()
        if live > max_sessions:
            await self._delete(session)
            raise TooManySessionsError(f"{max_sessions} sessions are open, the maximum; close one")
        async with self._store.pipeline(transaction=True) as pipe:
            pipe.hset(key, mapping=_build_gateway_fields(session))
            if session.srtp_key:
                pipe.set(state.build_srtp_entry_key(session.ssrc), session.srtp_key, exat=key_expires_at)
            if session.archived_from:
                pipe.zadd(state.SESSIONS_TO_ARCHIVE_KEY, {str(session.ssrc): session.expires_at})
                pipe.expireat(state.SESSIONS_TO_ARCHIVE_KEY, key_expires_at, gt=True)
                pipe.expireat(state.SESSIONS_TO_ARCHIVE_KEY, key_expires_at, nx=True)
            await pipe.execute()
        return True

    async def read(self, ssrc: int) -> Session | None:
        """Return a session, or ``None`` if the SSRC has none."""
        async with self._store.pipeline(transaction=False) as pipe:
            for key in (
                state.build_session_key(ssrc),
                state.build_sent_audio_key(ssrc),
                state.build_transcription_progress_key(ssrc),
            ):
                pipe.hgetall(key)
            return Session.from_fields(ssrc, *map(decode_fields, await pipe.execute()))

    async def read_srtp_key(self, ssrc: int) -> str | None:
        """Return the SRTP key of an open external session, as Base64."""
        key = await self._store.get(state.build_srtp_entry_key(ssrc))
        return decode_text(key) if key else None

    async def set_gateway(self, session: Session, gateway: str, begins_at: int) -> None:
        """Accept plain RTP only from a gateway's address.

        Args:
            begins_at: RTP timestamp of this socket's first frame; the session keeps the value of its first socket.
        """
        key = state.build_session_key(session.ssrc)
        if not await self._store.exists(key):
            return
        async with self._store.pipeline(transaction=True) as pipe:
            pipe.hsetnx(key, SessionField.BEGINS_AT, str(begins_at))
            pipe.hset(key, SessionField.GATEWAY, gateway)
            await pipe.execute()

    async def update(self, session: Session, **fields: str) -> None:
        """Write fields that change during a session, such as ``language`` and ``last_sent_event``."""
        key = state.build_session_key(session.ssrc)
        if await self._store.exists(key):
            await self._store.hset(key, mapping={SessionField(name): value for name, value in fields.items()})

    async def add_audio(self, session: Session, audio_s: float) -> None:
        """Count audio received by a session's socket."""
        key = state.build_session_key(session.ssrc)
        if await self._store.exists(key):
            await self._store.hincrbyfloat(key, SessionField.AUDIO_S, audio_s)

    async def mark_usage_reported(self, session: Session) -> bool:
        """Mark a session's usage as reported, and return True if it was not reported before."""
        key, report_id = state.build_session_key(session.ssrc), secrets.token_hex(8)
        if not await self._store.exists(key):
            return False
        # The reply of HSETNX is not used, since the client repeats a command whose reply was lost.
        async with self._store.pipeline(transaction=True) as pipe:
            pipe.hsetnx(key, SessionField.SETTLED, report_id)
            pipe.hget(key, SessionField.SETTLED)
            _, first_id = await pipe.execute()
        return decode_text(first_id) == report_id

    async def start_grace_period(self, session: Session, grace_s: int) -> None:
        """Let a session expire unless its caller reconnects within the grace period.

        A session that was closed in the meantime remains closed.
        """
        key = state.build_session_key(session.ssrc)
        if not await self._store.exists(key):
            return
        reconnect_by = int(time.time()) + grace_s
        async with self._store.pipeline(transaction=True) as pipe:
            pipe.hset(key, SessionField.RECONNECT_DEADLINE, str(reconnect_by))
            ends_at = {str(session.ssrc): min(reconnect_by, session.expires_at)}
            pipe.zadd(state.build_caller_sessions_key(session.caller), ends_at, xx=True)
            pipe.zadd(state.SESSIONS_TO_ARCHIVE_KEY, ends_at, xx=True, lt=True)
            await pipe.execute()

    async def extend_grace_period(self, session: Session, grace_s: int) -> bool:
        """Extend the grace period of an open session, and return True if the session is open.

        The session expires unless this method is called again within the grace period. If the session is no longer
        listed among its caller's active sessions, it is added again.

        Raises:
            WatchError: The session's record was changed at the same time, and nothing was extended.
        """
        key = state.build_session_key(session.ssrc)
        async with self._store.pipeline(transaction=True) as pipe:
            await pipe.watch(key)
            session_state: Any = await pipe.hget(key, SessionField.STATE)
            if session_state is None or decode_text(session_state) != SessionState.OPEN:
                return False
            reconnect_by = int(time.time()) + grace_s
            ends_at = min(reconnect_by, session.expires_at)
            pipe.multi()  # type: ignore[no-untyped-call]
            pipe.hset(key, SessionField.RECONNECT_DEADLINE, str(reconnect_by))
            _add_active_session(pipe, session, ends_at)
            pipe.zadd(state.SESSIONS_TO_ARCHIVE_KEY, {str(session.ssrc): ends_at}, xx=True)
            await pipe.execute()
        return True

    async def resume(self, session: Session) -> None:
        """Continue a session whose caller has reconnected."""
        key = state.build_session_key(session.ssrc)
        if not await self._store.exists(key):
            return
        async with self._store.pipeline(transaction=True) as pipe:
            pipe.hdel(key, SessionField.RECONNECT_DEADLINE)
            pipe.hdel(state.build_transcription_progress_key(session.ssrc), TranscribedAudioField.REFUSED_AT)
            _add_active_session(pipe, session, session.expires_at)
            pipe.zadd(state.SESSIONS_TO_ARCHIVE_KEY, {str(session.ssrc): session.expires_at}, xx=True)
            await pipe.execute()

    async def mark_refused(self, ssrc: int) -> None:
        """Record that a full host rejects a session's audio, so that the gateway can inform its caller."""
        if await self._store.exists(state.build_session_key(ssrc)):
            await write_transcription_progress(
                self._store, ssrc, {TranscribedAudioField.REFUSED_AT: str(int(time.time()))}
            )

    async def clear_refusal(self, ssrc: int) -> None:
        """Record that a host accepts the audio of a session that another host had rejected."""
        await self._store.hdel(state.build_transcription_progress_key(ssrc), TranscribedAudioField.REFUSED_AT)

    async def close(self, session: Session) -> None:
        """Reject further audio. Speech so far is still transcribed."""
        key = state.build_session_key(session.ssrc)
        if not await self._store.exists(key):
            return
        async with self._store.pipeline(transaction=True) as pipe:
            pipe.hset(key, SessionField.STATE, SessionState.CLOSED)
            pipe.expire(key, state.SESSION_RETENTION_S)
            pipe.delete(state.build_srtp_entry_key(session.ssrc))
            pipe.zrem(state.build_caller_sessions_key(session.caller), str(session.ssrc))
            # A second request has no effect, since the session ended with the first.
            pipe.zadd(state.SESSIONS_TO_ARCHIVE_KEY, {str(session.ssrc): int(time.time())}, xx=True, lt=True)
            await pipe.execute()

    async def _delete(self, session: Session) -> None:
        async with self._store.pipeline(transaction=True) as pipe:
            pipe.delete(state.build_session_key(session.ssrc), state.build_srtp_entry_key(session.ssrc))
            pipe.zrem(state.build_caller_sessions_key(session.caller), str(session.ssrc))
            await pipe.execute()


def _add_active_session(pipe: Pipeline, session: Session, ends_at: int) -> None:
    """Add a session to its caller's active sessions until a time in seconds since the epoch.

    The caller's key may have expired or been deleted in the meantime, so its expiry is set again.
    """
    caller_key, expires_at = (
        state.build_caller_sessions_key(session.caller),
        session.expires_at + state.SESSION_RETENTION_S,
    )
    pipe.zadd(caller_key, {str(session.ssrc): ends_at})
    pipe.expireat(caller_key, expires_at, gt=True)
    pipe.expireat(caller_key, expires_at, nx=True)


def _build_gateway_fields(session: Session) -> dict[Any, str]:
    """Return the fields that the gateway writes. The other fields belong to other tiers."""
    fields: dict[str, str | None] = {
        SessionField.STATE: session.state,
        SessionField.KIND: session.kind,
        SessionField.CALLER: session.caller,
        SessionField.EXPIRES_AT: str(session.expires_at),
        SessionField.MEDIA: str(session.media),
        SessionField.LANGUAGE: session.language,
        SessionField.END_OF_TURN_MS: str(session.end_of_turn_ms),
        SessionField.ARCHIVED_FROM: str(session.archived_from) if session.archived_from else None,
        SessionField.PROMPT: session.prompt or None,
        SessionField.REDACT: ",".join(sorted(session.redact)) or None,
        SessionField.REALTIME: session.realtime,
    }
    return {name: value for name, value in fields.items() if value is not None}
