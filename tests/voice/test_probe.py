"""The probe of a rollout speaks to a real gateway, and says what it lacks."""

import wave
from pathlib import Path

import pytest
import typer

from ops.call.recording import RATE
from ops.demo.services import VoicePath
from ops.rollout.command import prober
from tests.voice.callers import SENTENCES, speech


def test_a_release_is_measured_and_compared_by_a_call(
    whole_path: VoicePath, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gateway = whole_path.start_gateway()
    whole_path.wait_ready()
    whole_path.wait_for_capacity(gateway)
    recording, text = tmp_path / "said.wav", tmp_path / "said.txt"
    with wave.open(str(recording), "wb") as sound:
        sound.setparams((1, 2, RATE, 0, "NONE", ""))
        sound.writeframes(speech(SENTENCES[:2], 1.0).tobytes())
    text.write_text(" ".join(SENTENCES[:2]), encoding="utf-8")
    compare = prober(gateway.url, None, None, recording, text)
    assert "of the words wrong, finals after" in capsys.readouterr().err
    assert "of the words" not in compare()  # how soon they come is a matter of the machine

    with pytest.raises(typer.Exit):
        prober(gateway.url, "jwt", "NOT_SET", recording, text)
    assert "that variable is not set" in capsys.readouterr().err
    with pytest.raises(typer.Exit):
        prober(gateway.url, None, None, recording, tmp_path / "nothing.txt")
    assert "nothing.txt" in capsys.readouterr().err
