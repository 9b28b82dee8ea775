"""Measures the start-up cost of commands and the cost of a synth for the whole suite: `python -m bench.cli [RUNS]`.

The CPU time of a command and its child processes depends on the machine, but hardly on the machine's load. Commands run
in turn. Their medians are compared with lower bounds: the start of the interpreter, an import of the libraries that the
`voice` command uses and, for the cloud assembly, a synth of an empty CDK app.
"""

import resource
import shlex
import statistics
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.progress import track

from bench.goals import Goal, report_goals
from voice_ops.output import create_table, out

ROOT = Path(__file__).parents[1]
PYTHON_COMMAND = [sys.executable, "-c"]
VOICE_COMMAND = [*PYTHON_COMMAND, "from voice_ops.main import main; main()"]
FOLDER_PLACEHOLDER = "{folder}"
"""Placeholder in a command, which is replaced with a folder that is created for each run."""
CDK_SYNTH_COMMAND = [
    str(ROOT / "node_modules/.bin/cdk"),
    "synth",
    "--quiet",
    "--no-notices",
    "--output",
    FOLDER_PLACEHOLDER,
]
AWS_FILE, AZURE_FILE = "deployments/production-us-east-1.yaml", "deployments/production-azure.yaml"

LIBRARIES = """
import os
os.environ["PYDANTIC_DISABLE_PLUGINS"] = "__all__"
import rich.console, rich.table, typer, yaml
from pydantic import BaseModel
class Row(BaseModel):
    value: int
"""
"""Pydantic imports most of its modules when the first model is defined."""

PYTHON_FLOOR, LIBRARIES_FLOOR, SYNTH_FLOOR = "python", "libraries", "cdk synth, empty CDK app"
COMMANDS = {
    PYTHON_FLOOR: [*PYTHON_COMMAND, "pass"],
    LIBRARIES_FLOOR: [*PYTHON_COMMAND, LIBRARIES],
    "voice --help": [*VOICE_COMMAND, "--help"],
    "voice plan, AWS": [*VOICE_COMMAND, "plan", AWS_FILE],
    "voice plan, Azure": [*VOICE_COMMAND, "plan", AZURE_FILE],
    "voice preview azure": [*VOICE_COMMAND, "preview", "azure", AZURE_FILE, "--state", FOLDER_PLACEHOLDER],
    SYNTH_FLOOR: [*CDK_SYNTH_COMMAND, "--app", shlex.join([sys.executable, "-m", "bench.empty_app"])],
    "cdk synth, whole suite": [*CDK_SYNTH_COMMAND, "--context", f"deployment={AWS_FILE}"],
    "cdk synth, whole suite, validated": [
        *CDK_SYNTH_COMMAND,
        "--context",
        f"deployment={AWS_FILE}",
        "--context",
        "validate=true",
    ],
}

GOALS = (
    ("voice --help", LIBRARIES_FLOOR, 1.2),
    ("voice plan, AWS", LIBRARIES_FLOOR, 3.1),
    ("voice plan, Azure", LIBRARIES_FLOOR, 3.1),
    ("cdk synth, whole suite", SYNTH_FLOOR, 3.2),
)
"""A command, its reference, and the maximum ratio of their CPU times. The maximum is the measured ratio plus a
fifth. A reference takes at least a fourth of the command's time: the ratio to a much shorter program depends on the
processor."""


def measure_command(command: list[str]) -> tuple[float, float]:
    """Run a command, and return the CPU and wall-clock seconds, including child processes."""
    with TemporaryDirectory() as folder:
        before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        written = [part.replace(FOLDER_PLACEHOLDER, folder) for part in command]
        subprocess.run(written, cwd=ROOT, capture_output=True, check=True)  # noqa: S603
        after, wall_s = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter() - begin
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall_s


def main() -> None:
    """Run the commands in turn, and print the medians and the goals."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    for command in COMMANDS.values():
        measure_command(command)
    durations: dict[str, list[tuple[float, float]]] = {name: [] for name in COMMANDS}
    for _ in track(range(runs), "commands", console=out, transient=True):
        for name, command in COMMANDS.items():
            durations[name].append(measure_command(command))
    cpu_s, wall_s = (
        {name: statistics.median(run[unit] for run in measured) for name, measured in durations.items()}
        for unit in (0, 1)
    )
    table = create_table(
        f"median of {runs} runs in turn",
        [""],
        ["CPU s", "× python", "× libraries", "× empty app", "wall s", "× empty app"],
    )
    for name in COMMANDS:
        ratios = [cpu_s[name] / cpu_s[floor] for floor in (PYTHON_FLOOR, LIBRARIES_FLOOR, SYNTH_FLOOR)]
        cells = (cpu_s[name], *ratios, wall_s[name], wall_s[name] / wall_s[SYNTH_FLOOR])
        table.add_row(name, *(f"{cell:.2f}" for cell in cells))
    out.print(table)
    report_goals(
        Goal(f"CPU of {name}", cpu_s[name] / cpu_s[floor], max_ratio, f" x {floor}") for name, floor, max_ratio in GOALS
    )


if __name__ == "__main__":
    main()
