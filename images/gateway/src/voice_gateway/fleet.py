"""The hosts behind the gateway, as they were half a second ago."""

import asyncio
import random
import time

from redis.asyncio import Redis
from redis.exceptions import RedisError

from blueprint.contract.network import Tier
from blueprint.contract.state import HOST_DEAD_AFTER_S
from voice_runtime.hosts import Host, HostRegistry

LOOK_EVERY_S = 0.5


class Fleet:
    """Reads the registries again and again, so that neither callers nor packets wait for the state store."""

    def __init__(self, store: Redis) -> None:
        self._store = store
        self._registries = self._unseen()
        self._hosts: dict[Tier, list[Host]] = {Tier.ASR: [], Tier.VAD: []}
        self._looked_at = float("-inf")

    async def watch(self) -> None:
        """Look until cancelled; what was seen last stays good while the state store is away."""
        while True:
            try:
                await self.look()
            except (RedisError, OSError):
                # Hearts that could not be seen are not dead for having stood still.
                self._registries = self._unseen()
            await asyncio.sleep(LOOK_EVERY_S)

    async def look(self) -> None:
        """Read the registries once."""
        for tier, registry in self._registries.items():
            self._hosts[tier] = await registry.alive()
        self._looked_at = time.monotonic()

    def _unseen(self) -> dict[Tier, HostRegistry]:
        return {tier: HostRegistry(self._store, tier) for tier in (Tier.ASR, Tier.VAD)}

    @property
    def store_answers(self) -> bool:
        """Whether the state store has answered lately."""
        return time.monotonic() - self._looked_at < HOST_DEAD_AFTER_S

    @property
    def free_slots(self) -> int:
        """Sessions that the ASR hosts can still take."""
        return sum(host.free_slots for host in self._hosts[Tier.ASR] if host.takes_sessions)

    @property
    def slots(self) -> int:
        """Sessions that the ASR hosts take in all."""
        return sum(max(host.slots, host.free_slots) for host in self._hosts[Tier.ASR] if not host.draining)

    @property
    def languages(self) -> set[str] | None:
        """Languages that every ASR host understands, since a session may come to any; ``None``: one does not tell."""
        known = [set(host.languages) for host in self._hosts[Tier.ASR]]
        return set.intersection(*known) if known and all(known) else None

    def vad_host(self, current: Host | None = None) -> Host | None:
        """Return the VAD host for a session's packets: the one that it has, for as long as that stays.

        Otherwise the one with most room; of several, any, so that sockets of the same second do not all go to one.
        """
        hosts = {host.id: host for host in self._hosts[Tier.VAD]}
        has = hosts.get(current.id) if current else None
        if has and not has.draining:
            return has
        candidates = [host for host in hosts.values() if host.takes_sessions]
        if not candidates:
            return has
        return max(candidates, key=lambda host: (host.free_slots, random.random()))  # noqa: S311  no secret
