"""What `make demo-agent` ends with; that it gets there is tested over real programs in tests/voice."""

import re

import pytest

from ops.demo.agent.command import WORST_ERROR_RATE, Talk, Turn, report

FAST, SLOW = {"transcription": 100, "speech_synthesis": 300}, {"transcription": 100, "speech_synthesis": 1100}


def test_a_talk_ends_with_each_stage_and_voice_to_voice(capsys: pytest.CaptureFixture[str]) -> None:
    prompts = [{"tokens": 30, "cached": 0}, {"tokens": 70, "cached": 40}]
    report(Talk([Turn("Paris it is.", "Paris, it is")], [FAST, FAST, SLOW], 0.25, prompts))
    told = [" ".join(re.findall(r"[\w%:.,']+", line)) for line in capsys.readouterr().out.splitlines()]
    assert "transcription 100 15%" in told
    assert "speech synthesis 300 85%" in told
    assert "voice to voice: p50 400 ms, p95 1200 ms, of 3 turns" in told
    assert "interrupted: silent 250 ms after the onset of speech" in told
    assert "in the language model's cache: 40% of 100 tokens that it was asked with" in told


def test_an_answer_that_was_not_heard_as_given_is_an_error() -> None:
    turn = Turn("The capital is Paris.", "It rains today in town")
    assert turn.error_rate > WORST_ERROR_RATE
    with pytest.raises(ConnectionError, match="rains"):
        report(Talk([turn], [FAST], 0.25, [{"tokens": 1, "cached": 0}]))
