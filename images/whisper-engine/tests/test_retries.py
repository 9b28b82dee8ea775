"""Operations on a store that is unavailable for a while: repeated, and logged once for each outage."""

import asyncio
from types import SimpleNamespace

import pytest
from redis.exceptions import ConnectionError as Unavailable

from voice_whisper import retries
from voice_whisper.retries import retry_until_done, run_periodically

OUTAGE = Unavailable("no connection")


class Store:
    """A store with an outcome for each call; the last one never ends."""

    def __init__(self, *outcomes: Exception | None) -> None:
        self._outcomes = list(outcomes)
        self.used_up = asyncio.Event()

    async def call(self) -> str:
        if not self._outcomes:
            self.used_up.set()
            await asyncio.Event().wait()
        if outcome := self._outcomes.pop(0):
            raise outcome
        return "done"


async def test_an_operation_is_repeated_until_it_succeeds_and_its_outage_logged_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retries, "RETRY_PAUSE_S", 0.001)
    assert await retry_until_done("a final", Store(None).call) == "done"
    assert caplog.messages == []
    assert await retry_until_done("a final", Store(OUTAGE, OSError("no route"), OUTAGE, None).call) == "done"
    assert caplog.messages == ["a final waits for the store: no connection"]


async def test_the_store_is_asked_twice_per_second_during_an_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    async def sleep(pause_s: float) -> None:
        pauses.append(pause_s)

    monkeypatch.setattr(retries, "asyncio", SimpleNamespace(sleep=sleep))
    assert await retry_until_done("a final", Store(OUTAGE, OUTAGE, OUTAGE, OUTAGE, None).call) == "done"
    assert pauses == [1 / 2] * 4


async def test_an_error_of_the_program_is_not_repeated() -> None:
    with pytest.raises(KeyError):
        await retry_until_done("a final", Store(KeyError("field")).call)


async def test_periodic_work_continues_and_each_outage_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    store = Store(OUTAGE, None, OUTAGE, OUTAGE, None, None, OUTAGE)

    async def work() -> None:
        await store.call()

    running = asyncio.create_task(run_periodically(0.001, "the heartbeat", work))
    await asyncio.wait_for(store.used_up.wait(), 60)
    running.cancel()
    assert caplog.messages == ["the heartbeat waits for the store: no connection"] * 3
