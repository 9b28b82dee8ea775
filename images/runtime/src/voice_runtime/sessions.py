"""Sessions as Valkey has them: who may send audio, and how far its transcript has come."""

import base64
import time
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self

from redis.asyncio import Redis

from blueprint.contract.session_api import END_OF_TURN_MS, SRTP_SUITES
from blueprint.contract.state import SessionField
from voice_runtime import state
from voice_runtime.media import OF_GATEWAYS, Media
from voice_runtime.replies import texts


class SessionState(StrEnum):
    """Whether a session takes audio."""

    OPEN = "open"
    CLOSED = "closed"


class SessionKind(StrEnum):
    """How a session's audio comes."""

    GATEWAY = "gateway"
    EXTERNAL = "external"


@dataclass(frozen=True)
class Session:
    """A session's record.

    Attributes:
        id: Its name in the API.
        caller: Who opened it.
        expires_at: Seconds since 1970 after which no audio is taken.
        lapses_at: Seconds since 1970 at which it is over, where its audio socket has broken off; 0: it has not.
        refused_at: Seconds since 1970 at which a full ASR host did not take its audio; 0: none has refused.
        begins_at: RTP timestamp of its first frame; ``None``: none is known.
        srtp_key: Base64 of master key and salt; of external sessions only.
        end_of_turn_ms: Silence that ends a finished sentence.
        last_sequence: ``sequence`` of the last chunk that the VAD tier shipped; -1: none yet.
        chunks: That the VAD tier has shipped.
        transcribed_to: ``sequence`` of the last chunk that a final transcript covers; -1: none yet.
        transcribed_chunks: Number of the chunk behind that one; -1: its utterance broke off.
        lost_ms: Audio that never came to an engine.
        told: Id of the last event that was told on an audio socket; empty: none was.
    """

    ssrc: int
    id: str
    state: SessionState
    kind: SessionKind
    caller: str
    expires_at: int
    lapses_at: int = 0
    refused_at: int = 0
    srtp_key: str | None = None
    media: Media = OF_GATEWAYS
    language: str | None = None
    end_of_turn_ms: int = END_OF_TURN_MS
    last_sequence: int = -1
    chunks: int = 0
    transcribed_to: int = -1
    transcribed_chunks: int = 0
    lost_ms: int = 0
    begins_at: int | None = None
    told: str = ""

    @property
    def is_over(self) -> bool:
        """Whether it takes no audio any more."""
        ends_at = min(self.expires_at, self.lapses_at or self.expires_at)
        return self.state is SessionState.CLOSED or time.time() >= ends_at

    @property
    def srtp_suite(self) -> str | None:
        """What its packets are encrypted with, as the length of its key says; ``None``: plain RTP."""
        size = len(base64.b64decode(self.srtp_key)) if self.srtp_key else 0
        return next((suite for suite, key_bytes in SRTP_SUITES.items() if key_bytes == size), None)

    @property
    def all_transcribed(self) -> bool:
        """Whether nothing that was shipped still waits for its final transcript."""
        return self.transcribed_to >= self.last_sequence

    @classmethod
    def of(cls, ssrc: int, read: dict[str, str]) -> Self | None:
        """Read a record; ``None`` when there is none, or when it holds no session."""
        try:
            return cls(
                ssrc=ssrc,
                id=read[SessionField.ID],
                state=SessionState(read[SessionField.STATE]),
                kind=SessionKind(read[SessionField.KIND]),
                caller=read[SessionField.CALLER],
                expires_at=int(read[SessionField.EXPIRES_AT]),
                lapses_at=int(read.get(SessionField.LAPSES_AT, 0)),
                refused_at=int(read.get(SessionField.REFUSED_AT, 0)),
                srtp_key=read.get(SessionField.SRTP_KEY),
                media=Media.of(read.get(SessionField.MEDIA, str(OF_GATEWAYS))),
                language=read.get(SessionField.LANGUAGE),
                end_of_turn_ms=int(read.get(SessionField.END_OF_TURN_MS, END_OF_TURN_MS)),
                told=read.get(SessionField.TOLD, ""),
                last_sequence=int(read.get(SessionField.LAST_SEQUENCE, -1)),
                chunks=int(read.get(SessionField.CHUNKS, 0)),
                transcribed_to=int(read.get(SessionField.TRANSCRIBED_TO, -1)),
                transcribed_chunks=int(read.get(SessionField.TRANSCRIBED_CHUNKS, 0)),
                lost_ms=int(read.get(SessionField.LOST_MS, 0)),
                begins_at=int(read[SessionField.BEGINS_AT]) if SessionField.BEGINS_AT in read else None,
            )
        except (KeyError, ValueError):
            return None


def primary_language(tag: str) -> str:
    """Return the language of a tag such as ``de-CH`` (BCP 47), as models name it."""
    return tag.partition("-")[0].lower()


class TooManySessionsError(Exception):
    """A caller has as many live sessions as it may have."""


class Sessions:
    """Makes, reads and closes sessions."""

    def __init__(self, store: Redis) -> None:
        self._store = store

    async def create(self, session: Session, *, most_of_caller: int) -> bool:
        """Write the record of a new session, and return whether its SSRC was free.

        Raises:
            TooManySessionsError: The caller has ``most_of_caller`` live sessions.
        """
        now = int(time.time())
        kept_until = session.expires_at + state.SESSION_KEPT_S
        key, of_caller = state.session(session.ssrc), state.caller_sessions(session.caller)
        # The identity goes in first: whoever sets it owns the SSRC, and the VAD tier lets nothing in without the rest.
        # It expires from the beginning: the client may ask again for what was done, or never come to the rest.
        async with self._store.pipeline(transaction=True) as pipe:
            pipe.hsetnx(key, SessionField.ID, session.id)
            pipe.expireat(key, kept_until, nx=True)
            owned, _ = await pipe.execute()
        if not owned:
            return False
        async with self._store.pipeline(transaction=True) as pipe:
            pipe.zremrangebyscore(of_caller, "-inf", now)
            pipe.zadd(of_caller, {str(session.ssrc): session.expires_at})
            pipe.zcard(of_caller)
            pipe.expireat(of_caller, kept_until, gt=True)
            pipe.expireat(of_caller, kept_until, nx=True)
            _, _, live, _, _ = await pipe.execute()
        if live > most_of_caller:
            await self._forget(session)
            raise TooManySessionsError(f"{most_of_caller} sessions are live; close one")
        await self._store.hset(key, mapping=_fields(session))
        return True

    async def read(self, ssrc: int) -> Session | None:
        """Return a session, or ``None`` when there is none of that SSRC."""
        return Session.of(ssrc, texts(await self._store.hgetall(state.session(ssrc))))

    async def take_audio_from(self, session: Session, gateway: str, begins_at: int) -> None:
        """Let in plain RTP from a gateway's address, and from no other.

        Args:
            begins_at: RTP timestamp of the first frame that this socket will send; the session's first one counts.
        """
        key = state.session(session.ssrc)
        async with self._store.pipeline(transaction=True) as pipe:
            pipe.hsetnx(key, SessionField.BEGINS_AT, str(begins_at))
            pipe.hset(key, SessionField.GATEWAY, gateway)
            await pipe.execute()

    async def note(self, session: Session, **fields: str) -> None:
        """Write fields of a session that its caller settles while it lasts, such as ``language`` and ``told``."""
        key = state.session(session.ssrc)
        # A record that has expired is not made anew: it would never expire.
        if await self._store.exists(key):
            await self._store.hset(key, mapping={SessionField(name): value for name, value in fields.items()})

    async def lapse(self, session: Session, grace_s: int) -> None:
        """Let a session whose caller is gone end by itself, unless the caller is back within the grace period."""
        lapses_at = int(time.time()) + grace_s
        async with self._store.pipeline(transaction=True) as pipe:
            pipe.hset(state.session(session.ssrc), SessionField.LAPSES_AT, str(lapses_at))
            pipe.zadd(state.caller_sessions(session.caller), {str(session.ssrc): min(lapses_at, session.expires_at)})
            await pipe.execute()

    async def resume(self, session: Session) -> None:
        """Go on with a session whose caller is back."""
        async with self._store.pipeline(transaction=True) as pipe:
            pipe.hdel(state.session(session.ssrc), SessionField.LAPSES_AT, SessionField.REFUSED_AT)
            pipe.zadd(state.caller_sessions(session.caller), {str(session.ssrc): session.expires_at})
            await pipe.execute()

    async def refuse(self, ssrc: int) -> None:
        """Say that a full host does not take a session's audio, for the gateway to tell its caller."""
        key = state.session(ssrc)
        # A record that has expired is not made anew: it would never expire.
        if await self._store.exists(key):
            await self._store.hset(key, SessionField.REFUSED_AT, str(int(time.time())))

    async def accept(self, ssrc: int) -> None:
        """Say that a host takes the audio of a session that another had refused."""
        await self._store.hdel(state.session(ssrc), SessionField.REFUSED_AT)

    async def close(self, session: Session) -> None:
        """Let no more audio in. What has been said is still transcribed."""
        async with self._store.pipeline(transaction=True) as pipe:
            pipe.hset(state.session(session.ssrc), SessionField.STATE, SessionState.CLOSED)
            pipe.expire(state.session(session.ssrc), state.SESSION_KEPT_S)
            pipe.zrem(state.caller_sessions(session.caller), str(session.ssrc))
            await pipe.execute()

    async def _forget(self, session: Session) -> None:
        async with self._store.pipeline(transaction=True) as pipe:
            pipe.delete(state.session(session.ssrc))
            pipe.zrem(state.caller_sessions(session.caller), str(session.ssrc))
            await pipe.execute()


def _fields(session: Session) -> dict[Any, str]:
    """Return what the gateway writes; the rest of the record is other tiers'."""
    fields: dict[str, str | None] = {
        SessionField.STATE: session.state,
        SessionField.KIND: session.kind,
        SessionField.CALLER: session.caller,
        SessionField.EXPIRES_AT: str(session.expires_at),
        SessionField.SRTP_KEY: session.srtp_key,
        SessionField.MEDIA: str(session.media),
        SessionField.LANGUAGE: session.language,
        SessionField.END_OF_TURN_MS: str(session.end_of_turn_ms),
    }
    return {name: value for name, value in fields.items() if value is not None}
