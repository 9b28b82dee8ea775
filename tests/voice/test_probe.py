"""The probe of a rollout speaks to a real gateway, and says what it lacks."""

from pathlib import Path

import pytest
import typer

from ops.demo.command import SAMPLE, SAMPLE_TEXT
from ops.demo.services import VoicePath
from ops.rollout.command import prober


def test_a_release_is_measured_and_compared_by_a_call(
    whole_path: VoicePath, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gateway = whole_path.start_gateway()
    whole_path.wait_ready()
    whole_path.wait_for_capacity(gateway)
    compare = prober(gateway.url, None, None, SAMPLE, SAMPLE_TEXT)
    assert "of the words wrong, finals after" in capsys.readouterr().err
    assert "of the words" not in compare()  # how soon they come is a matter of the machine

    with pytest.raises(typer.Exit):
        prober(gateway.url, "jwt", "NOT_SET", SAMPLE, SAMPLE_TEXT)
    assert "that variable is not set" in capsys.readouterr().err
    with pytest.raises(typer.Exit):
        prober(gateway.url, None, None, SAMPLE, tmp_path / "nothing.txt")
    assert "nothing.txt" in capsys.readouterr().err
