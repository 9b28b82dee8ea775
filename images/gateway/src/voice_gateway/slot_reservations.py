"""Slots of ASR hosts, reserved for callers by all gateways together.

An engine assigns a slot to the first session that sends speech. Without a reservation, an admitted session could find
all slots in use at its first speech, and would not be transcribed.
"""

import time

from redis.asyncio import Redis

from voice_gateway.fleet import Fleet
from voice_runtime import state

RESERVATION_TTL_S = 10
"""Time after which the slot of a gateway that has failed is released; sockets renew theirs every two seconds."""
RELEASE_DELAY_S = 5
"""Time within which an engine detects that a session has ended, and reuses its slot."""


class SlotReservations:
    """Reservations of slots with their expiry."""

    def __init__(self, store: Redis, fleet: Fleet) -> None:
        self._store = store
        self._fleet = fleet

    async def acquire(self, ssrc: int, until: float) -> bool:
        """Reserve a slot up to a time (seconds since 1970), and return True if there was one.

        There are never more reservations than slots. Of several concurrent requests for the last one, all may fail.
        """
        async with self._store.pipeline(transaction=True) as pipe:
            pipe.zremrangebyscore(state.RESERVED_SLOTS, "-inf", time.time())
            pipe.zadd(state.RESERVED_SLOTS, {str(ssrc): until}, nx=True)
            pipe.zcard(state.RESERVED_SLOTS)
            _, added, reserved = await pipe.execute()
        if added and reserved > self._fleet.slots:
            await self._store.zrem(state.RESERVED_SLOTS, str(ssrc))
            return False
        await self.extend(ssrc, until)
        return True

    async def extend(self, ssrc: int, until: float) -> None:
        """Extend an existing reservation."""
        async with self._store.pipeline(transaction=True) as pipe:
            pipe.zadd(state.RESERVED_SLOTS, {str(ssrc): until})
            pipe.expire(state.RESERVED_SLOTS, state.SESSION_RETENTION_S)
            await pipe.execute()

    async def release(self, ssrc: int, after_s: float = RELEASE_DELAY_S) -> None:
        """Release a reservation after a delay, if there is one."""
        await self._store.zadd(state.RESERVED_SLOTS, {str(ssrc): time.time() + after_s}, xx=True)
