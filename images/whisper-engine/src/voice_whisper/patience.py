"""Valkey comes back: whatever must not be lost is tried until it does."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from redis.exceptions import RedisError

PAUSE_S = 0.5

STORE_ERRORS = (RedisError, OSError, TimeoutError)
"""What a store says that is away, starting, or handing over to its replica."""

log = logging.getLogger(__name__)
T = TypeVar("T")


async def until_done(what: str, operation: Callable[[], Awaitable[T]]) -> T:
    """Return what an operation on the store returns, however long the store is away.

    Args:
        what: Names the operation in the log.
    """
    attempts = 0
    while True:
        try:
            return await operation()
        except STORE_ERRORS as error:
            if attempts == 0:
                log.warning("%s waits for the store: %s", what, error)
            attempts += 1
            await asyncio.sleep(PAUSE_S)


async def every(seconds: float, what: str, operation: Callable[[], Awaitable[None]]) -> None:
    """Repeat an operation for ever; the store may be away for some of its turns."""
    away = False
    while True:
        try:
            await operation()
            away = False
        except STORE_ERRORS as error:
            if not away:
                log.warning("%s waits for the store: %s", what, error)
            away = True
        await asyncio.sleep(seconds)
