"""One audio socket per session, over all gateways."""

import secrets

from redis.asyncio import Redis

from voice_runtime import state


class SocketLease:
    """A session's permission to send audio. The newest socket owns it; it expires if its gateway fails."""

    def __init__(self, store: Redis, ssrc: int) -> None:
        self._store = store
        self._key = state.socket(ssrc)
        self._mine = secrets.token_hex(8).encode()

    async def take(self) -> None:
        """Take the lease over from any other socket.

        A caller that reconnects knows before the old connection that the latter is lost.
        """
        await self._store.set(self._key, self._mine, ex=state.LEASE_S)

    async def renew(self) -> bool:
        """Renew the lease, and return True if it still belongs to this socket."""
        async with self._store.pipeline(transaction=True) as pipe:
            pipe.get(self._key)
            pipe.expire(self._key, state.LEASE_S)
            holder, _ = await pipe.execute()
        if holder is None:
            return bool(await self._store.set(self._key, self._mine, nx=True, ex=state.LEASE_S))
        return bool(holder == self._mine)

    async def is_held(self) -> bool:
        """Return True if it still belongs to this socket."""
        return bool(await self._store.get(self._key) == self._mine)
