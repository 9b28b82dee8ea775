"""What CI runs ends with a table of its steps, and fails when one of them has."""

import subprocess
from pathlib import Path

import pytest

STEPS = Path(__file__).parents[1] / ".ci/steps.sh"


@pytest.mark.parametrize(("second", "result", "code"), [("true", "passed", 0), ("false", "FAILED", 1)])
def test_every_step_runs_and_is_in_the_table(second: str, result: str, code: int) -> None:
    script = f'set -euo pipefail; source "{STEPS}"; step one true; step "a second" {second}; step three true; finish'
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)  # noqa: S603, S607
    table = [line.split() for line in done.stdout.splitlines()[-5:]]
    assert [[*row[:-2], row[-1]] for row in table[1:4]] == [
        ["one", "passed"],
        ["a", "second", result],
        ["three", "passed"],
    ]
    assert (table[0], table[4][0]) == (["step", "seconds", "result"], "total")
    assert done.returncode == code
