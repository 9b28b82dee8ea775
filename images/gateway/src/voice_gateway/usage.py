"""Counts the usage by callers, for billing and for a daily limit.

Usage is counted in the state store across all gateways, and logged once per session as a JSON object whose ``message``
is ``usage``. Days are in UTC; ``usage_report.py`` writes the usage of each day to the archive.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import RedisError

from voice_gateway.refusals import Refusal
from voice_gateway.subtitles import FileTranscript
from voice_runtime import state
from voice_runtime.metrics import Metrics
from voice_runtime.sessions import Session, SessionKind, SessionStore

FINALS_TIMEOUT_S = 30.0
"""Maximum wait for a session's last final transcript. Afterwards, the usage is logged without this transcript."""
POLL_INTERVAL_S = 0.5
CHUNK_DURATION_S = 0.1

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class UsageRecord:
    """Usage of a session or a file.

    Attributes:
        audio_s: Received audio, seconds.
        speech_s: Audio that the VAD tier classified as speech, seconds.
        characters: Characters of the final transcripts.
    """

    audio_s: float = 0.0
    speech_s: float = 0.0
    characters: int = 0


class UsageCounter:
    """Counts the usage by callers."""

    def __init__(self, store: Redis, metrics: Metrics, minutes_per_day: int) -> None:
        """Create the counters of a gateway.

        Args:
            minutes_per_day: Maximum audio per caller and day; 0 for no limit.
        """
        self._store = store
        self._sessions = SessionStore(store)
        self._metrics = metrics
        self._seconds_per_day = 60 * minutes_per_day
        self._report_tasks: set[asyncio.Task[None]] = set()

    async def check_quota(self, caller: str) -> None:
        """Raise an error if a caller may not send any more audio today.

        Raises:
            Refusal: The caller has used up its minutes.
        """
        if not self._seconds_per_day:
            return
        used: Any = await self._store.hget(state.build_caller_usage_key(caller, _get_current_day()), "audio_s")
        if float(used or 0) >= self._seconds_per_day:
            headers = {"Retry-After": str(86_400 - int(time.time()) % 86_400)}
            raise Refusal(429, "daily quota", self.quota_message, headers)

    @property
    def quota_message(self) -> str:
        """Message for a caller that has used up its minutes."""
        return f"the {self._seconds_per_day // 60} minutes that a caller has a day are used up; more at 00:00 UTC"

    async def count_audio(self, session: Session, audio_s: float) -> bool:
        """Count audio for a session, and return True if the caller may send more audio today."""
        await self._sessions.add_audio(session, audio_s)
        used = await self._add_amounts(session.caller, UsageRecord(audio_s=audio_s))
        return not self._seconds_per_day or used < self._seconds_per_day

    def schedule_report(self, session: Session, timeout_s: float) -> None:
        """Log the usage of a session when the session has ended and is transcribed.

        Nothing is logged if the caller reconnects.

        Args:
            timeout_s: Time after which the session ends unless the caller reconnects.
        """
        task = asyncio.get_running_loop().create_task(self._report_usage(session, timeout_s + FINALS_TIMEOUT_S))
        self._report_tasks.add(task)
        task.add_done_callback(self._report_tasks.discard)

    async def wait_for_reports(self, timeout_s: float) -> None:
        """Wait until the usage of all ended sessions is logged, or until the timeout."""
        if self._report_tasks and timeout_s > 0:
            await asyncio.wait(self._report_tasks, timeout=timeout_s)

    async def count_file(self, caller: str, channels: Sequence[FileTranscript]) -> None:
        """Count the transcribed part of a caller's file."""
        used = UsageRecord(
            audio_s=sum(transcript.duration_s for transcript in channels),
            speech_s=sum(transcript.speech_s for transcript in channels),
            characters=sum(len(transcript.text) for transcript in channels),
        )
        if used.audio_s:
            with contextlib.suppress(RedisError):
                await self._add_amounts(caller, used)
            self._log_usage(caller, "", used)

    async def _report_usage(self, session: Session, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        record: Session | None = None
        with contextlib.suppress(RedisError):
            while time.monotonic() < deadline:
                await asyncio.sleep(POLL_INTERVAL_S)
                record = await self._sessions.read(session.ssrc)
                if record is None or (record.is_over and record.is_transcribed):
                    break
            if record is None or not record.is_over or not await self._sessions.mark_usage_reported(session):
                return
            used = UsageRecord(record.audio_s, record.chunk_count * CHUNK_DURATION_S, record.characters)
            if used == UsageRecord():
                return
            # The gateway's sockets have already counted their audio.
            already_counted_s = used.audio_s if record.kind is SessionKind.GATEWAY else 0.0
            await self._add_amounts(session.caller, replace(used, audio_s=used.audio_s - already_counted_s))
            self._log_usage(session.caller, session.id, used)

    async def _add_amounts(self, caller: str, amounts: UsageRecord) -> float:
        """Add to a caller's usage for the day, and return the day's total audio in seconds."""
        day = _get_current_day()
        key, callers = state.build_caller_usage_key(caller, day), state.build_day_callers_key(day)
        async with self._store.pipeline(transaction=True) as pipe:
            pipe.hincrbyfloat(key, "audio_s", amounts.audio_s)
            pipe.hincrbyfloat(key, "speech_s", amounts.speech_s)
            pipe.hincrby(key, "characters", amounts.characters)
            pipe.sadd(callers, caller)
            for each in (key, callers):
                pipe.expire(each, state.USAGE_RETENTION_S)
            total, *_ = await pipe.execute()
        return float(total)

    def _log_usage(self, caller: str, session_id: str, amounts: UsageRecord) -> None:
        self._metrics.observe("AudioSeconds", amounts.audio_s)
        self._metrics.observe("SpeechSeconds", amounts.speech_s)
        self._metrics.observe("TranscribedCharacters", amounts.characters)
        fields = {
            "caller": caller,
            "session": session_id,
            "audio_s": round(amounts.audio_s, 2),
            "speech_s": round(amounts.speech_s, 2),
            "characters": amounts.characters,
        }
        log.info("usage", extra={"fields": fields})


def _get_current_day() -> str:
    return datetime.now(UTC).date().isoformat()
