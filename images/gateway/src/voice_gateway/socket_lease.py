"""Limits a session to one audio socket, across all gateways."""

import secrets

from redis.asyncio import Redis

from voice_runtime import state


class SocketLease:
    """The newest socket's permission to send a session's audio. The lease expires if the gateway fails."""

    def __init__(self, store: Redis, ssrc: int) -> None:
        self._store = store
        self._key = state.build_socket_lease_key(ssrc)
        self._owner_id = secrets.token_hex(8).encode()

    async def acquire(self) -> None:
        """Take the lease over from any other socket.

        A caller can detect the loss of the old connection and reconnect before that connection's gateway detects the
        loss.
        """
        await self._store.set(self._key, self._owner_id, ex=state.SESSION_LEASE_TTL_S)

    async def renew(self) -> bool:
        """Renew the lease, and return True if it still belongs to this socket."""
        async with self._store.pipeline(transaction=True) as pipe:
            pipe.get(self._key)
            pipe.expire(self._key, state.SESSION_LEASE_TTL_S)
            owner, _ = await pipe.execute()
        if owner is None:
            await self._store.set(self._key, self._owner_id, nx=True, ex=state.SESSION_LEASE_TTL_S)
            return await self.is_held()  # the client may have repeated a command whose reply was lost
        return bool(owner == self._owner_id)

    async def is_held(self) -> bool:
        """Return True if the lease still belongs to this socket."""
        return bool(await self._store.get(self._key) == self._owner_id)
