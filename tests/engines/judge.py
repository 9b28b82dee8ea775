"""Runs the engines' own parsers in one process of their environment."""

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from voice_blueprint.engines.launch.base import Launcher
from voice_sandbox.engines.processes import VENV_FOLDER
from voice_sandbox.engines.substitutions import RenderedProcess, remove_numactl

PROGRAM = Path(__file__).with_name("parsers.py")
PARSE_TIMEOUT_S = 800  # a minute on idle cores


@dataclass(frozen=True)
class Question:
    """A command line, and whether to create an engine's configuration from it."""

    argv: Sequence[str]
    environment: dict[str, str]
    configure: bool

    @classmethod
    def from_launcher(cls, launcher: Launcher) -> "Question":
        """Return the command line without substitutions, for its parser only."""
        return cls(remove_numactl(launcher.build_command()), launcher.build_environment(), False)

    @classmethod
    def from_process(cls, process: RenderedProcess) -> "Question":
        """Return a substituted command line, from which an engine's configuration can be created."""
        return cls(process.argv, process.environment, True)


def parser_errors(questions: Sequence[Question]) -> list[list[str]]:
    """Return the errors of each command line; empty if it is accepted.

    Raises:
        RuntimeError: The parsers failed to run.
    """
    asked = [json.dumps(vars(question), sort_keys=True) for question in questions]
    once = list(dict.fromkeys(asked))  # several files render the same command
    done = subprocess.run(  # noqa: S603  a program of the tests
        [VENV_FOLDER / "bin/python", PROGRAM],
        input=f"[{','.join(once)}]",
        capture_output=True,
        text=True,
        check=False,
        timeout=PARSE_TIMEOUT_S,
    )
    if done.returncode:
        raise RuntimeError(f"the engines' parsers ended with {done.returncode}:\n{done.stderr[-3000:]}")
    answers: dict[str, list[str]] = dict(zip(once, json.loads(done.stdout), strict=True))
    return [answers[question] for question in asked]
