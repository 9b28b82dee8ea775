"""The server of test runs: a run that kills it neither stops other runs nor counts as passed."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mutants.forks import Forks

PASSES = "def test_passes(): pass\n"
ENDS_ITS_SERVER = "import os, signal\ndef test_ends(): os.kill(os.getppid(), signal.SIGKILL)\n"
LIMIT_S = 120


@pytest.fixture
def forks(tmp_path: Path) -> Iterator[Forks]:
    for name, source in (("passes", PASSES), ("ends_its_server", ENDS_ITS_SERVER)):
        (tmp_path / f"test_{name}.py").write_text(source, encoding="utf-8")
    with Forks(tmp_path, dict(os.environ)) as running:
        yield running


def test_an_exited_server_is_restarted(forks: Forks) -> None:
    assert forks.run(["-q", "test_passes.py"], LIMIT_S) == pytest.ExitCode.OK
    os.kill(forks._server.pid, signal.SIGKILL)
    assert forks.run(["-q", "test_passes.py"], LIMIT_S) == pytest.ExitCode.OK


def test_a_run_that_kills_its_server_counts_as_failed(forks: Forks) -> None:
    assert forks.run(["-q", "test_ends_its_server.py"], LIMIT_S) == -signal.SIGKILL
    assert forks.run(["-q", "test_passes.py"], LIMIT_S) == pytest.ExitCode.OK


def test_modules_of_this_folder_are_not_importable_by_their_bare_names(forks: Forks, tmp_path: Path) -> None:
    test = "import importlib.util\ndef test_absent(): assert importlib.util.find_spec('forks') is None\n"
    (tmp_path / "test_absent.py").write_text(test, encoding="utf-8")
    assert forks.run(["-q", "test_absent.py"], LIMIT_S) == pytest.ExitCode.OK
