"""`voice loadtest` measures the agent's turns."""

import asyncio
import json
import wave
from pathlib import Path

from redis.asyncio import Redis
from typer.testing import CliRunner

from images.agent.tests.conftest import RATE, running_agent, speech
from images.agent.tests.engines import Engines
from voice_ops.cli import app

TURNS = 2
SPOKEN_S = 1.5


async def test_turns_are_measured_under_load(engines: Engines, store: Redis, tmp_path: Path) -> None:
    file = tmp_path / "question.wav"
    with wave.open(str(file), "wb") as question:
        question.setparams((1, 2, RATE, 0, "NONE", ""))
        question.writeframes(speech(SPOKEN_S).tobytes())
    engines.finals, engines.answers, engines.spoken_s = [(0, "What is this?")], ["A test."] * 3 * TURNS, 0.5
    load = ["--api", "conversation", "--audio", str(file), "--concurrency", str(TURNS), "--requests", str(TURNS)]
    async with running_agent(engines, store, conversations=2 * TURNS) as place:
        command = ["loadtest", place.url, *load, "--warmup", "1", "--json"]
        result = await asyncio.to_thread(CliRunner().invoke, app, command)
    assert result.exit_code == 0, result.output
    [found] = json.loads(result.stdout)["results"]
    metrics = found["metrics"]
    assert (found["requests"], found["failures"]) == (TURNS, {})
    assert 0 < metrics["turn"]["p50"] < metrics["final"]["p50"]
    assert metrics["first"]["p50"] > 1000 * SPOKEN_S
