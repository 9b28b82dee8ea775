"""Runs a benchmark and writes its output to docs/measurements.md: ``python -m bench.record NAME``.

The page contains a marker with the command: ``<!-- bench: vad: make bench-vad -->``. The output is written below the
marker with commit, machine and date, so that each figure can be traced to its measurement.
"""

import re
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from voice_ops.exits import FAILED, INVALID_INPUT
from voice_ops.output import create_exit
from voice_ops.provenance import describe_machine, get_current_commit

ROOT = Path(__file__).parents[1]
MEASUREMENTS_PAGE = ROOT / "docs/measurements.md"

_RECORD_PATTERN = re.compile(r"(<!-- bench: (?P<name>[a-z-]+): (?P<command>[^\n]+) -->\n).*?(<!-- end -->)", re.DOTALL)
_ANSI_COLOUR_PATTERN = re.compile(r"\x1b\[[0-9;]*m")


def record(name: Annotated[str, typer.Argument(metavar="NAME")], document: Path = MEASUREMENTS_PAGE) -> None:
    """Run a benchmark and write its output to the page.

    Example: python -m bench.record simulate
    """
    text = document.read_text(encoding="utf-8")
    markers = {marker["name"]: marker for marker in _RECORD_PATTERN.finditer(text)}
    if name not in markers:
        raise create_exit(
            f"{document.name} has no benchmark {name}; available: {', '.join(markers) or 'none'}", INVALID_INPUT
        )
    marker = markers[name]
    result = subprocess.run(  # noqa: S602  a command of our own page
        marker["command"], shell=True, cwd=ROOT, capture_output=True, text=True, check=False
    )
    if result.returncode:
        raise create_exit(f"{marker['command']} exited with {result.returncode}: {result.stderr[-500:]}", FAILED)
    body = "\n".join(format_record(marker["command"], result.stdout))
    document.write_text(text[: marker.start()] + f"{marker[1]}\n{body}\n\n{marker[4]}" + text[marker.end() :])


def format_record(command: str, output: str) -> Iterator[str]:
    """Yield the lines of a record, which contains the command, commit, date, machine and output."""
    yield f"*`{command}` · commit `{get_current_commit()}` · {datetime.now(UTC):%Y-%m-%d} · {describe_machine()}*"
    yield ""
    yield "```"
    yield from (line.rstrip() for line in _ANSI_COLOUR_PATTERN.sub("", output).strip().splitlines())
    yield "```"


if __name__ == "__main__":
    typer.run(record)
