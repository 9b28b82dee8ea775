"""A stage of workers, in a test that decides when its workers start, end and answer."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from voice_whisper.backends.base import DecodedText, Role
from voice_whisper.job import Job, JobFailedError, Priority
from voice_whisper.process import WorkerDiedError, WorkerStartError
from voice_whisper.stage import Stage


class Worker:
    """A worker without a process."""

    def __init__(self, pid: int = 1, *, supports_batches: bool = True) -> None:
        self.pid = pid
        self.model = SimpleNamespace(supports_batch_encoding=supports_batches)
        self.is_stopped = False

    async def wait_while_alive(self, waiting: Coroutine[Any, Any, object]) -> object:
        return await waiting

    async def stop(self) -> None:
        self.is_stopped = True


def job(rows: int = 1000) -> Job:
    return Job(np.zeros((80, rows), np.float32), rows, Priority.FINAL, None, asyncio.get_running_loop().create_future())


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


class Batches:
    """The batches of a stage, which end as the test decides.

    Attributes:
        sizes: Number of jobs of each batch.
        dies: Whether a batch kills its worker.
        is_free: Set while workers answer.
    """

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.dies: Callable[[list[Job]], bool] = lambda _: False
        self.is_free = asyncio.Event()
        self.is_free.set()
        self.dropped: list[Job] = []
        self.ready: list[int] = []
        self.workers: list[Worker] = []

    async def work(self, _worker: object, batch: list[Job]) -> None:
        self.sizes.append(len(batch))
        await self.is_free.wait()
        if self.dies(batch):
            raise WorkerDiedError("died")
        for each in batch:
            each.set_result(DecodedText("yes", "en"))

    def stage(
        self, role: Role = Role.ENCODER, *, batch: int = 4, follows: Stage | None = None, supports_batches: bool = True
    ) -> Stage:
        async def start(_number: int) -> Any:
            self.workers.append(Worker(100 + len(self.workers), supports_batches=supports_batches))
            return self.workers[-1]

        return Stage(role, batch, start, self.work, self.dropped.append, follows=follows)


@asynccontextmanager
async def running(stage: Stage, ready: Callable[[Any], None] = lambda _: None) -> AsyncIterator[None]:
    task = asyncio.create_task(stage.run_worker(0, ready))
    await settle()
    yield
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_a_stage_is_busy_from_a_job_to_its_result() -> None:
    batches = Batches()
    stage = batches.stage()
    assert (stage.is_busy, stage.restarts, stage.completed_batches, stage.pids) == (False, 0, 0, set())
    batches.is_free.clear()
    stage.put(job())
    assert stage.is_busy
    async with running(stage):
        assert (len(stage.queue), stage.is_busy, stage.completed_batches) == (0, True, 0)
        batches.is_free.set()
        await settle()
        assert (stage.is_busy, stage.completed_batches) == (False, 1)
        stage.put(job())
        await settle()
        assert (stage.is_busy, stage.completed_batches, stage.restarts) == (False, 2, 0)


async def test_a_worker_is_named_while_it_runs_and_stopped_at_the_end() -> None:
    batches, ready = Batches(), []
    stage = batches.stage()
    async with running(stage, lambda worker: ready.append(worker.pid)):
        assert (stage.pids, ready) == ({100}, [100])
    assert stage.pids == set()
    assert batches.workers[0].is_stopped


@pytest.mark.parametrize(
    ("role", "supports_batches", "sizes"),
    [
        (Role.ENCODER, True, [4, 2]),
        (Role.ENCODER, False, [1] * 6),
        (Role.DECODER, True, [4, 2]),
        (Role.DECODER, False, [4, 2]),
        (Role.COLOCATED, False, [4, 2]),
    ],
)
async def test_only_an_encoder_without_batches_gets_single_windows(
    role: Role, supports_batches: bool, sizes: list[int]
) -> None:
    batches = Batches()
    stage = batches.stage(role, follows=Batches().stage(), supports_batches=supports_batches)
    for _ in range(6):
        stage.put(job())
    async with running(stage):
        await settle()
    assert batches.sizes == sizes


async def test_a_crashed_batch_is_tried_in_single_windows_up_to_three_times() -> None:
    batches = Batches()
    stage = batches.stage()
    poison, innocent = job(), job()
    batches.dies = lambda batch: poison in batch
    for each in (poison, innocent):
        stage.put(each)
    async with running(stage):
        with pytest.raises(JobFailedError, match="3 workers exited while they processed it"):
            await poison.result
        assert (await innocent.result).text == "yes"
        await settle()
        assert batches.sizes == [2, 1, 1, 1]
        assert batches.dropped == [poison]
        assert (poison.failed_attempt_count, innocent.failed_attempt_count) == (3, 1)
        assert (stage.restarts, stage.completed_batches, stage.is_busy) == (3, 1, False)
        assert stage.pids == {103}
    assert [worker.is_stopped for worker in batches.workers] == [True] * 4


async def test_a_crashed_window_that_is_no_longer_needed_is_dropped() -> None:
    batches = Batches()
    stage = batches.stage()
    unneeded, needed = job(), job()
    batches.dies = lambda batch: len(batch) == 2
    batches.is_free.clear()
    for each in (unneeded, needed):
        stage.put(each)
    async with running(stage):
        unneeded.result.cancel()
        batches.is_free.set()
        assert (await needed.result).text == "yes"
    assert batches.dropped == [unneeded]
    assert batches.sizes == [2, 1]


async def test_a_result_that_was_set_before_the_last_crash_is_kept() -> None:
    batches = Batches()
    stage = batches.stage()
    answered = job()
    answered.failed_attempt_count = 2

    def answer(batch: list[Job]) -> bool:
        batch[0].set_result(DecodedText("yes", "en"))
        return True

    batches.dies = answer
    stage.put(answered)
    async with running(stage):
        assert (await answered.result).text == "yes"
        await settle()
        assert stage.restarts == 1
    assert batches.dropped == [answered]


async def test_jobs_of_a_crashed_batch_keep_their_order() -> None:
    batches = Batches()
    stage = batches.stage()
    jobs = [job() for _ in range(3)]
    order: list[int] = []
    batches.dies = lambda batch: len(batch) == 3

    def note(number: int) -> Callable[[object], None]:
        return lambda _: order.append(number)

    for number, each in enumerate(jobs):
        each.result.add_done_callback(note(number))
        stage.put(each)
    async with running(stage):
        await asyncio.gather(*(each.result for each in jobs))
        await settle()
    assert order == [0, 1, 2]


def start_with(outcomes: list[Exception | None]) -> tuple[Callable[[int], Awaitable[Any]], list[int]]:
    """Return a factory of workers whose starts have these outcomes, and then succeed."""
    numbers: list[int] = []

    async def start(number: int) -> Any:
        numbers.append(number)
        if outcomes and (outcome := outcomes.pop(0)):
            raise outcome
        return Worker()

    return start, numbers


@pytest.mark.parametrize("error", [WorkerStartError("no model"), WorkerDiedError("killed")])
async def test_a_worker_whose_first_start_fails_ends_the_engine(error: Exception) -> None:
    start, numbers = start_with([error])
    stage = Stage(Role.ENCODER, 4, start, Batches().work, lambda _: None)
    with pytest.raises(WorkerStartError, match=str(error)):
        await stage.run_worker(5, lambda _: None)
    assert numbers == [5]


async def test_a_worker_that_cannot_restart_is_tried_each_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its GPU may be back later."""
    start, numbers = start_with([None, WorkerStartError("no device"), WorkerDiedError("killed")])
    batches = Batches()
    pauses: list[float] = []
    ready: list[Any] = []
    stage = Stage(Role.ENCODER, 4, start, batches.work, lambda _: None)
    sleep = asyncio.sleep

    async def pause(seconds: float) -> None:
        if seconds:
            pauses.append(seconds)
        await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", pause)
    crashed = job()
    batches.dies = lambda _: stage.restarts == 0
    stage.put(crashed)
    async with running(stage, ready.append):
        assert (await crashed.result).text == "yes"
    assert pauses == [1.0, 1.0]
    assert (len(numbers), len(ready), stage.restarts) == (4, 2, 1)


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float | None]:
    """Return the times for which decoders wait for more windows, and let them wait for as long as the test takes."""
    found: list[float | None] = []
    timeout = asyncio.timeout

    def wait(seconds: float | None) -> asyncio.Timeout:
        found.append(seconds)
        return timeout(60)

    monkeypatch.setattr(asyncio, "timeout", wait)
    return found


async def test_a_decoder_waits_30_ms_for_windows_that_are_encoded(waits: list[float | None]) -> None:
    """With four windows at a time, a token takes half as long as with one."""
    encoding, batches = Batches().stage(), Batches()
    encoding.put(job())
    stage = batches.stage(Role.DECODER, batch=3, follows=encoding)
    async with running(stage):
        for count in range(3):
            assert batches.sizes == [], f"{count} windows"
            stage.put(job())
            await settle()
        assert batches.sizes == [3]
        stage.put(job())
        await settle()
        encoding.queue.pop_batch(1)
        stage.put(job())
        await settle()
    assert batches.sizes == [3, 2]
    assert waits == [0.03, 0.03]


async def test_a_decoder_without_encoded_windows_starts_at_once(waits: list[float | None]) -> None:
    batches = Batches()
    stage = batches.stage(Role.DECODER, follows=Batches().stage())
    async with running(stage):
        stage.put(job())
        await settle()
    assert batches.sizes == [1]
    assert waits == [0.03]


async def test_a_worker_for_both_steps_waits_since_windows_arrive_at_any_time(waits: list[float | None]) -> None:
    batches = Batches()
    stage = batches.stage(Role.COLOCATED, batch=2)
    async with running(stage):
        stage.put(job())
        await settle()
        assert batches.sizes == []
        stage.put(job())
        await settle()
    assert batches.sizes == [2]
    assert waits == [0.03]


async def test_an_encoder_does_not_wait(waits: list[float | None]) -> None:
    batches = Batches()
    stage = batches.stage()
    async with running(stage):
        stage.put(job())
        await settle()
    assert (batches.sizes, waits) == ([1], [])


async def test_a_decoder_decodes_what_it_has_when_the_wait_is_over() -> None:
    encoding, batches = Batches().stage(), Batches()
    encoding.put(job())
    async with running(batches.stage(Role.DECODER, follows=encoding)) as _:
        pass
    stage = batches.stage(Role.DECODER, follows=encoding)
    async with running(stage):
        stage.put(waiting := job())
        async with asyncio.timeout(30):
            assert (await waiting.result).text == "yes"
    assert batches.sizes == [1]
