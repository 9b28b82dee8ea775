"""Unauthenticated clients compete only with each other, and a caller still connects."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

import pytest

from voice_runtime.fair_admission import FairAdmissionController, SourceLimitedSet

LIMIT = 4
PATIENCE_S = 30.0


async def _hold(waiting: FairAdmissionController, source: str, closed: list[str], name: str) -> None:
    try:
        async with waiting.admit(source):
            await asyncio.Event().wait()
    except TimeoutError:
        closed.append(name)


@contextlib.asynccontextmanager
async def _held(waiting: FairAdmissionController, sources: list[str], closed: list[str]) -> AsyncIterator[None]:
    tasks = []
    for number, source in enumerate(sources):
        tasks.append(asyncio.create_task(_hold(waiting, source, closed, f"{source}-{number}")))
        await asyncio.sleep(0)
    yield
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_the_busiest_source_loses_its_oldest_connection() -> None:
    waiting, closed = FairAdmissionController(LIMIT, PATIENCE_S), list[str]()
    async with _held(waiting, ["a", "b", "b", "b"], closed):
        async with waiting.admit("c"):
            await asyncio.sleep(0.01)
            assert closed == ["b-1"]
            assert len(waiting) == LIMIT
        async with asyncio.timeout(PATIENCE_S), waiting.admit("d"):
            await asyncio.sleep(0.01)
            assert closed == ["b-1"]


async def test_one_source_cannot_close_connections_of_another() -> None:
    waiting, closed = FairAdmissionController(LIMIT, PATIENCE_S), list[str]()
    async with _held(waiting, ["caller", *["stranger"] * 40], closed):
        await asyncio.sleep(0.01)
        assert len(waiting) == LIMIT
        assert len(closed) == 41 - LIMIT
        assert not [name for name in closed if name.startswith("caller")]


async def test_simultaneous_connections_close_one_connection_each() -> None:
    waiting, closed = FairAdmissionController(LIMIT, PATIENCE_S), list[str]()
    async with _held(waiting, ["a"] * LIMIT, closed), _held(waiting, ["b", "c"], closed):
        await asyncio.sleep(0.01)
        assert closed == ["a-0", "a-1"]


async def test_connections_time_out() -> None:
    waiting = FairAdmissionController(LIMIT, 0.01)
    with pytest.raises(TimeoutError):
        async with waiting.admit("a"):
            await asyncio.Event().wait()
    assert len(waiting) == 0


async def test_a_connection_is_admitted_while_the_connection_that_it_replaces_times_out() -> None:
    waiting, closed = FairAdmissionController(2, 0.1), list[str]()
    newcomers: list[asyncio.Task[None]] = []
    admitted = asyncio.Event()

    async def connect() -> None:
        async with waiting.admit("b"):
            admitted.set()

    async with _held(waiting, ["a", "a"], closed):
        asyncio.get_running_loop().call_later(0.05, lambda: newcomers.append(asyncio.create_task(connect())))
        time.sleep(0.15)  # in one iteration of the loop, the newcomer is created and then the timeouts expire
        await asyncio.sleep(0.1)
        assert sorted(closed) == ["a-0", "a-1"]
    await asyncio.gather(*newcomers)
    assert admitted.is_set()
    assert len(waiting) == 0


async def test_errors_inside_the_context_are_propagated() -> None:
    waiting = FairAdmissionController(LIMIT, PATIENCE_S)
    with pytest.raises(KeyError):
        async with waiting.admit("a"):
            raise KeyError
    assert len(waiting) == 0


def test_sources_alternate_oldest_item_first() -> None:
    waiting: SourceLimitedSet[str] = SourceLimitedSet(LIMIT)
    for item, source in (("a1", "a"), ("a2", "a"), ("a3", "a"), ("b1", "b")):
        assert waiting.add(item, source) is None
    assert [waiting.pop() for _ in range(5)] == ["a1", "b1", "a2", "a3", None]
    assert len(waiting) == 0
    assert waiting.add("a1", "a") is None, "it is not there any more"
