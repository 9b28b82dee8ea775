"""Audio without a final transcript, stored so that another host can continue if a session's host fails."""

from redis.asyncio import Redis

from voice_blueprint.contract.network import Tier
from voice_runtime import state
from voice_runtime.replies import entries, text

_FIELD = b"chunk"


class Journal:
    """A journal of audio without a final transcript, and of the host that owns each session.

    Attributes:
        host: Id of this host.
    """

    def __init__(self, store: Redis, host: str) -> None:
        self._store = store
        self.host = host
        self._known_hosts: set[str] = set()
        self._former_hosts: dict[int, set[str]] = {}

    async def acquire(self, ssrc: int) -> None:
        """Assign a session to this host, regardless of its previous host.

        The VAD tier decides where a session's audio is sent.
        """
        async with self._store.pipeline(transaction=True) as pipe:
            pipe.set(state.lease(ssrc), self.host, ex=state.LEASE_S)
            pipe.sadd(state.host_sessions(self.host), str(ssrc))
            pipe.expire(state.host_sessions(self.host), state.HOST_SESSIONS_RETENTION_S)
            await pipe.execute()

    async def claim_session(self, ssrc: int) -> bool:
        """Assign a session without a host to this host, and return True on success."""
        if not await self._store.set(state.lease(ssrc), self.host, ex=state.LEASE_S, nx=True):
            return False
        await self.acquire(ssrc)
        for host in self._former_hosts.pop(ssrc, ()):
            await self._store.srem(state.host_sessions(host), str(ssrc))
        return True

    async def renew(self, ssrcs: list[int]) -> list[int]:
        """Renew the leases of sessions, and return those that another host has taken over."""
        if not ssrcs:
            return []
        holders = await self._store.mget([state.lease(ssrc) for ssrc in ssrcs])
        pairs = list(zip(ssrcs, holders, strict=True))
        lost = [ssrc for ssrc, holder in pairs if holder is not None and text(holder) != self.host]
        async with self._store.pipeline(transaction=False) as pipe:
            for ssrc, holder in pairs:
                # A host that takes over the session concurrently must not lose it, so only leases of this host or
                # expired ones are changed.
                if holder is None:
                    pipe.set(state.lease(ssrc), self.host, ex=state.LEASE_S, nx=True)
                elif text(holder) == self.host:
                    pipe.expire(state.lease(ssrc), state.LEASE_S)
            pipe.expire(state.host_sessions(self.host), state.HOST_SESSIONS_RETENTION_S)
            await pipe.execute()
        return lost

    async def release(self, ssrc: int) -> None:
        """Release a session for the next host."""
        async with self._store.pipeline(transaction=True) as pipe:
            pipe.delete(state.lease(ssrc))
            pipe.srem(state.host_sessions(self.host), str(ssrc))
            await pipe.execute()

    async def append(self, datagrams: list[tuple[int, bytes]]) -> list[str]:
        """Store chunks in one round trip, and return the ids of their entries."""
        async with self._store.pipeline(transaction=False) as pipe:
            for ssrc, datagram in datagrams:
                key = state.audio(ssrc)
                pipe.xadd(key, {_FIELD: datagram}, maxlen=state.AUDIO_CHUNKS, approximate=True)
                pipe.expire(key, state.AUDIO_RETENTION_S)
            answers = await pipe.execute()
        return [text(entry_id) for entry_id in answers[::2]]

    async def entries(self, ssrc: int) -> list[tuple[str, bytes]]:
        """Return the ids and datagrams of a session's stored entries, in order."""
        stored = entries(await self._store.xrange(state.audio(ssrc)))
        return [(entry_id, fields[_FIELD]) for entry_id, fields in stored]

    async def delete(self, ssrc: int, entry_ids: list[str]) -> None:
        """Delete entries that a final transcript covers."""
        if entry_ids:
            await self._store.xdel(state.audio(ssrc), *entry_ids)

    async def sessions_on(self, host: str) -> list[int]:
        return sorted(int(ssrc) for ssrc in await self._store.smembers(state.host_sessions(host)))

    async def orphans(self) -> list[int]:
        """Return sessions of failed hosts of this tier."""
        # Other readers may already have removed a failed host from the registry.
        self._known_hosts |= {text(host) for host in await self._store.smembers(state.hosts(Tier.ASR))} - {self.host}
        self._former_hosts = {}
        for host in sorted(self._known_hosts):
            if await self._store.exists(state.host(Tier.ASR, host)):
                continue
            sessions = await self.sessions_on(host)
            for ssrc in sessions:
                self._former_hosts.setdefault(ssrc, set()).add(host)
            if not sessions:
                self._known_hosts.discard(host)
        return sorted(self._former_hosts)
