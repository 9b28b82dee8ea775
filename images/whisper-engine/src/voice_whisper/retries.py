"""Retries for Valkey operations that must not be lost."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from redis.exceptions import RedisError

RETRY_PAUSE_S = 0.5

STORE_ERRORS = (RedisError, OSError, TimeoutError)
"""Errors that occur while the store is unavailable, starting or failing over."""

log = logging.getLogger(__name__)
T = TypeVar("T")


async def retry_until_done(name: str, operation: Callable[[], Awaitable[T]]) -> T:
    """Return the result of an operation on the store, retrying while the store is unavailable.

    Args:
        name: Name of the operation in the log.
    """
    is_logged = False
    while True:
        try:
            return await operation()
        except STORE_ERRORS as error:
            if not is_logged:
                log.warning("%s waits for the store: %s", name, error)
            is_logged = True
            await asyncio.sleep(RETRY_PAUSE_S)


async def run_periodically(seconds: float, name: str, operation: Callable[[], Awaitable[None]]) -> None:
    """Run an operation periodically until cancelled. Errors from an unavailable store are logged."""
    is_unavailable = False
    while True:
        try:
            await operation()
            is_unavailable = False
        except STORE_ERRORS as error:
            if not is_unavailable:
                log.warning("%s waits for the store: %s", name, error)
            is_unavailable = True
        await asyncio.sleep(seconds)
