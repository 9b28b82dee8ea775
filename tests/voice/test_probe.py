"""The probe of a rollout makes a call to a real gateway, and reports missing words."""

import wave
from pathlib import Path

import pytest
import typer

from tests.voice.callers import SENTENCES, speech
from voice_ops.call.recording import SAMPLE_RATE_HZ
from voice_ops.demo.services import VoicePath
from voice_ops.rollout.aws import create_probe


def test_a_probe_call_measures_and_compares_a_release(
    whole_path: VoicePath, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gateway = whole_path.start_gateway()
    whole_path.wait_until_ready()
    whole_path.wait_for_capacity(gateway)
    recording, text = tmp_path / "said.wav", tmp_path / "said.txt"
    with wave.open(str(recording), "wb") as sound:
        sound.setparams((1, 2, SAMPLE_RATE_HZ, 0, "NONE", ""))
        sound.writeframes(speech(SENTENCES[:2], 1.0).tobytes())
    text.write_text(" ".join(SENTENCES[:2]), encoding="utf-8")
    compare = create_probe(gateway.url, None, None, recording, text)
    assert "of the words wrong, finals after" in capsys.readouterr().err
    assert "of the words" not in compare()  # delays depend on the machine

    with pytest.raises(typer.Exit):
        create_probe(gateway.url, "jwt", "NOT_SET", recording, text)
    assert "that variable is not set" in capsys.readouterr().err
    with pytest.raises(typer.Exit):
        create_probe(gateway.url, None, None, recording, tmp_path / "nothing.txt")
    assert "nothing.txt" in capsys.readouterr().err
