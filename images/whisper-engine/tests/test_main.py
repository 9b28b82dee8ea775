"""Exit code and output of an engine that cannot start, within this process."""

import logging
import runpy
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from voice_whisper import __main__ as program
from voice_whisper.process import WorkerStartError

MODEL = WorkerStartError("no such folder")


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(program, "environment", SimpleNamespace(read_settings=lambda kind: kind))
    level = logging.getLogger("httpx2").level
    yield
    logging.getLogger("httpx2").setLevel(level)


def run_main(monkeypatch: pytest.MonkeyPatch, *errors: BaseException) -> int:
    async def run(*_: Any) -> None:
        if errors:
            raise BaseExceptionGroup("several", errors)

    monkeypatch.setattr(program, "_run_engine", run)
    return program.main()


def test_an_engine_that_was_stopped_has_succeeded(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_main(monkeypatch) == 0
    assert capsys.readouterr().err == ""


def test_reasons_of_a_failed_start_are_reported_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every worker reports that the model cannot be loaded, from nested task groups."""
    nested = BaseExceptionGroup("", [MODEL, BaseExceptionGroup("", [WorkerStartError("no such folder")])])
    assert run_main(monkeypatch, OSError("port in use"), nested) == 1
    assert capsys.readouterr().err == (
        "the engine cannot start: port in use\nthe engine cannot start: no such folder\n"
    )


def test_invalid_variables_end_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """The exit code is the usual one of a program with invalid arguments."""
    monkeypatch.delenv("VOICE_HOST", raising=False)
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(program.__file__, run_name="__main__")
    assert ended.value.code == 2


def test_another_error_is_not_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BaseExceptionGroup, match="several"):
        run_main(monkeypatch, KeyError("mistake"))
