"""Output of the `voice` command on a terminal, in a pipeline, with a full disk or with warnings of Node.js."""

import json
import os
import pty
import re
import select
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.isolation import unshare
from voice_ops.progress import HEARTBEAT_INTERVAL_S

ROOT = Path(__file__).parents[2]
PLAN = ("plan", "deployments/production-us-east-1.yaml")
VOICE = (sys.executable, "-c", "from voice_ops.main import main; main()")


def run_in_terminal(columns: int, *arguments: str) -> str:
    """Return a command's output on a terminal with this many columns."""
    ours, theirs = pty.openpty()
    environment = os.environ | {"COLUMNS": str(columns), "LINES": "50", "TERM": "dumb"}
    with subprocess.Popen([*VOICE, *arguments], cwd=ROOT, stdout=theirs, stderr=theirs, env=environment) as running:  # noqa: S603
        printed = b""
        # The program's end of the terminal remains open, since its buffer may be lost when the last descriptor is
        # closed.
        while running.poll() is None or _has_more(ours):
            if _has_more(ours):
                printed += os.read(ours, 65_536)
    os.close(theirs)
    os.close(ours)
    assert running.returncode == 0, printed
    return printed.decode()


def _has_more(terminal: int) -> bool:
    return bool(select.select([terminal], [], [], 0.5)[0])


@pytest.mark.parametrize(
    "arguments",
    [PLAN, ("simulate", "deployments/production-us-east-1.yaml", "--load", "{course}", "--compare-autoscalers")],
)
def test_a_narrow_terminal_truncates_no_number(arguments: tuple[str, ...], tmp_path: Path) -> None:
    course = tmp_path / "course.csv"
    course.write_text("second,calls\n0,1000\n120,3000\n")
    asked = [each.format(course=course) for each in arguments]
    narrow, wide = (run_in_terminal(columns, *asked) for columns in (60, 400))
    assert "…" not in narrow
    numbers = re.compile(r"\d[\d.,]*")
    missing = Counter(numbers.findall(wide)) - Counter(numbers.findall(narrow))
    assert not missing, "a heading may be repeated below a row; nothing is lost"


def run(
    *arguments: str, program: str = VOICE[-1], stdout: int | None = None, **environment: str
) -> tuple[int, str, str]:
    """Run a command in a pipeline; return its exit code, standard output and standard error."""
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", program, *arguments],
        cwd=ROOT,
        check=False,
        stdout=subprocess.PIPE if stdout is None else stdout,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | WITHOUT_CREDENTIALS | environment,
    )
    return done.returncode, done.stdout or "", done.stderr


WITHOUT_CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "",
    "AWS_PROFILE": "",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "AWS_EC2_METADATA_DISABLED": "true",
}


@pytest.mark.parametrize("arguments", [PLAN, ("checks", "--json"), ("--help",)])
def test_a_full_disk_is_reported_in_one_line(arguments: tuple[str, ...]) -> None:
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        code, _, said = run(*arguments, stdout=full.fileno())
    assert (code, said) == (1, "✗ standard output: No space left on device\n")


def test_a_full_temporary_folder_is_reported_in_one_line() -> None:
    script = 'mount -t tmpfs -o size=1m none /mnt; TMPDIR=/mnt exec "$0" "$@"'
    done = subprocess.run(  # noqa: S603
        [*unshare("--mount"), "bash", "-c", script, *VOICE, "cost", PLAN[1]],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    said = "✗ /mnt: No space left on device; free some space and run the command again"
    assert (done.returncode, done.stderr.splitlines()[0]) == (1, said)


def test_a_closed_pipe_ends_the_output() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    code, _, said = run("checks", stdout=writing)
    os.close(writing)
    assert (code, said) == (1, "")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("plan", "--cals", "20"), "✗ No such option: --cals"),
        (("plan",), "✗ Missing argument 'FILE'."),
        (("plan", "none.yaml"), "✗ none.yaml: "),
        (("bench",), "✗ `voice bench` was renamed to `voice loadtest`"),
        (("status", "deployments/seed.yaml"), "✗ error "),
    ],
)
def test_every_error_has_the_same_mark(arguments: tuple[str, ...], line: str) -> None:
    code, out, said = run(*arguments)
    assert (code, out) == (2, "")
    assert said.startswith(line)


NODE_WITH_WARNING = """
Object.defineProperty(process, "version", {value: "v99.1.0"});
process.emitWarning("a feature of tomorrow", "ExperimentalWarning");
"""


def test_node_and_jsii_print_no_version_warning(tmp_path: Path) -> None:
    talks = tmp_path / "talks.cjs"
    talks.write_text(NODE_WITH_WARNING)
    synthesize = ("cost", "deployments/sandbox.yaml", "--json")
    code, out, said = run(*synthesize, NODE_OPTIONS=f"--require={talks}")
    assert (code, said) == (0, "")
    assert json.loads(out)["deployment"] == "sandbox"


@pytest.mark.parametrize("quiet_s", [0.2])
def test_a_pipeline_sees_progress(quiet_s: float) -> None:
    program = f"import voice_ops.progress; voice_ops.progress.HEARTBEAT_INTERVAL_S = {quiet_s}; {VOICE[-1]}"
    _, _, said = run("simulate", "deployments/small.yaml", "--load", "flash-crowd", program=program)
    lines = [line for line in said.splitlines() if line.startswith("… simulate file")]
    assert lines


def test_progress_is_printed_after_half_a_minute() -> None:
    assert HEARTBEAT_INTERVAL_S == 30


def test_a_preflight_without_an_account_fails_unless_it_is_offline() -> None:
    code, out, said = run("preflight", "deployments/small.yaml", "--json")
    assert code == 1
    assert "✗ no account was checked; sign in, or specify --offline" in said
    assert {row["status"] for row in json.loads(out)["answers"] if row["area"] == "AWS"} == {"not asked"}
    code, out, said = run("preflight", "deployments/small.yaml", "--offline", "--json")
    assert (code, said) == (0, "")
    answers = {row["asked"]: row for row in json.loads(out)["answers"]}
    assert answers["concurrent calls"]["needed"] == "20, at the peak 20"
    assert not any(row["area"] == "AWS" for row in answers.values())
    assert run("preflight", "deployments/small.yaml", "--offline", "--request-increases")[0] == 2


def test_a_status_without_an_account_fails() -> None:
    code, out, _ = run("status", "deployments/small.yaml", "--json")
    assert code == 1
    assert [row["status"] for row in json.loads(out)["answers"]] == ["not asked"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("plan", "deployments/small.yaml"),
        ("simulate", "deployments/small.yaml", "--load", "{course}"),
        ("preflight", "deployments/small.yaml", "--offline"),
        ("drain", "deployments/production-azure.yaml", "aks-a100-12345678-vmss000000", "--print"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_json_is_an_object_that_names_its_deployment(arguments: tuple[str, ...], tmp_path: Path) -> None:
    course = tmp_path / "course.csv"
    course.write_text("second,calls\n0,10\n30,20\n")
    _, out, _ = run(*(each.format(course=course) for each in arguments), "--json")
    assert next(iter(json.loads(out).items())) == ("deployment", Path(arguments[1]).stem)


@pytest.mark.parametrize("command", ["checks", "images"])
def test_json_without_a_deployment_is_an_object_too(command: str) -> None:
    _, out, _ = run(command, "--json")
    assert list(json.loads(out)) == [command]
