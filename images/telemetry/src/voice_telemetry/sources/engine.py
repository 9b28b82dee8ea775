"""The speech engine of the host: its queues over HTTP, its free slots from the host registry, its start from a file."""

import asyncio
from pathlib import Path

import httpx2
from redis.asyncio import Redis
from redis.exceptions import RedisError

from blueprint.contract.metrics import StartPhase
from blueprint.contract.network import Tier
from voice_runtime import state
from voice_runtime.hosts import Host
from voice_runtime.replies import texts
from voice_telemetry.sample import Sample
from voice_telemetry.sources import SourceError

FROM_ENGINE = ("EncoderQueueDepth", "DecoderQueueDepth", "RealTimeFactor")
"""Metrics that the engine answers under their own names."""

_TIMEOUT_S = 0.5


class Engine:
    """Reads the engine and what the registry has of its host."""

    def __init__(self, url: str, store: Redis, host: str, start_phases: Path) -> None:
        self._http = httpx2.AsyncClient(timeout=_TIMEOUT_S)
        self._url = url
        self._store = store
        self._host = host
        self._start_phases = start_phases
        self._told_start = False

    async def read(self) -> list[Sample]:
        """Return queue depths, real-time factor and slots, and once the phases of the host's start."""
        told = await self._ask()
        samples = [Sample(name, value) for name in FROM_ENGINE if (value := told.get(name)) is not None]
        samples += await self._slots()
        if not self._told_start:
            samples += await asyncio.to_thread(self._start)
        return samples

    async def close(self) -> None:
        """Close both connections."""
        await self._http.aclose()
        await self._store.aclose()

    async def _ask(self) -> dict[str, float | None]:
        try:
            answer = await self._http.get(self._url)
            answer.raise_for_status()
            told = answer.json()
        except (httpx2.HTTPError, ValueError) as error:
            raise SourceError(f"the engine does not answer {self._url}: {error or type(error).__name__}") from None
        if not isinstance(told, dict):
            raise SourceError(f"the engine answers no JSON object: {str(told)[:100]}")
        return told

    async def _slots(self) -> list[Sample]:
        try:
            fields = await self._store.hgetall(state.host(Tier.ASR, self._host))
        except (RedisError, OSError):
            return []
        host = Host.of(self._host, texts(fields))
        if host is None:
            return []
        free = [Sample("FreeSlots", host.free_slots)]
        # A host that does not say how many it has in all is neither full nor empty.
        return [*free, Sample("SlotsTaken", 100 * (1 - host.free_slots / host.slots))] if host.slots else free

    def _start(self) -> list[Sample]:
        """Return the phases of the start, when the host has written the last of them: the engine was ready then."""
        try:
            lines = self._start_phases.read_text(encoding="utf-8").splitlines()
        except OSError:
            return []
        phases = dict(pair for line in lines if (pair := line.split()) and len(pair) == len(("phase", "seconds")))
        if StartPhase.WARM_UP not in phases:
            return []
        self._told_start = True
        return [Sample("ColdStart", float(phases[phase]), phase) for phase in StartPhase if phase in phases]
