"""Audio without a final transcript, stored so that another host can continue if a session's host fails."""

import time
from dataclasses import dataclass

from redis.asyncio import Redis
from redis.exceptions import RedisError

from voice_blueprint.contract.network import Tier
from voice_blueprint.contract.state import HOST_HEARTBEAT_INTERVAL_S, HOST_HEARTBEAT_TIMEOUT_S
from voice_runtime import state
from voice_runtime.replies import decode_entries, decode_text

_CHUNK_FIELD = b"chunk"
MAX_SEARCH_INTERVAL_S = 2 * HOST_HEARTBEAT_INTERVAL_S
"""Maximum time between two consecutive searches that find no record of a host. After a longer interval, the host may
have been registered in the meantime."""


@dataclass(frozen=True)
class _HostAbsence:
    """Consecutive searches that found no record of a host.

    Attributes:
        since: Time of the first search.
        until: Time of the last search.
    """

    since: float
    until: float


class AudioJournal:
    """A journal of audio without a final transcript, and of the host that owns each session.

    Attributes:
        host: Id of this host.
    """

    def __init__(self, store: Redis, host: str) -> None:
        self._store = store
        self.host = host
        self._known_hosts: set[str] = set()
        self._former_hosts: dict[int, set[str]] = {}
        self._absences: dict[str, _HostAbsence] = {}

    async def acquire(self, ssrc: int) -> None:
        """Assign a session to this host, regardless of its previous host.

        The VAD tier decides where a session's audio is sent.
        """
        async with self._store.pipeline(transaction=True) as pipe:
            pipe.set(state.build_host_lease_key(ssrc), self.host, ex=state.SESSION_LEASE_TTL_S)
            pipe.sadd(state.build_host_sessions_key(self.host), str(ssrc))
            pipe.expire(state.build_host_sessions_key(self.host), state.HOST_SESSIONS_RETENTION_S)
            await pipe.execute()

    async def claim_session(self, ssrc: int) -> bool:
        """Assign a session without a host to this host, and return True on success."""
        if not await self._store.set(
            state.build_host_lease_key(ssrc), self.host, ex=state.SESSION_LEASE_TTL_S, nx=True
        ):
            return False
        await self.acquire(ssrc)
        for host in self._former_hosts.pop(ssrc, ()):
            await self._store.srem(state.build_host_sessions_key(host), str(ssrc))
        return True

    async def renew(self, ssrcs: list[int]) -> list[int]:
        """Renew the leases of sessions, and return those that another host has taken over."""
        if not ssrcs:
            return []
        holders = await self._store.mget([state.build_host_lease_key(ssrc) for ssrc in ssrcs])
        pairs = list(zip(ssrcs, holders, strict=True))
        lost = [ssrc for ssrc, holder in pairs if holder is not None and decode_text(holder) != self.host]
        async with self._store.pipeline(transaction=False) as pipe:
            for ssrc, holder in pairs:
                # A host that takes over the session concurrently must not lose it, so only expired leases and leases of
                # this host are changed.
                if holder is None:
                    pipe.set(state.build_host_lease_key(ssrc), self.host, ex=state.SESSION_LEASE_TTL_S, nx=True)
                elif decode_text(holder) == self.host:
                    pipe.expire(state.build_host_lease_key(ssrc), state.SESSION_LEASE_TTL_S)
            pipe.expire(state.build_host_sessions_key(self.host), state.HOST_SESSIONS_RETENTION_S)
            await pipe.execute()
        return lost

    async def release(self, ssrc: int) -> None:
        """Release a session for the next host."""
        async with self._store.pipeline(transaction=True) as pipe:
            pipe.delete(state.build_host_lease_key(ssrc))
            pipe.srem(state.build_host_sessions_key(self.host), str(ssrc))
            await pipe.execute()

    async def append(self, datagrams: list[tuple[int, bytes]]) -> list[str]:
        """Store chunks in one round trip, and return the ids of their entries."""
        async with self._store.pipeline(transaction=False) as pipe:
            for ssrc, datagram in datagrams:
                key = state.build_audio_key(ssrc)
                pipe.xadd(key, {_CHUNK_FIELD: datagram}, maxlen=state.MAX_AUDIO_CHUNKS, approximate=True)
                pipe.expire(key, state.AUDIO_RETENTION_S)
            answers = await pipe.execute()
        return [decode_text(entry_id) for entry_id in answers[::2]]

    async def read_entries(self, ssrc: int) -> list[tuple[str, bytes]]:
        """Return the ids and datagrams of a session's stored entries, in order."""
        stored = decode_entries(await self._store.xrange(state.build_audio_key(ssrc)))
        return [(entry_id, fields[_CHUNK_FIELD]) for entry_id, fields in stored]

    async def delete(self, ssrc: int, entry_ids: list[str]) -> None:
        """Delete entries that a final transcript covers."""
        if entry_ids:
            await self._store.xdel(state.build_audio_key(ssrc), *entry_ids)

    async def read_host_sessions(self, host: str) -> list[int]:
        return sorted(int(ssrc) for ssrc in await self._store.smembers(state.build_host_sessions_key(host)))

    async def find_orphaned_sessions(self) -> list[int]:
        """Return sessions from failed hosts in this tier.

        A host has failed if all searches within ``HOST_HEARTBEAT_TIMEOUT_S`` find no record of it. This time restarts
        if a search raises an error, or if the previous search was more than ``MAX_SEARCH_INTERVAL_S`` ago. After an
        outage or a stall of the store, all records have expired, and live hosts need time to write theirs.
        """
        try:
            return await self._search_orphans()
        except (RedisError, OSError):
            self._absences = {}
            raise

    async def _search_orphans(self) -> list[int]:
        # Other readers may already have removed a failed host from the registry.
        self._known_hosts |= {
            decode_text(host) for host in await self._store.smembers(state.build_hosts_key(Tier.ASR))
        } - {self.host}
        self._former_hosts = {}
        absences_before, self._absences = self._absences, {}
        for host in sorted(self._known_hosts):
            if await self._store.exists(state.build_host_key(Tier.ASR, host)):
                continue
            now = time.monotonic()  # after the reply, which may have been delayed
            before = absences_before.get(host)
            since = before.since if before and now - before.until <= MAX_SEARCH_INTERVAL_S else now
            self._absences[host] = _HostAbsence(since, until=now)
            if now - since < HOST_HEARTBEAT_TIMEOUT_S:
                continue
            sessions = await self.read_host_sessions(host)
            for ssrc in sessions:
                self._former_hosts.setdefault(ssrc, set()).add(host)
            if not sessions:
                self._known_hosts.discard(host)
        return sorted(self._former_hosts)
