"""Retries of operations on Valkey that must not be lost."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from redis.exceptions import RedisError

PAUSE_S = 0.5

STORE_ERRORS = (RedisError, OSError, TimeoutError)
"""Errors of a store that is unavailable, starting, or failing over."""

log = logging.getLogger(__name__)
T = TypeVar("T")


async def until_done(what: str, operation: Callable[[], Awaitable[T]]) -> T:
    """Return the result of an operation on the store, retrying while the store is unavailable.

    Args:
        what: Name of the operation in the log.
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
    """Repeat an operation indefinitely; the store may be unavailable for some repetitions."""
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
