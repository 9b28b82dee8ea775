"""Frameworks of voice agents, unmodified, each with its own speech-to-text service."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from ops.demo.command import SAMPLE, SAMPLE_TEXT, word_error_rate
from ops.demo.services import VoicePath, free_port
from tests.voice.relay import load_balancer

PROGRAM = Path(__file__).parent / "frameworks/hear.py"
PYTHON = Path(__file__).parents[2] / ".tools/frameworks/bin/python"
WORST_ERROR_RATE = 0.2
ENDED_WITHIN_S = 180


@pytest.mark.nightly
@pytest.mark.parametrize("framework", ["livekit-openai", "livekit-deepgram", "pipecat-openai", "pipecat-deepgram"])
async def test_framework_hears_the_sample_through_a_restart_and_a_death(path: VoicePath, framework: str) -> None:
    """An ASR host dies behind the first sentence, a gateway stops behind the second: nobody notices."""
    assert PYTHON.exists(), "`make test-voice ARGS=...` installs the frameworks"
    ports = {name: free_port() for name in ("gateway-1", "gateway-2")}
    for name, port in ports.items():
        gateway = path.start_gateway(name, port, VOICE_DRAIN_TIMEOUT_S="0")
    path.wait_ready()
    path.wait_for_capacity(gateway)
    public = free_port()
    async with asyncio.timeout(ENDED_WITHIN_S), load_balancer(public, list(ports.values())):
        program = await asyncio.create_subprocess_exec(
            *map(str, (PYTHON, PROGRAM, framework, f"127.0.0.1:{public}", SAMPLE)),
            env={**os.environ, "PYTHONPATH": ""},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        assert program.stdout
        first = (await program.stdout.readline()).decode()
        await asyncio.to_thread(path.services["asr-1"].stop, signal.SIGKILL)
        second = (await program.stdout.readline()).decode()
        await asyncio.to_thread(path.services["gateway-1"].stop)
        out, err = await program.communicate()
    heard = " ".join([first, second, *out.decode().splitlines()])
    said = SAMPLE_TEXT.read_text(encoding="utf-8")
    assert word_error_rate(said, heard) <= WORST_ERROR_RATE, f"{heard}\n{err.decode()[-3000:]}"
