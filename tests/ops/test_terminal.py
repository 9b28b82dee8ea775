"""What a terminal, a full disk or a closed pipe gets from the `voice` command."""

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLAN = ("plan", "deployments/production-us-east-1.yaml")
VOICE = (sys.executable, "-c", "from ops.cli import main; main()")


def on_a_terminal(columns: int, *arguments: str) -> str:
    """Return what a command prints where its output is a terminal of so many columns."""
    ours, theirs = pty.openpty()
    environment = os.environ | {"COLUMNS": str(columns), "TERM": "dumb"}
    with subprocess.Popen([*VOICE, *arguments], cwd=ROOT, stdout=theirs, stderr=theirs, env=environment) as running:  # noqa: S603
        os.close(theirs)
        printed = b""
        while chunk := _read(ours):
            printed += chunk
    os.close(ours)
    assert running.returncode == 0, printed
    return printed.decode()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65_536)
    except OSError:  # the other side has gone
        return b""


@pytest.mark.parametrize(
    "arguments", [PLAN, ("simulate", "deployments/production-us-east-1.yaml", "--load", "{course}", "--peers")]
)
def test_a_narrow_terminal_cuts_no_number(arguments: tuple[str, ...], tmp_path: Path) -> None:
    course = tmp_path / "course.csv"
    course.write_text("second,calls\n0,1000\n120,3000\n")
    asked = [each.format(course=course) for each in arguments]
    narrow, wide = (on_a_terminal(columns, *asked) for columns in (60, 400))
    assert "…" not in narrow
    numbers = re.compile(r"\d[\d.,]*")
    assert sorted(numbers.findall(narrow)) == sorted(numbers.findall(wide))
