"""Places at ASR hosts, held for callers by all gateways together.

An engine gives a slot to who speaks first. Without a place held for it, a session that is let in may find all slots
taken when it begins to speak, and nobody would hear it.
"""

import time

from redis.asyncio import Redis

from voice_gateway.fleet import Fleet
from voice_runtime import state

HELD_S = 10
"""A place whose gateway has died is free after that; sockets hold theirs anew every two seconds."""
FREED_S = 5
"""An engine notices within that time that a session has ended, and gives its slot to another."""


class Places:
    """Who holds a place, and until when."""

    def __init__(self, store: Redis, fleet: Fleet) -> None:
        self._store = store
        self._fleet = fleet

    async def take(self, ssrc: int, until: float) -> bool:
        """Hold a place up to a time (seconds since 1970), and return whether there was one.

        Never more are held than there are slots. Of several that ask for the last one at a time, none may get it.
        """
        async with self._store.pipeline(transaction=True) as pipe:
            pipe.zremrangebyscore(state.PLACES, "-inf", time.time())
            pipe.zadd(state.PLACES, {str(ssrc): until}, nx=True)
            pipe.zcard(state.PLACES)
            _, added, held = await pipe.execute()
        if added and held > self._fleet.slots:
            await self._store.zrem(state.PLACES, str(ssrc))
            return False
        await self.hold(ssrc, until)
        return True

    async def hold(self, ssrc: int, until: float) -> None:
        """Hold a place that is held already, up to another time."""
        async with self._store.pipeline(transaction=True) as pipe:
            pipe.zadd(state.PLACES, {str(ssrc): until})
            pipe.expire(state.PLACES, state.SESSION_KEPT_S)
            await pipe.execute()

    async def leave(self, ssrc: int, after_s: float = FREED_S) -> None:
        """Let another caller have the place after a while, if it is held."""
        await self._store.zadd(state.PLACES, {str(ssrc): time.time() + after_s}, xx=True)
