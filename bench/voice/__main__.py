"""Measures the maximum number of streams through the voice path, the transcript latency, and the CPU time per stream.

Contestants run in turn on the same cores, so that other load on the machine affects all of them. Each has its own
store, gateway, VAD stage and engine. The callers also run on this machine, and their CPU time is reported.

A load is sustained if every caller receives all final transcripts with a real-time factor below 1. The real-time factor
is the waiting time for final transcripts after the end of their audio, divided by the duration of speech. The benchmark
is not a test, since results from a shared machine do not apply to other machines.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from bench.voice import goals, plot, tables
from bench.voice.call import SILENCE_FRACTION, create_call
from bench.voice.contestants import CONTESTANTS, RunningContestant, build_programs
from bench.voice.search import LoadSearch
from bench.voice.step import LoadResult, measure_load
from voice_ops.call.recording import RecordingError
from voice_ops.demo.command import find_weights
from voice_ops.demo.services import ServiceError
from voice_ops.exits import FAILED
from voice_ops.output import create_exit
from voice_ops.provenance import describe_machine, get_current_commit

DEFAULT_OUTPUT_FOLDER = Path("build/bench-voice")
CHECKOUT_NAME = "now"
console = Console(stderr=True)


def main(
    *,
    streams: Annotated[
        int, typer.Option(help="Load of the first round; goals of a slow CPU use fewer.", min=1, max=64)
    ] = 8,
    minutes: Annotated[float, typer.Option(help="Time limit; no round starts that would exceed it.", min=1)] = 6,
    model: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Whisper model in CTranslate2's format; default: tiny.en.")
    ] = None,
    output: Annotated[Path, typer.Option(help="Folder for the plot and the figures.")] = DEFAULT_OUTPUT_FOLDER,
    quick: Annotated[
        bool, typer.Option("--quick", help="Only measure the goals: one load of each kind, which takes minutes.")
    ] = False,
    before: Annotated[str, typer.Option(metavar="COMMIT", help="Commit to compare the goals with.")] = "HEAD~1",
) -> None:
    """Compare the goals with another commit, then find the maximum load for each layout and for a layout without a VAD.

    Exits with status 1 if this checkout misses a goal.

    Example: python -m bench.voice --quick --streams 8
    """
    model_folder = find_weights(model)
    try:
        output.mkdir(parents=True, exist_ok=True)
        with console.status("building the data plane, unless it exists"):
            build_programs()
        missed = compare_with_commit(model_folder, streams, before, output)
        searches = {} if quick else search_max_streams(model_folder, streams, minutes)
    except (ServiceError, RecordingError, OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"bench.voice: {error}")
    if searches:
        _write_report(searches, output)
    if missed:
        raise create_exit("missed: " + "; ".join(missed), FAILED)


def _write_report(searches: dict[str, LoadSearch], output: Path) -> None:
    figures = {
        "cores": os.cpu_count(),
        "silence": SILENCE_FRACTION,
        "call_s": create_call(0).duration_s,
        "sustained": {name: search.max_sustained_streams for name, search in searches.items()},
        "too_many": {name: search.min_excessive_streams for name, search in searches.items()},
        "steps": [asdict(step) | {"sustained": step.is_sustained} for s in searches.values() for step in s.results],
    }
    (output / "figures.json").write_text(json.dumps(figures, indent=1))
    plot.draw_plots(searches, output / "streams.png")
    out = Console(width=max(Console().width, 150))
    out.print(tables.build_loads_table(searches))
    out.print(tables.build_summary_table(searches))
    out.print(f"{output / 'figures.json'}, {output / 'streams.png'}")


def compare_with_commit(model: Path, streams: int, before: str, output: Path) -> list[str]:
    """Compare this checkout with another commit and with faster-whisper alone, and return the missed goals.

    Raises:
        ServiceError: A program of the voice path does not start.
        subprocess.CalledProcessError: There is no such commit.
    """
    steps_by_kind: dict[str, dict[str, LoadResult]] = {kind: {} for kind in goals.HAS_PAUSES_BY_KIND}
    with tempfile.TemporaryDirectory(prefix="bench-voice-") as folder:
        other = replace(CONTESTANTS[0], name=before, root=goals.check_out_commit(before, Path(folder) / "before"))
        with console.status("faster-whisper alone"):
            _, one_minute_cpu_s = goals.measure_faster_whisper(model, "sentences", streams=2)
            slowness = goals.calculate_slowness(one_minute_cpu_s)
            streams = max(1, int(streams / slowness))
            alone = {kind: goals.measure_faster_whisper(model, kind, streams) for kind in steps_by_kind}
        for number, candidate in enumerate((replace(CONTESTANTS[0], name=CHECKOUT_NAME), other)):
            (Path(folder) / str(number)).mkdir()
            running = RunningContestant(candidate, Path(folder) / str(number), model)
            with ExitStack() as stack, console.status(f"{streams} streams: {candidate.name}"):
                stack.callback(running.stop)
                running.start()
                for kind, pauses in goals.HAS_PAUSES_BY_KIND.items():
                    steps_by_kind[kind][candidate.name] = measure_load(running, streams, pauses=pauses)
    (output / "goals.json").write_text(
        json.dumps([asdict(step) for of in steps_by_kind.values() for step in of.values()])
    )
    out = Console(width=max(Console().width, 150))
    missed: list[str] = []
    for kind, steps in steps_by_kind.items():
        out.print(goals.build_goals_table(kind, steps, alone[kind], slowness))
        missed += goals.describe_missed_goals(kind, steps[CHECKOUT_NAME], alone[kind][1], slowness)
    out.print(f"commit {get_current_commit()}, {describe_machine()}")
    return missed


def search_max_streams(model: Path, streams: int, minutes: float) -> dict[str, LoadSearch]:
    """Run the contestants in turn until the maximum load of each is known, or the time limit is reached.

    Raises:
        ServiceError: A program of the voice path does not start.
    """
    begin, longest_s = time.monotonic(), 0.0
    searches = {contestant.name: LoadSearch(streams) for contestant in CONTESTANTS}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-voice-")))
        running = []
        for number, contestant in enumerate(CONTESTANTS):
            (folder / str(number)).mkdir()
            running.append(RunningContestant(contestant, folder / str(number), model))
            stack.callback(running[-1].stop)
            running[-1].start()
        while any(not search.is_over for search in searches.values()):
            started_at = time.monotonic()
            if started_at - begin + longest_s > 60 * minutes:
                break
            _run_round(running, searches)
            running.reverse()  # in reverse order each time, so that a drift of the machine affects all contestants
            longest_s = max(longest_s, time.monotonic() - started_at)
    return searches


def _run_round(running: list[RunningContestant], searches: dict[str, LoadSearch]) -> None:
    for one in running:
        search = searches[one.contestant.name]
        if search.is_over:
            continue
        with console.status(f"{search.next_streams} streams: {one.contestant.name}"):
            search.record(measure_load(one, search.next_streams))


if __name__ == "__main__":
    typer.run(main)
