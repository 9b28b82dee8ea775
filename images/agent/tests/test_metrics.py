"""Figures of turns, prompts and interruptions, and the end of a turn, from the frames of a pipeline."""

import json
import logging
import time
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from pipecat.frames.frames import (
    BotStartedSpeakingFrame,
    BotStoppedSpeakingFrame,
    Frame,
    InterruptionFrame,
    VADUserStartedSpeakingFrame,
)
from pipecat.observers.user_bot_latency_observer import LatencyBreakdown, LatencyContribution, LatencyOwnerKind
from pipecat.transports.base_output import BaseOutputTransport

from voice_agent.metrics import Metrics
from voice_agent.turns import TurnTracker
from voice_blueprint.contract.metrics import LATENCY_BUCKETS_MS
from voice_runtime import metrics

OUTPUT = MagicMock(spec=BaseOutputTransport)


def pushed(frame: Frame, source: object = OUTPUT) -> Any:
    return SimpleNamespace(frame=frame, source=source)


def part(key: str, took_s: float) -> LatencyContribution:
    return LatencyContribution(
        key=key, label=key, owner=key, owner_kind=LatencyOwnerKind.SERVICE, start_time=0.0, duration_secs=took_s
    )


def values(metrics: Metrics) -> dict[str, float]:
    rows = (line.rsplit(" ", 1) for line in metrics.to_text().decode().splitlines() if line[0] != "#")
    return {series: float(value) for series, value in rows}


@pytest.fixture
def lines() -> list[str]:
    return []


@pytest.fixture
def of_process(lines: list[str]) -> Metrics:
    return Metrics(3, metrics.Metrics("test", "agent", lines.append))


def test_a_turn_is_split_into_stages(of_process: Metrics, lines: list[str], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "voice_agent.metrics")
    contributions = [part("hearing", 1.5), part("model", 1.5), part("hearing", 0.75)]
    of_process.record_turn(LatencyBreakdown(total_secs=3.75, contributions=contributions))
    told = values(of_process)
    assert told["voice_agent_turn_seconds_sum"] == 3.75
    assert told['voice_agent_stage_seconds_sum{stage="hearing"}'] == 2.25
    assert told['voice_agent_stage_seconds_sum{stage="model"}'] == 1.5
    [record] = caplog.records
    assert record.__dict__["fields"] == {"total_ms": 3750, "stages_ms": {"hearing": 2250, "model": 1500}}
    of_process.flush(2)
    written = {name: value for line in lines for name, value in json.loads(line).items()}
    assert (written["TurnLatency"], written["Conversations"]) == (3750, 2)


def test_histograms_have_the_buckets_of_the_contract(of_process: Metrics) -> None:
    bounds = [series.split('"')[1] for series in values(of_process) if "turn_seconds_bucket" in series]
    assert [1000 * float(bound) for bound in bounds[:-1]] == pytest.approx(LATENCY_BUCKETS_MS)


async def test_an_interruption_lasts_from_the_onset_of_speech_to_silence(of_process: Metrics, lines: list[str]) -> None:
    observer, onset = (
        of_process.create_interruption_observer(),
        VADUserStartedSpeakingFrame(start_secs=0.5, timestamp=time.time() - 1),
    )

    async def count(*frames: Any) -> float:
        for each in frames:
            await observer.on_push_frame(each)
        return values(of_process)["voice_agent_barge_in_seconds_count"]

    # It interrupts nothing before the agent speaks, after it has spoken, and elsewhere in the pipeline.
    assert await count(pushed(InterruptionFrame()), pushed(onset), pushed(InterruptionFrame())) == 0
    spoke = pushed(BotStartedSpeakingFrame()), pushed(BotStoppedSpeakingFrame())
    assert await count(*spoke, pushed(onset), pushed(InterruptionFrame())) == 0
    assert await count(spoke[0], pushed(onset), pushed(InterruptionFrame(), object()), pushed(onset, object())) == 0
    assert await count(pushed(InterruptionFrame())) == 1
    assert await count(pushed(InterruptionFrame())) == 1
    assert 1.5 <= values(of_process)["voice_agent_barge_in_seconds_sum"] < 60
    of_process.flush(0)
    written = {name: value for line in lines for name, value in json.loads(line).items()}
    assert written["BargeInLatency"] == pytest.approx(1000 * values(of_process)["voice_agent_barge_in_seconds_sum"])


async def test_a_turn_is_over_when_the_answer_has_been_played() -> None:
    turns = TurnTracker()
    assert turns.ended.is_set()
    turns.mark_response_pending()
    assert not turns.ended.is_set()
    turns.clear_response_pending()
    assert turns.ended.is_set(), "a question without words"
    turns.mark_response_pending()
    await turns.on_push_frame(pushed(BotStartedSpeakingFrame()))
    turns.clear_response_pending()
    assert not turns.ended.is_set(), "the answer is still played"
    await turns.on_push_frame(pushed(BotStoppedSpeakingFrame(), object()))
    assert not turns.ended.is_set(), "the frame has not reached the output"
    await turns.on_push_frame(pushed(BotStoppedSpeakingFrame()))
    assert turns.ended.is_set()
    turns.mark_response_pending()
    await turns.on_push_frame(pushed(BotStartedSpeakingFrame()))
    await turns.on_push_frame(pushed(BotStoppedSpeakingFrame()))
    assert not turns.ended.is_set(), "a filler, and the answer is still pending"
    turns.clear_response_pending()
    assert turns.ended.is_set()
    await turns.on_push_frame(pushed(BotStartedSpeakingFrame()))
    assert not turns.ended.is_set(), "it speaks without a question"
