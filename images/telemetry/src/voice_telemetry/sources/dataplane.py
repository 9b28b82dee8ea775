"""Reads the VAD data plane's counters from its control socket."""

import asyncio
import json
from collections import deque
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from voice_blueprint.contract.metrics import DataPlaneEvent, DropReason, NetworkAllowance
from voice_telemetry.sample import Sample
from voice_telemetry.sources import SourceError

_COUNTERS_REQUEST = json.dumps({"command": "counters"}).encode() + b"\n"
_MAX_RESPONSE_BYTES = 1 << 20
SUSTAINED_READING_COUNT = 10
"""Number of readings, one per second, whose minimum represents a sustained value."""


class VadCounters(BaseModel):
    """Number of frames that the VAD has classified since the program's start."""

    frames: int
    silent_frames: int
    stopped: int


class DataPlaneCounters(BaseModel):
    """The published part of the data plane's response."""

    sessions: int
    max_sessions: int
    rx_ring_percent: float
    drops: dict[str, int]
    events: dict[str, dict[str, int]]
    vad: VadCounters

    def get_event_count(self, event: DataPlaneEvent) -> int:
        part, name = event.split(".")
        return self.events.get(part, {}).get(name, 0)

    @property
    def allowances(self) -> dict[str, int]:
        """ENA's allowance counters, which are present if DPDK owns the interface instead of the kernel."""
        return self.events.get("allowances", {})


class DataPlaneSource:
    """Source of the data plane's values and its counter increments."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._previous: DataPlaneCounters | None = None
        self._ring_percentages: deque[float] = deque(maxlen=SUSTAINED_READING_COUNT)

    async def read(self) -> list[Sample]:
        """Return ring occupancy, sessions and their share of the maximum, and the increments since the last reading."""
        now, before = DataPlaneCounters.model_validate(await self._query_counters()), self._previous
        self._previous = now
        self._ring_percentages.append(now.rx_ring_percent)
        samples = [
            Sample("RxRingOccupancy", now.rx_ring_percent),
            Sample("VadSessions", now.sessions),
            Sample("SlotsTaken", 100 * now.sessions / now.max_sessions),
            Sample("VadStopped", now.vad.stopped),
        ]
        if len(self._ring_percentages) == SUSTAINED_READING_COUNT:
            samples.append(Sample("RxRingSustained", min(self._ring_percentages)))
        # At the first reading, the start of the counters is unknown; after a restart, the counters start again from 0.
        if before is None or now.vad.frames < before.vad.frames:
            return samples
        samples += [
            Sample(
                "RxDropped", _calculate_counter_increase(now.drops.get(reason, 0), before.drops.get(reason, 0)), reason
            )
            for reason in DropReason
        ]
        samples += [
            Sample(
                "DataPlaneEvents",
                _calculate_counter_increase(now.get_event_count(event), before.get_event_count(event)),
                event,
            )
            for event in DataPlaneEvent
        ]
        samples += [
            Sample(
                "AllowanceExceeded",
                _calculate_counter_increase(now.allowances[allowance], before.allowances[allowance]),
                allowance,
            )
            for allowance in NetworkAllowance
            if allowance in now.allowances.keys() & before.allowances.keys()
        ]
        if judged := now.vad.frames - before.vad.frames:
            silent = _calculate_counter_increase(now.vad.silent_frames, before.vad.silent_frames)
            samples.append(Sample("SilenceDropped", 100 * silent / judged))
        return samples

    async def close(self) -> None:
        """Do nothing, since nothing stays open between readings."""

    async def _query_counters(self) -> Any:  # noqa: ANN401  JSON
        try:
            reader, writer = await asyncio.open_unix_connection(str(self._socket), limit=_MAX_RESPONSE_BYTES)
        except OSError as error:
            raise SourceError(f"the data plane is not there: {self._socket}: {error.strerror}") from None
        try:
            writer.write(_COUNTERS_REQUEST)
            await writer.drain()
            answer = json.loads(await reader.readline())
        except (OSError, ValueError) as error:
            raise SourceError(f"the data plane does not answer: {error}") from None
        finally:
            writer.close()
        if not isinstance(answer, dict) or not answer.get("ok"):
            raise SourceError(f"the data plane refuses: {str(answer)[:200]}")
        return answer["result"]


def _calculate_counter_increase(now: int, before: int) -> int:
    return max(0, now - before)
