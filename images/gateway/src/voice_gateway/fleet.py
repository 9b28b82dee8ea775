"""Reads the hosts of the other tiers every half second."""

import asyncio
import math
import random

from redis.asyncio import Redis
from redis.exceptions import AuthenticationError, RedisError

from voice_blueprint.contract.network import Tier
from voice_blueprint.contract.state import HOST_HEARTBEAT_TIMEOUT_S
from voice_runtime.hosts import Host, HostRegistry

REFRESH_INTERVAL_S = 0.5
AGE_UPDATE_INTERVAL_S = 0.25
MAX_STORE_OUTAGE_S = 600.0
"""Time without the state store after which a gateway must be replaced. A failover takes up to half a minute, and does
not require a replacement, since all gateways share the store. After ten minutes, the cause may be the gateway itself,
such as a network partition of its task."""


class Fleet:
    """Reads the registries periodically, so that neither callers nor packets wait for the state store."""

    def __init__(self, store: Redis) -> None:
        self._store = store
        self._registries = self._create_registries()
        self._hosts: dict[Tier, list[Host]] = {Tier.ASR: [], Tier.VAD: []}
        self._age_s = math.inf
        self._is_rejected = False

    async def refresh_periodically(self) -> None:
        """Refresh the hosts until cancelled. The last result remains valid while the state store is unavailable."""
        age_task = asyncio.create_task(self._track_refresh_age())
        try:
            while True:
                try:
                    await self.refresh()
                except (RedisError, OSError):
                    # Hosts whose heartbeats could not be read are not treated as dead.
                    self._registries = self._create_registries()
                await asyncio.sleep(REFRESH_INTERVAL_S)
        finally:
            age_task.cancel()

    async def _track_refresh_age(self) -> None:
        """Track the time since the last refresh.

        The time is counted in iterations of the event loop, since a busy loop also delays refreshes.
        """
        while True:
            await asyncio.sleep(AGE_UPDATE_INTERVAL_S)
            self._age_s += AGE_UPDATE_INTERVAL_S

    async def refresh(self) -> None:
        """Read the registries once."""
        try:
            for tier, registry in self._registries.items():
                self._hosts[tier] = await registry.read_live_hosts()
        except AuthenticationError:
            self._is_rejected = True
            raise
        self._age_s = 0.0
        self._is_rejected = False

    def _create_registries(self) -> dict[Tier, HostRegistry]:
        return {tier: HostRegistry(self._store, tier) for tier in (Tier.ASR, Tier.VAD)}

    @property
    def is_store_available(self) -> bool:
        """Whether the state store has responded recently."""
        return self._age_s < HOST_HEARTBEAT_TIMEOUT_S

    @property
    def store_failure_reason(self) -> str | None:
        """Reason why this process must be replaced to reach the state store, or ``None``.

        Short outages do not require a replacement, but rejected credentials do, since a new process reads the current
        password.
        """
        if self._is_rejected:
            return "the state store rejects the credentials"
        if math.isinf(self._age_s):
            return "the state store has never responded"
        if self._age_s >= MAX_STORE_OUTAGE_S:
            return f"the state store has not responded for {MAX_STORE_OUTAGE_S:.0f} s"
        return None

    @property
    def free_slot_count(self) -> int:
        """Total free slots on the ASR hosts."""
        return sum(host.free_slots for host in self._hosts[Tier.ASR] if host.accepts_sessions)

    @property
    def slot_count(self) -> int:
        """Total slots on the ASR hosts."""
        return sum(max(host.slots, host.free_slots) for host in self._hosts[Tier.ASR] if not host.draining)

    @property
    def languages(self) -> set[str] | None:
        """Languages that every ASR host supports, since a session may be assigned to any host.

        The value is ``None`` if a host does not report its languages.
        """
        host_languages = [set(host.languages) for host in self._hosts[Tier.ASR]]
        return set.intersection(*host_languages) if host_languages and all(host_languages) else None

    def select_vad_host(self, current: Host | None = None) -> Host | None:
        """Return the VAD host for a session's packets. The current host is kept until it stops or drains.

        Otherwise, return the host with the most free slots. Ties are broken randomly, so that concurrent sockets are
        distributed.
        """
        hosts = {host.id: host for host in self._hosts[Tier.VAD]}
        current_host = hosts.get(current.id) if current else None
        if current_host and not current_host.draining:
            return current_host
        candidates = [host for host in hosts.values() if host.accepts_sessions]
        if not candidates:
            return current_host
        return max(candidates, key=lambda host: (host.free_slots, random.random()))  # noqa: S311  no secret
