"""One audio socket for each session, at all gateways together."""

import secrets

from redis.asyncio import Redis

from voice_runtime import state


class SocketLease:
    """A session's right to send audio; it runs out by itself when its gateway dies."""

    def __init__(self, store: Redis, ssrc: int) -> None:
        self._store = store
        self._key = state.socket(ssrc)
        self._mine = secrets.token_hex(8).encode()

    async def take(self) -> bool:
        """Take it, and return whether it was free."""
        return bool(await self._store.set(self._key, self._mine, nx=True, ex=state.LEASE_S))

    async def renew(self) -> bool:
        """Keep it, and return whether it is still this socket's."""
        async with self._store.pipeline(transaction=True) as pipe:
            pipe.get(self._key)
            pipe.expire(self._key, state.LEASE_S)
            holder, _ = await pipe.execute()
        return holder == self._mine or (holder is None and await self.take())

    async def give_back(self) -> None:
        """Let another socket have it."""
        if await self._store.get(self._key) == self._mine:
            await self._store.delete(self._key)
