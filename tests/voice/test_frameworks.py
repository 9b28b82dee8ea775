"""Unmodified voice agent frameworks with their speech-to-text services."""

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.voice.relay import load_balancer
from voice_ops.demo.command import SAMPLE_FILE, SAMPLE_TEXT_FILE, calculate_word_error_rate
from voice_ops.demo.services import LOOPBACK, VoicePath
from voice_sandbox.loopback import find_free_port

PROGRAM = Path(__file__).parent / "frameworks/hear.py"
PYTHON = Path(__file__).parents[2] / ".tools/frameworks/bin/python"
MAX_ERROR_RATE = 0.2
MAX_ERROR_RATE_WITH_RECONNECT = 0.4
"""Maximum word error rate of a 24 s recording with one reconnect, during which speech is lost."""
ENDED_WITHIN_S = 180


@pytest.mark.nightly
@pytest.mark.parametrize("framework", ["livekit-openai", "livekit-deepgram", "pipecat-openai", "pipecat-deepgram"])
async def test_framework_transcribes_the_sample_despite_a_killed_host(path: VoicePath, framework: str) -> None:
    """Killing an ASR host after the first sentence does not affect the transcript."""
    assert PYTHON.exists(), "`make test-voice ARGS=...` installs the frameworks"
    port = find_free_port()
    gateway = path.start_gateway("gateway", port)
    path.wait_until_ready()
    path.wait_for_capacity(gateway)
    await check_hearing(framework, port, lambda: path.services["asr-1"].stop(signal.SIGKILL), MAX_ERROR_RATE)


@pytest.mark.nightly
@pytest.mark.parametrize("framework", ["livekit-openai", "livekit-deepgram"])
async def test_livekit_continues_after_a_dropped_socket(path: VoicePath, framework: str) -> None:
    """Its gateway is killed, and the plugin's next connection reaches another one behind the load balancer.

    A restart at the same address can take longer than the plugin's retries.
    """
    assert PYTHON.exists(), "`make test-voice ARGS=...` installs the frameworks"
    ports = {name: find_free_port() for name in ("gateway-1", "gateway-2")}
    for name, port in ports.items():
        gateway = path.start_gateway(name, port)
    path.wait_until_ready()
    path.wait_for_capacity(gateway)
    public = find_free_port()
    async with load_balancer(public, list(ports.values())):
        await check_hearing(
            framework, public, lambda: path.services["gateway-1"].stop(signal.SIGKILL), MAX_ERROR_RATE_WITH_RECONNECT
        )


async def check_hearing(framework: str, port: int, break_: Callable[[], object], max_error_rate: float) -> None:
    """Transcribe the sample with a framework, inject a fault after its first sentence, and check the result."""
    async with asyncio.timeout(ENDED_WITHIN_S):
        program = await asyncio.create_subprocess_exec(
            *map(str, (PYTHON, PROGRAM, framework, f"{LOOPBACK}:{port}", SAMPLE_FILE)),
            env={**os.environ, "PYTHONPATH": ""},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        assert program.stdout
        first = (await program.stdout.readline()).decode()
        await asyncio.to_thread(break_)
        out, err = await program.communicate()
    heard = " ".join([first, *out.decode().splitlines()])
    said = SAMPLE_TEXT_FILE.read_text(encoding="utf-8")
    assert calculate_word_error_rate(said, heard) <= max_error_rate, f"{heard}\n{err.decode()[-3000:]}"
