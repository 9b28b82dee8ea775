"""Synth of the whole AWS suite against an empty CDK app: `python -m bench.synth [RUNS]`.

Both run as a person runs them, through the `cdk synth` command, in turn, so that drift of the machine hits both.
Prints medians and the ratio; the validated synth is measured once a run beside them.
"""

import statistics
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.progress import track
from rich.table import Table

ROOT = Path(__file__).parents[1]
DEPLOYMENT = "deployments/production-us-east-1.yaml"
TARGET = 2.5
"""The whole suite is to take at most so many times as long as an empty app."""

COMMANDS = {
    "empty CDK app": ["--app", f"{sys.executable} -m bench.empty_app"],
    "whole suite": ["--context", f"deployment={DEPLOYMENT}"],
    "whole suite, validated": ["--context", f"deployment={DEPLOYMENT}", "--context", "validate=true"],
}


def seconds(arguments: list[str]) -> float:
    """Return the wall time of one `cdk synth`."""
    cdk = ROOT / "node_modules/.bin/cdk"
    with TemporaryDirectory() as folder:
        start = time.perf_counter()
        subprocess.run(  # noqa: S603
            [str(cdk), "synth", "--quiet", "--no-notices", "--output", folder, *arguments],
            cwd=ROOT,
            capture_output=True,
            check=True,
        )
        return time.perf_counter() - start


def main() -> None:
    """Measure and print."""
    console = Console()
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    for arguments in COMMANDS.values():
        seconds(arguments)
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in track(range(runs), "synth", console=console, transient=True):
        for name, arguments in COMMANDS.items():
            times[name].append(seconds(arguments))
    empty = statistics.median(times["empty CDK app"])
    table = Table(title=f"cdk synth, {runs} runs in turn", title_justify="left")
    for heading in ("", "median s", "min s", "max s", "times an empty app"):
        table.add_column(heading, justify="right" if heading else "left")
    for name, taken in times.items():
        median = statistics.median(taken)
        table.add_row(name, *(f"{value:.2f}" for value in (median, min(taken), max(taken))), f"{median / empty:.2f}")
    console.print(table)
    ratio = statistics.median(times["whole suite"]) / empty
    console.print(f"ratio {ratio:.2f}, target at most {TARGET}")


if __name__ == "__main__":
    main()
