"""The registry of hosts: who is there, who has room, who is leaving."""

import ipaddress
import time
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from redis.asyncio import Redis

from blueprint.contract.network import Tier
from blueprint.contract.state import HOST_DEAD_AFTER_S, HOST_EXPIRES_S, HostField
from voice_runtime import state
from voice_runtime.replies import text, texts


class HostKind(StrEnum):
    """What a host computes on, or is."""

    NEURON = "neuron"
    GPU = "gpu"
    CPU = "cpu"
    VAD = "vad"
    AGENT = "agent"


@dataclass(frozen=True)
class Host:
    """A host as it describes itself.

    Attributes:
        address: IPv4 address that other tiers send to.
        free_slots: Sessions that it can still take.
        draining: Whether it takes no new session.
        languages: That it understands; none: it does not tell.
        slots: Sessions that it takes in all; 0 of a host that does not tell.
        heartbeat: A number that changes every second.
        zone: Availability zone; empty: it does not tell.
    """

    id: str
    kind: HostKind
    address: str
    free_slots: int
    draining: bool
    slots: int = 0
    languages: tuple[str, ...] = ()
    heartbeat: str = ""
    zone: str = ""

    @property
    def takes_sessions(self) -> bool:
        """Whether a new session may go there."""
        return self.free_slots > 0 and not self.draining

    @classmethod
    def of(cls, host_id: str, read: dict[str, str]) -> Self | None:
        """Read a record; ``None`` when it holds no host."""
        try:
            return cls(
                id=host_id,
                kind=HostKind(read[HostField.KIND]),
                address=str(ipaddress.IPv4Address(read[HostField.ADDRESS])),
                free_slots=max(0, int(read[HostField.FREE_SLOTS])),
                draining=read[HostField.DRAINING] == "1",
                zone=read.get(HostField.ZONE, ""),
                slots=max(0, int(read.get(HostField.SLOTS, 0))),
                languages=tuple(filter(None, read.get(HostField.LANGUAGES, "").split(","))),
                heartbeat=read[HostField.HEARTBEAT],
            )
        except (KeyError, ValueError):
            return None


class HostRegistry:
    """The hosts of one tier."""

    def __init__(self, store: Redis, tier: Tier) -> None:
        self._store = store
        self._tier = tier
        self._beats: dict[str, tuple[str, float]] = {}

    async def beat(self, host: Host) -> None:
        key = state.host(self._tier, host.id)
        async with self._store.pipeline(transaction=True) as pipe:
            # Readers take ids off the set whose record has expired.
            pipe.sadd(state.hosts(self._tier), host.id)
            pipe.hset(
                key,
                mapping={
                    HostField.KIND: host.kind,
                    HostField.ADDRESS: host.address,
                    HostField.ZONE: host.zone,
                    HostField.FREE_SLOTS: str(host.free_slots),
                    HostField.SLOTS: str(host.slots),
                    HostField.LANGUAGES: ",".join(host.languages),
                    HostField.DRAINING: str(int(host.draining)),
                    HostField.HEARTBEAT: str(time.time_ns()),
                },
            )
            pipe.expire(key, HOST_EXPIRES_S)
            await pipe.execute()

    async def leave(self, host_id: str) -> None:
        async with self._store.pipeline(transaction=True) as pipe:
            pipe.delete(state.host(self._tier, host_id))
            pipe.srem(state.hosts(self._tier), host_id)
            await pipe.execute()

    async def knows(self, host_id: str) -> bool:
        """Return whether a host has come, and has not left; one that died has not."""
        return bool(await self._store.sismember(state.hosts(self._tier), host_id))

    async def alive(self) -> list[Host]:
        """Return the hosts whose heart beats, by id. One that was never seen before counts as beating."""
        ids = sorted(map(text, await self._store.smembers(state.hosts(self._tier))))
        async with self._store.pipeline(transaction=False) as pipe:
            for host_id in ids:
                pipe.hgetall(state.host(self._tier, host_id))
            records = await pipe.execute()
        found = (Host.of(host_id, texts(fields)) for host_id, fields in zip(ids, records, strict=True))
        hosts = [host for host in found if host is not None and self._beats_still(host)]
        self._beats = {host.id: self._beats[host.id] for host in hosts}
        return hosts

    def _beats_still(self, host: Host) -> bool:
        now = time.monotonic()
        last, since = self._beats.get(host.id, ("", now))
        if last != host.heartbeat:
            last, since = host.heartbeat, now
        self._beats[host.id] = (last, since)
        return now - since < HOST_DEAD_AFTER_S
