"""Cancellation of tasks that use the state store."""

import asyncio
from collections.abc import Iterable
from typing import Any

RETRY_INTERVAL_S = 0.5


async def cancel_tasks(tasks: Iterable["asyncio.Future[Any]"]) -> None:
    """Cancel tasks, and return after all have ended.

    The cancellation is repeated: before Python 3.12, `asyncio.wait_for`, with which the store's client sends, may lose
    a cancellation, and `asyncio.run` would wait for such a task indefinitely.
    """
    pending = set(tasks)
    while pending := {task for task in pending if not task.done()}:
        for task in pending:
            task.cancel()
        await asyncio.wait(pending, timeout=RETRY_INTERVAL_S)


def list_other_tasks() -> set["asyncio.Task[Any]"]:
    """Return all tasks on the loop except the current one."""
    return asyncio.all_tasks() - {asyncio.current_task()}
