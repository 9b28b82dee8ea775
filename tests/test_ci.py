"""CI ends with a table of its steps and fails when one of them has; what a file of tests sets up, it sets up once."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
STEPS = ROOT / ".ci/steps.sh"


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


def test_tests_of_a_file_run_in_one_process(tmp_path: Path) -> None:
    """Two processes would deploy what the tests of a file look at twice."""
    (options,) = re.findall(r"pytest (-n 4 .*) --ignore", (ROOT / "Makefile").read_text(encoding="utf-8"))
    for name in ("one", "two"):
        (tmp_path / f"test_{name}.py").write_text(
            "import os, pathlib, time, pytest\n"
            "@pytest.mark.parametrize('number', range(6))\n"
            "def test_it(number):\n"
            "    time.sleep(0.05)\n"
            f"    pathlib.Path('{name}-' + os.environ['PYTEST_XDIST_WORKER']).touch()\n",
            encoding="utf-8",
        )
    subprocess.run([sys.executable, "-m", "pytest", *options.split()], cwd=tmp_path, check=True)  # noqa: S603
    assert len(list(tmp_path.glob("one-*"))) == len(list(tmp_path.glob("two-*"))) == 1
