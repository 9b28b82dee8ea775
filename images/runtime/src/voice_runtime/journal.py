"""Audio without a final transcript, stored so that another host can continue if a session's host fails."""

from redis.asyncio import Redis

from voice_blueprint.contract.network import Tier
from voice_runtime import state
from voice_runtime.replies import entries, text

_FIELD = b"chunk"


class Journal:
    """Unfinished audio, and the host that owns it.

    Attributes:
        host: Id of this host.
    """

    def __init__(self, store: Redis, host: str) -> None:
        self._store = store
        self.host = host
        self._hosts_seen: set[str] = set()
        self._left_by: dict[int, set[str]] = {}

    async def take(self, ssrc: int) -> None:
        """Make this the session's host, regardless of the previous one.

        The VAD tier decides where a session's audio is sent.
        """
        async with self._store.pipeline(transaction=True) as pipe:
            pipe.set(state.lease(ssrc), self.host, ex=state.LEASE_S)
            pipe.sadd(state.held(self.host), str(ssrc))
            pipe.expire(state.held(self.host), state.HELD_KEPT_S)
            await pipe.execute()

    async def take_over(self, ssrc: int) -> bool:
        """Become the host of a session without one, and return True on success."""
        if not await self._store.set(state.lease(ssrc), self.host, ex=state.LEASE_S, nx=True):
            return False
        await self.take(ssrc)
        for host in self._left_by.pop(ssrc, ()):
            await self._store.srem(state.held(host), str(ssrc))
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
            pipe.expire(state.held(self.host), state.HELD_KEPT_S)
            await pipe.execute()
        return lost

    async def release(self, ssrc: int) -> None:
        """Release a session for the next host."""
        async with self._store.pipeline(transaction=True) as pipe:
            pipe.delete(state.lease(ssrc))
            pipe.srem(state.held(self.host), str(ssrc))
            await pipe.execute()

    async def append(self, datagrams: list[tuple[int, bytes]]) -> list[str]:
        """Store chunks with their sessions in one round trip, and return the ids of their entries."""
        async with self._store.pipeline(transaction=False) as pipe:
            for ssrc, datagram in datagrams:
                key = state.audio(ssrc)
                pipe.xadd(key, {_FIELD: datagram}, maxlen=state.AUDIO_CHUNKS, approximate=True)
                pipe.expire(key, state.AUDIO_KEPT_S)
            answers = await pipe.execute()
        return [text(entry_id) for entry_id in answers[::2]]

    async def entries(self, ssrc: int) -> list[tuple[str, bytes]]:
        """Return the stored entries of a session in order: ids and datagrams."""
        kept = entries(await self._store.xrange(state.audio(ssrc)))
        return [(entry_id, fields[_FIELD]) for entry_id, fields in kept]

    async def forget(self, ssrc: int, entry_ids: list[str]) -> None:
        """Delete entries that a final transcript covers."""
        if entry_ids:
            await self._store.xdel(state.audio(ssrc), *entry_ids)

    async def sessions_of(self, host: str) -> list[int]:
        return sorted(int(ssrc) for ssrc in await self._store.smembers(state.held(host)))

    async def orphans(self) -> list[int]:
        """Return sessions of failed hosts of this tier."""
        # Other readers may already have removed a failed host from the registry.
        self._hosts_seen |= {text(host) for host in await self._store.smembers(state.hosts(Tier.ASR))} - {self.host}
        self._left_by = {}
        for host in sorted(self._hosts_seen):
            if await self._store.exists(state.host(Tier.ASR, host)):
                continue
            left = await self.sessions_of(host)
            for ssrc in left:
                self._left_by.setdefault(ssrc, set()).add(host)
            if not left:
                self._hosts_seen.discard(host)
        return sorted(self._left_by)
