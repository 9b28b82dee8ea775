"""Tasks end on every supported Python version."""

import asyncio
import contextlib

from voice_runtime import tasks


async def deaf(ended: list[str]) -> None:
    for _ in range(2):  # like `asyncio.wait_for` of Python 3.11 when the awaited task ends at that moment
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(3600)
    ended.append("deaf")


async def test_a_task_ends_even_if_a_cancellation_is_lost() -> None:
    ended: list[str] = []
    task = asyncio.create_task(deaf(ended))
    await asyncio.sleep(0)
    await tasks.cancel_tasks([task])
    assert ended == ["deaf"]


async def test_the_task_that_cancels_the_others_continues() -> None:
    ended: list[str] = []
    task = asyncio.create_task(deaf(ended))
    await asyncio.sleep(0)
    await tasks.cancel_tasks(tasks.list_other_tasks())
    assert (task.done(), ended) == (True, ["deaf"])
