"""Speech during an answer, frame by frame, with a fixed clock."""

import asyncio
from types import SimpleNamespace

import pytest
from pipecat.frames.frames import (
    BotStartedSpeakingFrame,
    BotStoppedSpeakingFrame,
    InputAudioRawFrame,
    VADUserStartedSpeakingFrame,
)
from pipecat.turns.types import ProcessFrameResult
from pipecat.utils.asyncio.task_manager import TaskManager

from images.agent.tests.conftest import RATE, SAMPLE_BYTES
from voice_agent.interruptions import MIN_INTERRUPTION_S, InterruptionStrategy
from voice_agent.playback import Playback

ONSET_S = 1_000_000.0
DETECTED_AFTER_S = 0.25
PAUSED_AFTER_S = 0.5
"""Time from the report of speech to the pause of the answer."""
MESSAGE_S = 0.25
MESSAGE = InputAudioRawFrame(bytes(round(MESSAGE_S * RATE) * SAMPLE_BYTES), RATE, 1)


@pytest.mark.parametrize("is_speaking", [True, False])
async def test_a_second_of_speech_interrupts_and_the_time_to_silence_is_reported(
    monkeypatch: pytest.MonkeyPatch, *, is_speaking: bool
) -> None:
    """An agent that has not begun to speak, or has ended, is silent already."""
    reported_at = ONSET_S + DETECTED_AFTER_S
    monkeypatch.setattr("voice_agent.interruptions.time", SimpleNamespace(time=lambda: reported_at + PAUSED_AFTER_S))
    playback, durations, processed = Playback(), list[float](), asyncio.Event()
    strategy = InterruptionStrategy(playback, lambda: True, str, durations.append, processed)
    strategy.add_event_handler("on_user_turn_started", lambda *_: processed.set())
    strategy._task_manager = TaskManager()
    states = [BotStartedSpeakingFrame(), BotStoppedSpeakingFrame(), *[BotStartedSpeakingFrame()] * is_speaking]
    for frame in states:
        await strategy.process_frame(frame)
    await strategy.process_frame(VADUserStartedSpeakingFrame(start_secs=DETECTED_AFTER_S, timestamp=reported_at))
    assert not playback._released.is_set()
    results = [await strategy.process_frame(MESSAGE) for _ in range(round(MIN_INTERRUPTION_S / MESSAGE_S))]
    assert results == [ProcessFrameResult.CONTINUE] * (len(results) - 1) + [ProcessFrameResult.STOP]
    assert durations == [DETECTED_AFTER_S + PAUSED_AFTER_S] * is_speaking
    await strategy.cleanup()
    assert playback._released.is_set()
