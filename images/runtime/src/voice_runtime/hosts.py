"""The registry of hosts, with their free slots and draining states."""

import ipaddress
import time
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from redis.asyncio import Redis
from redis.exceptions import RedisError

from voice_blueprint.contract.network import Tier
from voice_blueprint.contract.state import HOST_HEARTBEAT_TIMEOUT_S, HOST_TTL_S, HostField
from voice_runtime import state
from voice_runtime.replies import decode_fields, decode_text


class HostKind(StrEnum):
    """Kind of host. For an ASR host, it is the host's compute."""

    NEURON = "neuron"
    GPU = "gpu"
    CPU = "cpu"
    VAD = "vad"
    AGENT = "agent"


@dataclass(frozen=True)
class Host:
    """A host's description of itself.

    Attributes:
        address: IPv4 address to which other tiers send.
        free_slots: Number of further sessions that the host accepts.
        draining: Whether the host accepts no new sessions.
        languages: Supported languages; empty if unknown.
        slots: Maximum sessions; 0 if unknown.
        heartbeat: A number that changes every second.
        zone: Availability zone; empty if unknown.
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
    def accepts_sessions(self) -> bool:
        """Whether the host accepts a new session."""
        return self.free_slots > 0 and not self.draining

    @classmethod
    def from_fields(cls, host_id: str, fields: dict[str, str]) -> Self | None:
        """Parse a record, or return ``None`` if the record is invalid."""
        try:
            return cls(
                id=host_id,
                kind=HostKind(fields[HostField.KIND]),
                address=str(ipaddress.IPv4Address(fields[HostField.ADDRESS])),
                free_slots=max(0, int(fields[HostField.FREE_SLOTS])),
                draining=fields[HostField.DRAINING] == "1",
                zone=fields.get(HostField.ZONE, ""),
                slots=max(0, int(fields.get(HostField.SLOTS, 0))),
                languages=tuple(filter(None, fields.get(HostField.LANGUAGES, "").split(","))),
                heartbeat=fields[HostField.HEARTBEAT],
            )
        except (KeyError, ValueError):
            return None


class HostRegistry:
    """The hosts of a tier."""

    def __init__(self, store: Redis, tier: Tier) -> None:
        self._store = store
        self._tier = tier
        self._heartbeats: dict[str, tuple[str, float]] = {}

    async def send_heartbeat(self, host: Host) -> None:
        key = state.build_host_key(self._tier, host.id)
        async with self._store.pipeline(transaction=True) as pipe:
            # Readers remove ids whose record has expired from the set.
            pipe.sadd(state.build_hosts_key(self._tier), host.id)
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
            pipe.expire(key, HOST_TTL_S)
            await pipe.execute()

    async def remove(self, host_id: str) -> None:
        async with self._store.pipeline(transaction=True) as pipe:
            pipe.delete(state.build_host_key(self._tier, host_id))
            pipe.srem(state.build_hosts_key(self._tier), host_id)
            await pipe.execute()

    async def is_registered(self, host_id: str) -> bool:
        """Return True if a host is in the registry, even if the host has failed."""
        return bool(await self._store.sismember(state.build_hosts_key(self._tier), host_id))

    async def read_live_hosts(self) -> list[Host]:
        """Return the hosts with a recent heartbeat, sorted by id.

        A host that is seen for the first time counts as alive. In the first read after a failed read, all hosts count
        as alive, since no heartbeats could be read in the meantime.
        """
        try:
            ids = sorted(map(decode_text, await self._store.smembers(state.build_hosts_key(self._tier))))
            async with self._store.pipeline(transaction=False) as pipe:
                for host_id in ids:
                    pipe.hgetall(state.build_host_key(self._tier, host_id))
                records = await pipe.execute()
        except (RedisError, OSError):
            self._heartbeats.clear()
            raise
        found = (Host.from_fields(host_id, decode_fields(fields)) for host_id, fields in zip(ids, records, strict=True))
        candidates = [host for host in found if host is not None]
        hosts = [host for host in candidates if self._is_alive(host)]
        # Heartbeats of failed hosts are also kept. Without its last heartbeat, a failed host would count as a new one.
        self._heartbeats = {host.id: self._heartbeats[host.id] for host in candidates}
        return hosts

    def _is_alive(self, host: Host) -> bool:
        now = time.monotonic()
        last, since = self._heartbeats.get(host.id, ("", now))
        if last != host.heartbeat:
            last, since = host.heartbeat, now
        self._heartbeats[host.id] = (last, since)
        return now - since < HOST_HEARTBEAT_TIMEOUT_S
