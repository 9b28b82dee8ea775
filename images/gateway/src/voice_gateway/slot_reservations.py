"""Reserves slots on ASR hosts for callers, across all gateways.

An engine assigns a slot to the first session that sends speech. Without a reservation, an admitted session could find
all slots in use at its first speech, and would not be transcribed.
"""

import time

from redis.asyncio import Redis

from voice_gateway.fleet import Fleet
from voice_runtime import state

RESERVATION_TTL_S = 10
"""Time after which a reservation by a failed gateway expires. Sockets renew their reservations every two seconds."""
RELEASE_DELAY_S = 5
"""Time within which an engine detects the end of a session, and reuses the session's slot."""


class SlotReservationStore:
    """Reservations of slots, each of which expires unless it is extended."""

    def __init__(self, store: Redis, fleet: Fleet) -> None:
        self._store = store
        self._fleet = fleet

    async def acquire(self, ssrc: int, expires_at: float) -> bool:
        """Reserve a slot until a time (seconds since 1970). Return False if no slot is free.

        There are never more reservations than slots. Concurrent requests for the last free slot may all fail.
        """
        async with self._store.pipeline(transaction=True) as pipe:
            pipe.zremrangebyscore(state.SLOT_RESERVATIONS_KEY, "-inf", time.time())
            pipe.zadd(state.SLOT_RESERVATIONS_KEY, {str(ssrc): expires_at}, nx=True)
            pipe.zcard(state.SLOT_RESERVATIONS_KEY)
            _, added, reserved = await pipe.execute()
        if added and reserved > self._fleet.slot_count:
            await self._store.zrem(state.SLOT_RESERVATIONS_KEY, str(ssrc))
            return False
        await self.extend(ssrc, expires_at)
        return True

    async def extend(self, ssrc: int, expires_at: float) -> None:
        """Extend an existing reservation."""
        async with self._store.pipeline(transaction=True) as pipe:
            pipe.zadd(state.SLOT_RESERVATIONS_KEY, {str(ssrc): expires_at})
            pipe.expire(state.SLOT_RESERVATIONS_KEY, state.SESSION_RETENTION_S)
            await pipe.execute()

    async def release(self, ssrc: int, after_s: float = RELEASE_DELAY_S) -> None:
        """Release an existing reservation after a delay."""
        await self._store.zadd(state.SLOT_RESERVATIONS_KEY, {str(ssrc): time.time() + after_s}, xx=True)
