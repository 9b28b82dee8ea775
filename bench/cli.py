"""What the commands cost to start: `python -m bench.cli [RUNS]`.

CPU seconds, user and system, of each command and all its processes: they depend on the machine but little on what else
runs there. Commands take turns, and medians are compared with what nobody can go below: the interpreter, an import of
pydantic, and for the cloud assembly an empty CDK app.
"""

import resource
import statistics
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.progress import track
from rich.table import Table

from bench.synth import COMMANDS as SYNTH

ROOT = Path(__file__).parents[1]
PYTHON = [sys.executable, "-c"]
VOICE = [*PYTHON, "from ops.cli import main; main()"]
FOLDER = "{folder}"
"""Stands in a command for a folder that is made for each run."""
CDK = [str(ROOT / "node_modules/.bin/cdk"), "synth", "--quiet", "--no-notices", "--output", FOLDER]
AWS, AZURE = "deployments/production-us-east-1.yaml", "deployments/production-azure.yaml"

FLOORS = {"python": [*PYTHON, "pass"], "pydantic": [*PYTHON, "import pydantic"]}
EMPTY_APP, SUITE = "empty CDK app", "whole suite"
COMMANDS = {
    **FLOORS,
    "voice --help": [*VOICE, "--help"],
    "voice plan, AWS": [*VOICE, "plan", AWS],
    "voice plan, Azure": [*VOICE, "plan", AZURE],
    "voice preview azure": [*VOICE, "preview", "azure", AZURE, "--state", FOLDER],
    f"cdk synth, {EMPTY_APP}": [*CDK, *SYNTH[EMPTY_APP]],
    f"cdk synth, {SUITE}": [*CDK, *SYNTH[SUITE]],
}


def cpu_s(command: list[str]) -> float:
    """Return the CPU seconds of one run and of every process that it started and waited for."""
    with TemporaryDirectory() as folder:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        written = [part.replace(FOLDER, folder) for part in command]
        subprocess.run(written, cwd=ROOT, capture_output=True, check=True)  # noqa: S603
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Measure and print."""
    console = Console()
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    for command in COMMANDS.values():
        cpu_s(command)
    took: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in track(range(runs), "commands", console=console, transient=True):
        for name, command in COMMANDS.items():
            took[name].append(cpu_s(command))
    median = {name: statistics.median(times) for name, times in took.items()}
    floors = [*FLOORS, f"cdk synth, {EMPTY_APP}"]
    table = Table(title=f"CPU seconds of a command, median of {runs} runs in turn", title_justify="left")
    table.add_column("")
    for heading in ("s", "min", "max", "× python", "× pydantic", "× empty app"):
        table.add_column(heading, justify="right")
    for name, times in took.items():
        ratios = (f"{median[name] / median[floor]:.1f}" for floor in floors)
        table.add_row(name, *(f"{value:.2f}" for value in (median[name], min(times), max(times))), *ratios)
    console.print(table)


if __name__ == "__main__":
    main()
