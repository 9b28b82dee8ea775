"""Cancellation of tasks that use the state store."""

import asyncio
from collections.abc import Iterable
from typing import Any

AGAIN_S = 0.5


async def end(tasks: Iterable["asyncio.Future[Any]"]) -> None:
    """Cancel tasks, and return after all have ended.

    It is repeated: before Python 3.12, `asyncio.wait_for`, with which the store's client sends, may lose a
    cancellation, and `asyncio.run` would wait for such a task indefinitely.
    """
    left = set(tasks)
    while left := {task for task in left if not task.done()}:
        for task in left:
            task.cancel()
        await asyncio.wait(left, timeout=AGAIN_S)


def others() -> set["asyncio.Task[Any]"]:
    """Return all tasks of the loop except the current one."""
    return asyncio.all_tasks() - {asyncio.current_task()}
