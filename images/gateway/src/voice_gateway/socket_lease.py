"""One audio socket for each session, at all gateways together."""

import secrets

from redis.asyncio import Redis

from voice_runtime import state


class SocketLease:
    """A session's right to send audio. The newest socket has it; it runs out by itself when its gateway dies."""

    def __init__(self, store: Redis, ssrc: int) -> None:
        self._store = store
        self._key = state.socket(ssrc)
        self._mine = secrets.token_hex(8).encode()

    async def take(self) -> None:
        """Take it, whoever had it: a caller that connects anew knows better than its old connection that it is gone."""
        await self._store.set(self._key, self._mine, ex=state.LEASE_S)

    async def renew(self) -> bool:
        """Keep it, and return whether it is still this socket's."""
        async with self._store.pipeline(transaction=True) as pipe:
            pipe.get(self._key)
            pipe.expire(self._key, state.LEASE_S)
            holder, _ = await pipe.execute()
        if holder is None:
            return bool(await self._store.set(self._key, self._mine, nx=True, ex=state.LEASE_S))
        return bool(holder == self._mine)

    async def is_held(self) -> bool:
        """Return whether it is still this socket's."""
        return bool(await self._store.get(self._key) == self._mine)
