"""Windows on their way through the stages of a pool, with stand-ins for its worker processes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import numpy as np
import pytest

from images.conftest import BUSY_TIMEOUT_S, until
from voice_blueprint.contract.chunk import ChunkKind
from voice_runtime import tasks
from voice_whisper import pool as pool_module
from voice_whisper.backends.base import DecodedText, Role, Word
from voice_whisper.job import JobFailedError, Priority, StaleJobError, WindowTranscript
from voice_whisper.memory import SlotMemory
from voice_whisper.messages import BatchReply, BatchRequest, ReadyMessage, StatesLayout
from voice_whisper.pool import WorkerPool, create_stage_configs
from voice_whisper.process import WorkerDiedError
from voice_whisper.settings import EngineSettings
from voice_whisper.stage import Stage
from voice_whisper.utterance import SPLIT_THRESHOLD_FRAMES

STATES = StatesLayout(shape=(5, 3), dtype="float32")
SPLIT = {"encoders": 1, "decoders": 1}
COLOCATED = {"layout": "colocated"}


def settings_of(**more: object) -> EngineSettings:
    fixed: dict[str, object] = {"host": "h", "host_address": "127.0.0.1", "host_kind": "gpu"}
    ports: dict[str, object] = {"chunk_port": 1, "health_port": 1, "drain_timeout_s": 1}
    return EngineSettings.model_validate(fixed | ports | more)


def utterance_of(rows: int = 100, value: float = 0.0, frames: int = 50) -> Any:
    """Return an utterance with these features, of which this many frames have no final transcript yet."""

    def extract_features(bins: int, *, until_end: bool) -> np.ndarray:
        return np.full((rows if until_end else rows - 10, bins or 80), value, np.float32)

    return SimpleNamespace(extract_features=extract_features, transcribed_frame_count=frames)


@dataclass
class Worker:
    """A worker process that answers at once, unless it is told to wait or to die."""

    role: Role
    number: int
    pid: int
    model: ReadyMessage
    requests: list[BatchRequest] = field(default_factory=list)
    may_answer: asyncio.Event = field(default_factory=asyncio.Event)
    deaths: int = 0
    words: tuple[Word, ...] = ()

    async def wait_while_alive(self, waiting: Any) -> Any:
        return await waiting

    async def send_request(self, request: BatchRequest) -> BatchReply:
        self.requests.append(request)
        await self.may_answer.wait()
        if self.deaths:
            self.deaths -= 1
            raise WorkerDiedError
        if self.role is Role.ENCODER:
            return BatchReply(states=STATES, stages_ms={"encode": 1000.0})
        texts = [DecodedText(f"slot {slot}", "en", self.words) for slot in request.slots]
        return BatchReply(texts=texts, stages_ms={"decode": 3000.0})

    async def stop(self) -> None:
        pass


@dataclass
class Processes:
    """The started workers, and how they were started."""

    bins: int = 80
    started: list[Worker] = field(default_factory=list)
    asked: list[tuple[Role, int, int, int]] = field(default_factory=list)
    may_start: asyncio.Event = field(default_factory=asyncio.Event)
    waiting_roles: set[Role] = field(default_factory=set)

    async def start(self, role: Role, memory: SlotMemory, slots: int, *, threads: int, number: int) -> Worker:
        assert isinstance(memory, SlotMemory)
        self.asked.append((role, slots, threads, number))
        await self.may_start.wait()
        model = ReadyMessage(bins=self.bins, languages=("en", "de"), supports_batch_encoding=True)
        self.started.append(Worker(role, number, len(self.started), model))
        if role not in self.waiting_roles:
            self.started[-1].may_answer.set()
        return self.started[-1]

    def of(self, role: Role) -> Worker:
        """Return the newest worker of a role."""
        return next(worker for worker in reversed(self.started) if worker.role is role)


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> Processes:
    found = Processes()
    found.may_start.set()
    monkeypatch.setattr(pool_module, "WorkerProcess", found)
    return found


@asynccontextmanager
async def running(**settings: object) -> AsyncIterator[WorkerPool]:
    pool = WorkerPool(settings_of(**settings))
    task = asyncio.create_task(pool.run())
    try:
        async with asyncio.timeout(BUSY_TIMEOUT_S):
            await pool.wait_until_ready()
            yield pool
    finally:
        await tasks.cancel_tasks([task])


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0.001)


def begin(
    pool: WorkerPool, utterance: Any = None, priority: Priority = Priority.FINAL
) -> "asyncio.Task[WindowTranscript]":
    return asyncio.create_task(pool.transcribe(utterance or utterance_of(), "en", priority))


def free_slots(pool: WorkerPool) -> list[int]:
    return sorted(pool._free)


@pytest.mark.parametrize(
    ("settings", "crews", "slots"),
    [
        ({"encoders": 1, "decoders": 1}, [("encoder", 1, 4), ("decoder", 1, 8)], 24),
        ({"encoders": 2, "decoders": 3}, [("encoder", 2, 4), ("decoder", 3, 8)], 64),
        ({"encoders": 2, "decoders": 3, **COLOCATED}, [("colocated", 5, 4)], 40),
    ],
)
async def test_there_are_two_slots_for_each_window_of_a_full_batch(
    settings: dict[str, object], crews: list[tuple[str, int, int]], slots: int
) -> None:
    """An encoder takes four windows at a time and a decoder eight; as many further ones wait in slots."""
    stages = create_stage_configs(settings_of(**settings))
    assert [(stage.role, stage.worker_count, stage.max_batch_size) for stage in stages] == crews
    pool = WorkerPool(settings_of(**settings))
    assert free_slots(pool) == list(range(slots))
    waiting = [begin(pool) for _ in range(slots + 2)]
    await settle()
    assert free_slots(pool) == []
    assert len(next(iter(pool.stages.values())).queue) == slots
    assert pool.queue_depths == (slots + 2, 0)
    await tasks.cancel_tasks(waiting)
    assert free_slots(pool) == list(range(slots))
    assert pool.queue_depths == (0, 0)


async def test_the_workers_of_a_layout_are_started_and_share_the_cores(
    processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(9)))
    processes.may_start.clear()
    pool = WorkerPool(settings_of(encoders=2, decoders=1))
    task, ready = asyncio.create_task(pool.run()), asyncio.create_task(pool.wait_until_ready())
    await until(lambda: len(processes.asked) == 3)
    assert sorted(processes.asked) == [(Role.DECODER, 32, 3, 0), (Role.ENCODER, 32, 3, 0), (Role.ENCODER, 32, 3, 1)]
    assert not pool.languages
    assert pool.supported_kinds == {ChunkKind.PCM16}, "the model is not known yet"
    assert not ready.done()
    processes.may_start.set()
    await asyncio.wait_for(ready, BUSY_TIMEOUT_S)
    assert pool.languages == ("en", "de")
    assert pool.restarts_by_role == {"encoder": 0, "decoder": 0}
    await tasks.cancel_tasks([task])


async def test_a_pool_is_ready_once_every_worker_has_loaded_its_model() -> None:
    pool = WorkerPool(settings_of(encoders=3, decoders=1))
    ready = asyncio.create_task(pool.wait_until_ready())
    worker: Any = Worker(Role.ENCODER, 0, 0, ReadyMessage(bins=80, languages=("en",)))
    for _ in range(3):
        pool._on_model_loaded(worker)
        await settle()
        assert not ready.done()
    pool._on_model_loaded(worker)
    await asyncio.wait_for(ready, BUSY_TIMEOUT_S)


@pytest.mark.parametrize(("bins", "kinds"), [(80, set(ChunkKind)), (79, {ChunkKind.PCM16}), (128, {ChunkKind.PCM16})])
async def test_models_with_other_bins_than_the_chunks_need_samples(
    processes: Processes, bins: int, kinds: set[ChunkKind]
) -> None:
    processes.bins = bins
    async with running() as pool:
        assert pool.supported_kinds == kinds


async def test_a_window_passes_through_both_stages(processes: Processes) -> None:
    async with running(**SPLIT) as pool:
        heard = await pool.transcribe(utterance_of(150), "de", Priority.FINAL, "Valkey")
        assert free_slots(pool) == list(range(24))
        assert [stage.completed_batches for stage in pool.stages.values()] == [1, 1]
    (encoded,), (decoded,) = processes.of(Role.ENCODER).requests, processes.of(Role.DECODER).requests
    assert (encoded.bins, encoded.rows, encoded.audio_rows) == (80, 1000, [150])
    assert (encoded.languages, encoded.prompt, encoded.states) == (["de"], "Valkey", None)
    assert decoded == encoded.model_copy(update={"states": STATES})
    assert heard.text == f"slot {encoded.slots[0]}"
    assert heard.processing_s == 4.0
    assert (heard.stages_ms["encode"], heard.stages_ms["decode"]) == (1000, 3000)


@pytest.mark.usefixtures("processes")
async def test_a_colocated_worker_answers_at_once() -> None:
    async with running(**COLOCATED) as pool:
        heard = await pool.transcribe(utterance_of(), "en", Priority.FINAL)
        assert free_slots(pool) == list(range(16))
        assert pool.queue_depths == (0, 0)
    assert (heard.text.partition(" ")[0], heard.processing_s) == ("slot", 3.0)


async def test_a_batch_has_the_features_and_durations_of_its_windows(processes: Processes) -> None:
    processes.waiting_roles = {Role.ENCODER}
    async with running(**SPLIT) as pool:
        first = begin(pool)
        await until(lambda: processes.started and processes.of(Role.ENCODER).requests)
        others = [begin(pool, utterance_of(100 + number, float(number))) for number in range(4)]
        await until(lambda: pool.queue_depths == (4, 0))
        encoder = processes.of(Role.ENCODER)
        encoder.may_answer.set()
        heard = await asyncio.gather(first, *others)
        (_, batch) = encoder.requests
        values = [pool._memory.get_features_view(slot, 80, 1000)[0, 0] for slot in batch.slots]
    assert batch.audio_rows == [100, 101, 102, 103]
    # A window's values are log10 of energy, plus 4, divided by 4.
    assert values == [1.0, 1.25, 1.5, 1.75]
    assert [transcript.stages_ms["encode"] for transcript in heard] == [1000] * 5
    assert heard[0].processing_s >= 1 + 3 / 5
    assert {transcript.text for transcript in heard[1:]} == {f"slot {slot}" for slot in batch.slots}


async def test_windows_of_one_batch_share_its_processing_time(processes: Processes) -> None:
    processes.waiting_roles = {Role.COLOCATED}
    async with running(encoders=1, decoders=1, **COLOCATED) as pool:
        busy = [begin(pool), begin(pool)]
        await until(lambda: sum(len(worker.requests) for worker in processes.started) >= 1)
        heard = [begin(pool) for _ in range(6)]
        await settle()
        for worker in processes.started:
            worker.may_answer.set()
        transcripts = await asyncio.gather(*busy, *heard)
        batches = [len(request.slots) for worker in processes.started for request in worker.requests]
    assert sum(batches) == 8
    assert sum(transcript.processing_s for transcript in transcripts) == pytest.approx(3.0 * len(batches))


@pytest.mark.parametrize(
    ("priority", "rows", "audio_rows"),
    [
        (Priority.FINAL, 800, 800),
        (Priority.FILE, 800, 800),
        (Priority.PARTIAL, 800, 790),
        (Priority.FINAL, 3000, 3000),
        (Priority.FINAL, 3001, 3000),
    ],
)
async def test_a_request_has_the_number_of_rows_with_audio(
    processes: Processes, priority: Priority, rows: int, audio_rows: int
) -> None:
    """The end of an unfinished utterance is not transcribed, nor what exceeds the largest window."""
    async with running(**SPLIT) as pool:
        await pool.transcribe(utterance_of(rows), "en", priority)
    (request,) = processes.of(Role.ENCODER).requests
    assert request.audio_rows == [audio_rows]


async def test_words_do_not_include_the_pause_around_them(processes: Processes) -> None:
    async with running(**COLOCATED) as pool:
        for worker in processes.started:
            worker.words = (Word(" yes", 0.0, 0.02, 0.9),)
        (word,) = (await pool.transcribe(utterance_of(), "en", Priority.FINAL)).words
    assert (word.start, word.end) == (0.0, 0.06), "the shortest word"


@pytest.mark.parametrize(
    ("priority", "frames", "is_skipped"),
    [
        (Priority.PARTIAL, SPLIT_THRESHOLD_FRAMES, True),
        (Priority.PARTIAL, SPLIT_THRESHOLD_FRAMES + 1, False),
        (Priority.FINAL, 1, False),
        (Priority.FILE, 1, False),
    ],
)
async def test_only_partials_of_short_utterances_are_skipped(
    monkeypatch: pytest.MonkeyPatch, priority: Priority, frames: int, is_skipped: bool
) -> None:
    monkeypatch.setattr(pool_module, "MAX_PARTIAL_WAIT_S", 0.01)
    pool = WorkerPool(settings_of())  # without workers
    work = begin(pool, utterance_of(frames=frames), priority)
    await asyncio.wait({work}, timeout=BUSY_TIMEOUT_S if is_skipped else 0.2)
    assert work.done() is is_skipped
    if is_skipped:
        assert isinstance(work.exception(), StaleJobError)
    await tasks.cancel_tasks([work])
    assert pool.queue_depths == (0, 0)
    assert free_slots(pool) == list(range(24))


async def test_a_partial_waits_three_seconds_for_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    async def wait(_: object, timeout: float) -> None:
        waits.append(timeout)

    monkeypatch.setattr(pool_module, "asyncio", SimpleNamespace(**vars(asyncio) | {"wait": wait}))
    with pytest.raises(StaleJobError):
        await WorkerPool(settings_of()).transcribe(utterance_of(), "en", Priority.PARTIAL)
    assert waits == [3]


async def test_a_partial_that_a_worker_has_begun_is_not_skipped(
    processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_module, "MAX_PARTIAL_WAIT_S", 0.01)
    processes.waiting_roles = {Role.ENCODER}
    async with running(**SPLIT) as pool:
        work = begin(pool, priority=Priority.PARTIAL)
        await until(lambda: processes.of(Role.ENCODER).requests)
        await asyncio.wait({work}, timeout=0.1)
        assert not work.done()
        processes.of(Role.ENCODER).may_answer.set()
        assert (await work).text.startswith("slot")


async def test_a_final_gets_the_next_free_slot_before_partials_and_files() -> None:
    pool = WorkerPool(settings_of(**SPLIT))  # without workers
    using = [begin(pool) for _ in range(24)]
    await settle()
    others = [begin(pool, utterance_of(value=float(each)), each) for each in reversed(Priority)]
    await settle()
    assert pool.queue_depths == (27, 0)
    queue = pool.stages[Role.ENCODER].queue
    for position, wanted in enumerate(Priority):
        before = len(queue._queues[wanted])
        await tasks.cancel_tasks([using[position]])
        freed = 1 if wanted is Priority.FINAL else 0
        assert len(queue._queues[wanted]) == before + 1 - freed
        assert pool.queue_depths == (26 - position, 0)
        assert free_slots(pool) == []
    await tasks.cancel_tasks([*using, *others])
    assert free_slots(pool) == list(range(24))


async def test_a_cancelled_window_frees_its_slot_once(processes: Processes) -> None:
    """Whether it waits for a stage, or a worker processes it at the time."""
    processes.waiting_roles = {Role.ENCODER, Role.DECODER}
    async with running(**SPLIT) as pool:
        in_prefill = begin(pool)
        await until(lambda: processes.of(Role.ENCODER).requests)
        waiting = begin(pool)
        await settle()
        assert pool.queue_depths == (1, 0)
        await tasks.cancel_tasks([waiting])
        assert pool.queue_depths == (0, 0)
        assert len(free_slots(pool)) == 23
        await tasks.cancel_tasks([in_prefill])
        assert len(free_slots(pool)) == 23, "the worker still writes to its slot"
        processes.of(Role.ENCODER).may_answer.set()
        await until(lambda: len(free_slots(pool)) == 24)
        assert processes.of(Role.DECODER).requests == []
        in_decode = begin(pool)
        await until(lambda: processes.of(Role.DECODER).requests)
        await tasks.cancel_tasks([in_decode])
        assert len(free_slots(pool)) == 23
        processes.of(Role.DECODER).may_answer.set()
        await until(lambda: len(free_slots(pool)) == 24)
        assert free_slots(pool) == list(range(24))


async def test_queue_depths_are_those_of_prefill_and_decode(processes: Processes) -> None:
    processes.waiting_roles = {Role.DECODER}
    async with running(**SPLIT) as pool:
        decoding = begin(pool)
        await until(lambda: processes.of(Role.DECODER).requests)
        later = [begin(pool) for _ in range(3)]
        await until(lambda: pool.queue_depths == (0, 3))
        processes.of(Role.DECODER).may_answer.set()
        await asyncio.gather(decoding, *later)
        assert pool.queue_depths == (0, 0)


@pytest.mark.parametrize("role", [Role.ENCODER, Role.DECODER])
async def test_attempts_of_the_stages_count_separately(processes: Processes, role: Role) -> None:
    """A window is abandoned after three crashes in one stage; crashes in prefill do not count in decode."""
    pool = WorkerPool(settings_of(**SPLIT))
    deaths = {Role.ENCODER: 2, Role.DECODER: 2}
    start = processes.start

    async def start_dying(role: Role, memory: SlotMemory, slots: int, *, threads: int, number: int) -> Worker:
        worker = await start(role, memory, slots, threads=threads, number=number)
        worker.deaths, deaths[role] = min(1, deaths[role]), max(0, deaths[role] - 1)
        return worker

    processes.start = start_dying  # type: ignore[method-assign]
    task = asyncio.create_task(pool.run())
    async with asyncio.timeout(BUSY_TIMEOUT_S):
        assert (await begin(pool)).text.startswith("slot")
        assert pool.restarts_by_role == {"encoder": 2, "decoder": 2}
        deaths[role] = 2
        processes.of(role).deaths = 1
        with pytest.raises(JobFailedError):
            await begin(pool)
    await tasks.cancel_tasks([task])
    assert free_slots(pool) == list(range(24))


class Seconds:
    """Time that passes only while the pool sleeps, which a test lets it do."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._now = self._wanted = 0.0
        self._sleep = asyncio.sleep
        monkeypatch.setattr(pool_module, "asyncio", SimpleNamespace(**vars(asyncio) | {"sleep": self.sleep}))

    async def sleep(self, duration_s: float) -> None:
        self._now += duration_s
        await self._sleep(0)
        while self._now > self._wanted:
            await self._sleep(0)

    async def pass_until(self, now: float) -> None:
        self._wanted = now
        for _ in range(500):
            if self._now > now:
                return
            await self._sleep(0)
        raise AssertionError("the pool does not sleep")


async def test_a_pool_is_stuck_after_thirty_seconds_without_a_finished_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """``docs/runbooks/engine-stuck.md``: the workers have not finished a batch for 30 s."""
    time, pool = Seconds(monkeypatch), WorkerPool(settings_of(**SPLIT))
    encoder, decoder = pool.stages.values()
    watching = asyncio.create_task(pool._watch_stalls())
    await time.pass_until(100)
    assert not pool.is_stuck, "there is no work"
    decoder._active_batches = 1
    await time.pass_until(129)
    assert not pool.is_stuck
    await time.pass_until(130)
    assert pool.is_stuck
    decoder.completed_batches += 1
    await time.pass_until(131)
    assert not pool.is_stuck, "it works again"
    for now in range(132, 180):
        encoder.completed_batches += 1
        decoder.completed_batches += now % 29 == 0
        await time.pass_until(now)
        assert not pool.is_stuck
    await time.pass_until(220)
    assert pool.is_stuck
    decoder._active_batches = 0
    await time.pass_until(221)
    assert not pool.is_stuck, "the work has gone"
    await tasks.cancel_tasks([watching])


async def test_a_pool_that_never_finishes_a_batch_is_stuck_after_thirty_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    time, pool = Seconds(monkeypatch), WorkerPool(settings_of(**SPLIT))
    pool.stages[Role.ENCODER]._active_batches = 1
    watching = asyncio.create_task(pool._watch_stalls())
    await time.pass_until(29)
    assert not pool.is_stuck
    await time.pass_until(30)
    assert pool.is_stuck
    await tasks.cancel_tasks([watching])


async def test_each_window_of_a_batch_has_a_text() -> None:
    """Otherwise, the caller of a window without one would wait forever."""
    pool, reply = WorkerPool(settings_of(**SPLIT)), BatchReply(texts=[DecodedText("yes", "en")], stages_ms={})
    waiting = [begin(pool) for _ in range(2)]
    await settle()
    batch = pool.stages[Role.ENCODER].queue.pop_batch(2)
    worker: Any = SimpleNamespace(send_request=AsyncMock(return_value=reply))
    with pytest.raises(ValueError, match="shorter"):
        await pool._process_batch(Role.DECODER, worker, batch)
    await tasks.cancel_tasks(waiting)


def test_stages_follow_each_other() -> None:
    pool = WorkerPool(settings_of(**SPLIT))
    follows: list[Stage | None] = [stage._follows for stage in pool.stages.values()]
    assert follows == [None, pool.stages[Role.ENCODER]]
