"""Worker processes from the perspective of the main process, with scripts in place of workers."""

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

from images.conftest import BUSY_TIMEOUT_S
from voice_whisper import process as process_module
from voice_whisper.backends.base import DecodedText, Role
from voice_whisper.memory import SlotMemory
from voice_whisper.messages import BatchRequest
from voice_whisper.process import WorkerDiedError, WorkerProcess, WorkerStartError

READY = """print('{"bins": 80, "languages": ["en"]}', flush=True)"""
REPLY = """'{"texts": [{"text": "yes", "language": "en"}], "stages_ms": {"decode": 3}}'"""
ECHO = f"{READY}\nfor line in sys.stdin: print({REPLY}, flush=True)"
REQUEST = BatchRequest(slots=[0], bins=80, rows=1000, languages=["en"], audio_rows=[1000])

Run = Callable[[str], Any]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Start a Python script in place of a worker."""
    memory = SlotMemory(3)

    async def start(script: str) -> WorkerProcess:
        program = tmp_path / "worker"
        program.write_text(f"#!{sys.executable}\nimport json, os, signal, sys, time\n{script}\n")
        program.chmod(0o755)
        with monkeypatch.context() as patch:
            patch.setattr(sys, "executable", str(program))
            return await WorkerProcess.start(Role.DECODER, memory, 3, threads=2, number=1)

    return start


async def test_a_worker_answers_until_it_is_stopped(run: Run) -> None:
    worker = await run(ECHO)
    assert (worker.model.bins, worker.model.languages) == (80, ("en",))
    assert worker.model.supports_batch_encoding is False, "the default of a backend"
    for _ in range(2):
        reply = await worker.send_request(REQUEST)
        assert reply.texts == [DecodedText("yes", "en")]
        assert reply.stages_ms == {"decode": 3}
        assert reply.states is None
    assert await worker.wait_while_alive(asyncio.sleep(0, "result")) == "result"
    await worker.stop()
    assert worker._process.returncode == 0, "it was not killed"
    await worker.stop()
    with pytest.raises(WorkerDiedError, match=rf"worker {worker.pid} is gone"):
        await worker.send_request(REQUEST)


async def test_a_worker_gets_its_role_memory_and_share(run: Run) -> None:
    """Its own session keeps Ctrl-C from the worker, which the main process stops."""
    script = f"""
os.fstat(int(sys.argv[4]))
assert os.getsid(0) == os.getpid(), "the session of the main process"
assert sys.argv[1:4] + sys.argv[5:] == ["-m", "voice_whisper.worker", "decoder", "3", "2", "1"], sys.argv
{ECHO}"""
    worker = await run(script)
    await worker.stop()


async def test_a_worker_reads_whole_requests(run: Run) -> None:
    script = f"""{READY}
request = json.loads(sys.stdin.readline())
reply = {{"texts": [{{"text": json.dumps(request), "language": "en"}}], "stages_ms": {{}}}}
print(json.dumps(reply), flush=True)
sys.stdin.read()"""
    worker = await run(script)
    (text,) = (await worker.send_request(REQUEST)).texts
    await worker.stop()
    assert BatchRequest.model_validate_json(text.text) == REQUEST


async def test_a_worker_that_cannot_load_its_model_says_why(run: Run) -> None:
    with pytest.raises(WorkerStartError, match=r"^no such folder$"):
        await run("""print('{"reason": "no such folder"}', flush=True)""")


@pytest.mark.parametrize("script", ["", "sys.stdout.write('{')", "sys.exit(3)"])
async def test_a_worker_that_ends_at_once_has_died(run: Run, script: str) -> None:
    with pytest.raises(WorkerDiedError, match="is gone"):
        await run(script)


async def test_waiting_ends_with_the_worker(run: Run) -> None:
    worker = await run(f"{READY}\nsys.stdin.readline(); sys.exit(3)")
    waiting = asyncio.create_task(worker.wait_while_alive(asyncio.sleep(BUSY_TIMEOUT_S)))
    with pytest.raises(WorkerDiedError, match="is gone"):
        await worker.send_request(REQUEST)
    with pytest.raises(WorkerDiedError, match=f"worker {worker.pid} ended with 3"):
        await waiting
    await worker.stop()


async def test_replies_of_up_to_four_megabytes_are_read(run: Run) -> None:
    size = 4_190_000
    long_reply = REPLY.replace('"yes"', f"""\"' + {size} * 'a' + '\"""")
    worker = await run(ECHO.replace(REPLY, long_reply))
    (text,) = (await worker.send_request(REQUEST)).texts
    await worker.stop()
    assert len(text.text) == size


@pytest.mark.parametrize(
    ("reply", "problem"),
    [("((4 << 20) + 1) * 'a'", "over 4194304 bytes"), ("'{}'", "invalid reply and was killed: Field required")],
)
async def test_a_worker_with_another_reply_is_killed(run: Run, reply: str, problem: str) -> None:
    worker = await run(ECHO.replace(REPLY, reply))
    with pytest.raises(WorkerDiedError, match=problem):
        await worker.send_request(REQUEST)
    with pytest.raises(WorkerDiedError, match="ended with -9"):
        await worker.wait_while_alive(asyncio.sleep(BUSY_TIMEOUT_S))
    await worker.stop()


async def test_a_worker_that_does_not_end_is_killed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_module, "STOP_TIMEOUT_S", 0.05)
    worker = await run(f"{READY}\ntime.sleep({BUSY_TIMEOUT_S})")
    await worker.stop()
    assert worker._process.returncode == -9
    with pytest.raises(ProcessLookupError):
        os.kill(worker.pid, 0)


async def test_a_worker_without_pipes_is_a_mistake() -> None:
    worker = WorkerProcess(Mock(stdin=None, stdout=None, returncode=None, pid=7, wait=AsyncMock(return_value=0)))
    with pytest.raises(RuntimeError, match="without a pipe"):
        await worker.send_request(REQUEST)
    worker._process.stdin = Mock(drain=AsyncMock())
    with pytest.raises(RuntimeError, match="without a pipe"):
        await worker.send_request(REQUEST)
