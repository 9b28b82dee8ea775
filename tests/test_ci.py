"""CI prints a table of its steps and fails if a step has failed; tests of a file run in one process."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

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
    """Otherwise two processes would repeat the deployment of a test file."""
    (options,) = re.findall(r"pytest (-n 4 [a-z -]+[a-z]) \$\(OWN", (ROOT / "Makefile").read_text(encoding="utf-8"))
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


@pytest.mark.parametrize(
    ("test", "code"),
    [
        ("def test_it(): assert mark.exists() or mark.touch()", 0),
        ("def test_it(): assert False", 1),
        ("raise RuntimeError", 1),
        ("def test_it(): os._exit(3)", 5),
    ],
    ids=["fails once", "fails again", "cannot be imported", "ends the process"],
)
def test_a_failed_test_is_repeated_once_in_ci(test: str, code: int, tmp_path: Path) -> None:
    (tmp_path / "test_one.py").write_text(
        f"import os, pathlib\nmark = pathlib.Path('mark')\n{test}\n", encoding="utf-8"
    )
    (tmp_path / "test_two.py").write_text("def test_other(): open('others', 'a').write('.')\n", encoding="utf-8")
    (tmp_path / "tests/voice").mkdir(parents=True)
    (tmp_path / "tests/voice/test_three.py").write_text("import a_package_of_other_tests\n", encoding="utf-8")
    recipe = subprocess.run(["make", "-n", "CI=1", "pytest"], cwd=ROOT, capture_output=True, text=True, check=True)  # noqa: S607
    (command,) = (line for line in recipe.stdout.splitlines() if line.startswith("pytest -n 4 "))
    command = command.replace("-n 4", "-n 0")
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False)  # noqa: S603, S607
    assert done.returncode == code, done.stdout
    others = tmp_path / "others"
    assert not others.exists() or others.read_text(encoding="utf-8") == "."


def test_setup_installs_the_command_lines_of_both_clouds() -> None:
    """Versions are locked with hashes, and packages run no installation scripts, so set-up only needs the registry."""
    wanted = json.loads((ROOT / "package.json").read_text(encoding="utf-8"))["devDependencies"]
    locked = json.loads((ROOT / "package-lock.json").read_text(encoding="utf-8"))["packages"]
    del locked[""]
    assert {"aws-cdk", "pulumi"} <= wanted.keys()
    assert {f"node_modules/{name}": version for name, version in wanted.items()} == {
        path: package["version"] for path, package in locked.items()
    }
    assert all(package["integrity"].startswith("sha512-") for package in locked.values())
    assert [path for path, package in locked.items() if package.get("hasInstallScript")] == []
    assert locked["node_modules/pulumi"]["bin"] == {"pulumi": "run.js"}
    assert (ROOT / "node_modules/.bin/pulumi").exists()


@pytest.mark.parametrize("name", ["Makefile", ".ci/run", ".ci/nightly", ".ci/steps.sh"])
def test_no_target_and_no_step_of_ci_runs_the_pulumi_launcher(name: str) -> None:
    """The launcher downloads the CLI on its first run, which only users and deployment pipelines may do."""
    assert not re.search(r"\bpulumi\b", (ROOT / name).read_text(encoding="utf-8"))


def nightly_jobs() -> dict[str, list[int]]:
    """Return the budgets of each nightly job in minutes."""
    text = (ROOT / ".ci/nightly").read_text(encoding="utf-8")
    blocks = re.findall(r"^if job ([a-z-]+); then\n(.*?)^fi$", text, re.MULTILINE | re.DOTALL)
    return {name: [int(minutes) for minutes in re.findall(r"within (\d+)", block)] for name, block in blocks}


def test_each_nightly_job_takes_at_most_an_hour_and_each_step_has_a_budget() -> None:
    text = (ROOT / ".ci/nightly").read_text(encoding="utf-8")
    jobs = nightly_jobs()
    assert {name: sum(budgets) for name, budgets in jobs.items() if not 0 < sum(budgets) <= 60} == {}
    assert len(re.findall(r"^ +step ", text, re.MULTILINE)) == sum(map(len, jobs.values())), "a step has no budget"


def test_both_kinds_of_pipeline_run_every_nightly_job() -> None:
    github = yaml.safe_load((ROOT / ".github/workflows/nightly.yml").read_text(encoding="utf-8"))["jobs"]["nightly"]
    gitlab = yaml.safe_load((ROOT / ".gitlab-ci.yml").read_text(encoding="utf-8").replace("!reference", ""))["nightly"]
    assert github["strategy"]["matrix"]["job"] == gitlab["parallel"]["matrix"][0]["PART"] == list(nightly_jobs())


def test_nightly_jobs_have_the_history_that_the_benches_compare_with() -> None:
    """By default, GitHub's action fetches one commit, and GitLab twenty."""
    github = yaml.safe_load((ROOT / ".github/workflows/nightly.yml").read_text(encoding="utf-8"))["jobs"]["nightly"]
    gitlab = yaml.safe_load((ROOT / ".gitlab-ci.yml").read_text(encoding="utf-8").replace("!reference", ""))["nightly"]
    (checkout,) = [step for step in github["steps"] if step.get("uses", "").startswith("actions/checkout@")]
    assert (checkout["with"]["fetch-depth"], gitlab["variables"]["GIT_DEPTH"]) == (0, 0)


def test_an_unknown_nightly_job_is_refused() -> None:
    done = subprocess.run([ROOT / ".ci/nightly", "nothing"], capture_output=True, text=True, check=False)  # noqa: S603
    assert done.returncode == 2
    assert "there is no job nothing" in done.stderr
