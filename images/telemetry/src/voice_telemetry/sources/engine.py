"""Reads metrics of the host's engine: queues over HTTP, free slots from the registry, start-up phases from a file."""

import asyncio
from pathlib import Path
from typing import Any

import httpx2
from redis.asyncio import Redis
from redis.exceptions import RedisError

from voice_blueprint.contract.metrics import LossReason, StartPhase
from voice_blueprint.contract.network import Tier
from voice_runtime import state
from voice_runtime.hosts import Host
from voice_runtime.replies import decode_fields
from voice_telemetry.sample import Sample
from voice_telemetry.sources import SourceError

ENGINE_METRICS = ("EncoderQueueDepth", "DecoderQueueDepth", "RealTimeFactor", "EngineStuck")
"""Metrics that the engine reports under their own names."""

_ENGINE_TIMEOUT_S = 0.5
_STORE_TIMEOUT_S = 0.3
"""Timeout of a read from the store, whose client would retry for seconds. Together with the engine's response, the read
takes less than the interval of one second, so that the engine's values are published while the store is unavailable."""


class EngineSource:
    """Source of values from the engine, and from the registry's record of the engine's host."""

    def __init__(self, url: str, store: Redis, host: str, start_phases: Path) -> None:
        self._http = httpx2.AsyncClient(timeout=_ENGINE_TIMEOUT_S)
        self._url = url
        self._store = store
        self._host = host
        self._start_phases_file = start_phases
        self._is_start_reported = False
        self._last_losses: dict[LossReason, int] | None = None

    async def read(self) -> list[Sample]:
        """Return queue depths, real-time factor, losses and slots. Return the phases of the host's start once."""
        status = await self._query_status()
        samples = [Sample(name, value) for name in ENGINE_METRICS if (value := status.get(name)) is not None]
        samples += self._read_losses(status)
        samples += await self._read_slots()
        if not self._is_start_reported:
            samples += await asyncio.to_thread(self._read_start_phases)
        return samples

    async def close(self) -> None:
        """Close both connections."""
        await self._http.aclose()
        await self._store.aclose()

    async def _query_status(self) -> dict[str, Any]:
        try:
            answer = await self._http.get(self._url)
            answer.raise_for_status()
            status = answer.json()
        except (httpx2.HTTPError, ValueError) as error:
            raise SourceError(f"the engine does not answer {self._url}: {str(error) or type(error).__name__}") from None
        if not isinstance(status, dict):
            raise SourceError(f"the engine answers no JSON object: {str(status)[:100]}")
        return status

    def _read_losses(self, status: dict[str, Any]) -> list[Sample]:
        """Return the losses since the last reading. A restarted engine counts from 0."""
        counters = status.get("counters", {})
        lost = {loss: _get_missing_slot_count(counters.get(loss, 0)) for loss in LossReason}
        before, self._last_losses = self._last_losses, lost
        if before is None:
            return []
        return [Sample("SpeechLost", max(0, count - before[loss]), loss) for loss, count in lost.items()]

    async def _read_slots(self) -> list[Sample]:
        try:
            async with asyncio.timeout(_STORE_TIMEOUT_S):
                fields = await self._store.hgetall(state.build_host_key(Tier.ASR, self._host))
        except (RedisError, OSError):
            return []
        host = Host.from_fields(self._host, decode_fields(fields))
        if host is None:
            return []
        free = [Sample("FreeSlots", host.free_slots)]
        # A host that does not report its total slots is neither full nor empty.
        return [*free, Sample("SlotsTaken", 100 * (1 - host.free_slots / host.slots))] if host.slots else free

    def _read_start_phases(self) -> list[Sample]:
        """Return the phases of the start, or nothing until the host has written the last phase."""
        try:
            lines = self._start_phases_file.read_text(encoding="utf-8").splitlines()
        except OSError:
            return []
        phases = dict(pair for line in lines if (pair := line.split()) and len(pair) == len(("phase", "seconds")))
        if StartPhase.WARM_UP not in phases:
            return []
        self._is_start_reported = True
        return [Sample("ColdStart", float(phases[phase]), phase) for phase in StartPhase if phase in phases]


def _get_missing_slot_count(counter: int | dict[str, int]) -> int:
    """Return a counter's value. If the counter is split by reason, return the count for missing slots."""
    return counter.get("full", 0) if isinstance(counter, dict) else counter
