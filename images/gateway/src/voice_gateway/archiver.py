"""Writes transcripts of ended sessions to the archive. Any gateway can archive any session."""

import asyncio
import json
import logging
import random
import time
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from obstore.exceptions import BaseError
from redis.asyncio import Redis
from redis.exceptions import RedisError

from voice_gateway.archive import Archive, ArchivedTranscript, ArchiveEntry, iter_nonempty_finals
from voice_gateway.event_stream import FINALS_TIMEOUT_S, SETTLE_DELAY_S
from voice_runtime import state
from voice_runtime.sessions import SessionStore
from voice_runtime.transcripts import TranscriptStore

SCAN_INTERVAL_S = 1.0
MAX_SCANNED_SESSIONS = 64
BATCH_SIZE = 16
"""Maximum number of sessions that a gateway archives per iteration. Other gateways process further sessions."""
CLAIM_TTL_S = 60
"""Lifetime of a claim, which exceeds the duration of all requests for an object, including retries."""
INDEX_INTERVAL_S = 60
"""Interval at which one of the gateways writes pending entries. It results in at most 1,440 objects per day, plus one
per thousand sessions."""
INDEX_BATCH_SIZE = 1000
WRITE_TIMEOUT_S = 30.0
"""Timeout for writing an object, shorter than the lifetime of a claim."""

log = logging.getLogger(__name__)


class Archiver:
    """Archives the transcripts of ended sessions whose callers requested archiving.

    A gateway claims a session before archiving it, and removes the session afterwards. If the gateway fails, its claim
    expires, and another gateway writes the same object again. While the archive is unavailable, sessions wait for as
    long as the state store keeps their transcripts (``state.SESSION_RETENTION_S``). After that time, the transcripts
    are lost, and an error is logged.
    """

    def __init__(self, store: Redis, archive: Archive) -> None:
        self._store = store
        self._archive = archive
        self._sessions = SessionStore(store)
        self._transcripts = TranscriptStore(store)

    async def run(self) -> None:
        """Archive sessions until cancelled."""
        while True:
            await asyncio.sleep(SCAN_INTERVAL_S)
            try:
                await self.archive_batch()
                await self.write_pending_index_entries()
            except (BaseError, TimeoutError) as failure:
                reason = type(failure).__name__
                log.error("transcripts are not archived", extra={"fields": {"reason": reason}})  # noqa: TRY400  no stack
            except (RedisError, OSError):
                continue

    async def archive_batch(self) -> None:
        """Archive some of the ended sessions.

        Raises:
            BaseError: The archive does not respond, or rejects a request; remaining sessions are kept.
            TimeoutError: The archive does not respond in time.
        """
        candidates: Any = await self._store.zrangebyscore(
            state.SESSIONS_TO_ARCHIVE_KEY,
            "-inf",
            time.time() - SETTLE_DELAY_S,
            start=0,
            num=MAX_SCANNED_SESSIONS,
            withscores=True,
        )
        batch = random.sample(candidates, min(BATCH_SIZE, len(candidates)))
        results = await asyncio.gather(
            *(self._archive_with_claim(int(ssrc), ended_at) for ssrc, ended_at in batch), return_exceptions=True
        )
        for failure in results:
            if isinstance(failure, BaseException):
                raise failure

    async def _archive_with_claim(self, ssrc: int, ended_at: float) -> None:
        claim = state.build_archive_claim_key(ssrc)
        if not await self._store.set(claim, "1", nx=True, ex=CLAIM_TTL_S):
            return
        if await self._store.zscore(state.SESSIONS_TO_ARCHIVE_KEY, str(ssrc)) is None:
            return  # another gateway has archived it in the meantime
        if await self._archive_session(ssrc, ended_at):
            await self._store.zrem(
                state.SESSIONS_TO_ARCHIVE_KEY, str(ssrc)
            )  # the claim expires later, so no other gateway starts in the meantime
        else:
            await self._store.delete(claim)

    async def _archive_session(self, ssrc: int, ended_at: float) -> bool:
        """Archive a session if it is transcribed. Return False if the session must be retried."""
        session = await self._sessions.read(ssrc)
        if session is None:
            log.error("a transcript is lost: its session has expired unarchived", extra={"fields": {"ssrc": ssrc}})
            return True
        if not session.is_transcribed and time.time() - ended_at < FINALS_TIMEOUT_S:
            return False
        finals = list(iter_nonempty_finals(await self._transcripts.read_finals(ssrc)))
        if not finals:
            return True
        entry = ArchiveEntry.from_session(session, finals, ended_at)
        async with asyncio.timeout(WRITE_TIMEOUT_S):
            await self._archive.write(ArchivedTranscript.from_session(entry, finals))
        async with self._store.pipeline(transaction=True) as pipe:
            pipe.rpush(state.INDEX_ENTRIES_KEY, json.dumps(asdict(entry)))
            pipe.expire(state.INDEX_ENTRIES_KEY, state.ARCHIVE_INDEX_RETENTION_S)
            await pipe.execute()
        return True

    async def write_pending_index_entries(self) -> None:
        """Write pending index entries, unless another gateway has done so within the last minute."""
        if not await self._store.set(state.INDEX_CLAIM_KEY, "1", nx=True, ex=INDEX_INTERVAL_S):
            return
        async with asyncio.timeout(WRITE_TIMEOUT_S):  # the claim lasts longer, so no other gateway removes entries
            while entries := await self._store.lrange(state.INDEX_ENTRIES_KEY, 0, INDEX_BATCH_SIZE - 1):
                lines = [entry.decode() if isinstance(entry, bytes) else entry for entry in entries]
                await self._archive.write_index(lines, datetime.now(UTC))
                await self._store.ltrim(state.INDEX_ENTRIES_KEY, len(entries), -1)
