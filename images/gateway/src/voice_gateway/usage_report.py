"""Writes the usage for each day to the archive, as a CSV file with a row per caller, for billing."""

import asyncio
import csv
import io
import logging
import random
from datetime import UTC, datetime, timedelta
from typing import Any

from obstore.exceptions import BaseError
from redis.asyncio import Redis
from redis.exceptions import RedisError

from voice_gateway.archive import Archive
from voice_runtime import state
from voice_runtime.replies import decode_fields, decode_text

REPORT_INTERVAL_S = 60.0
REPORT_DELAY = timedelta(minutes=15)
"""Time after midnight by which the usage of the evening's sessions has been counted."""
MAX_REPORT_AGE_DAYS = 2
"""Number of past days whose usage is written. The store keeps the usage for this time."""
CLAIM_TTL_S = 120
"""Lifetime of a claim, which exceeds the duration of all requests for an object, including retries."""
BATCH_SIZE = 256
AUDIO_COLUMNS = ("audio_s", "speech_s", "characters")
AGENT_COLUMNS = ("prompt_tokens", "answer_tokens", "spoken_characters")
REPORT_COLUMNS = ("date", "caller", *AUDIO_COLUMNS, *AGENT_COLUMNS)

log = logging.getLogger(__name__)


class UsageReporter:
    """Writes the usage for past days. Any gateway can write the file for any day.

    If a gateway fails, or the archive is unavailable, the gateway's claim expires, and another gateway writes the file.
    """

    def __init__(self, store: Redis, archive: Archive) -> None:
        self._store = store
        self._archive = archive

    async def run(self) -> None:
        """Write the files for past days until cancelled."""
        while True:
            try:
                await self.write_reports(datetime.now(UTC))
            except (BaseError, TimeoutError) as failure:
                reason = type(failure).__name__
                log.error("usage is not archived", extra={"fields": {"reason": reason}})  # noqa: TRY400  no stack
            except (RedisError, OSError):
                pass
            await asyncio.sleep(REPORT_INTERVAL_S * random.uniform(0.5, 1.5))  # noqa: S311  gateways take turns

    async def write_reports(self, now: datetime) -> None:
        """Write the files for past days that no gateway has written.

        Raises:
            BaseError: The archive does not respond, or rejects the request.
            TimeoutError: The archive does not respond in time.
        """
        newest = (now - REPORT_DELAY).date()
        for days in range(MAX_REPORT_AGE_DAYS, 0, -1):
            day = newest - timedelta(days=days)
            claim = state.build_usage_report_claim_key(day.isoformat())
            if not await self._store.set(claim, "1", nx=True, ex=CLAIM_TTL_S):
                continue
            if rows := await self._read_usage_rows(day.isoformat()):
                async with asyncio.timeout(CLAIM_TTL_S / 2):
                    await self._archive.write_usage(day, to_csv(rows))
            await self._store.expire(claim, state.USAGE_RETENTION_S)

    async def _read_usage_rows(self, day: str) -> list[dict[str, str]]:
        members: Any = await self._store.sunion(
            [state.build_day_callers_key(day), state.build_agent_day_callers_key(day)]
        )
        callers = sorted(map(decode_text, members))
        rows = []
        for begin in range(0, len(callers), BATCH_SIZE):
            batch = callers[begin : begin + BATCH_SIZE]
            async with self._store.pipeline(transaction=False) as pipe:
                for caller in batch:
                    pipe.hgetall(state.build_caller_usage_key(caller, day))
                    pipe.hgetall(state.build_agent_usage_key(caller, day))
                records = [decode_fields(record) for record in await pipe.execute()]
            rows += [
                {"date": day, "caller": caller, **audio_fields, **agent_fields}
                for caller, audio_fields, agent_fields in zip(batch, records[::2], records[1::2], strict=True)
            ]
        return rows


def to_csv(rows: list[dict[str, str]]) -> str:
    """Return rows as CSV. Seconds have two decimals, and missing values are 0."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(REPORT_COLUMNS)
    for row in rows:
        seconds = [f"{float(row.get(name, 0)):.2f}" for name in AUDIO_COLUMNS[:2]]
        counts = [row.get(name, "0") for name in (*AUDIO_COLUMNS[2:], *AGENT_COLUMNS)]
        writer.writerow([row["date"], row["caller"], *seconds, *counts])
    return file.getvalue()
