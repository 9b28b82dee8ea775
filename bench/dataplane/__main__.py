"""Measures the data plane's stages and their alternatives in the same run, and checks the goals.

Contestants run in turn within one process, and the best round of each is compared, since other load on the machine can
only make a round worse. The benchmark is not a test, since results from a shared machine do not apply to other
machines.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from itertools import chain, groupby
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from bench.dataplane import goals, native, plot, relay, streams
from bench.dataplane.audio import synthesize_conversation
from bench.dataplane.native import PRODUCT_PREFIX, Measurement
from bench.goals import report_goals
from voice_ops.output import create_table, out

DEFAULT_OUTPUT_FOLDER = Path("build/bench-dataplane")


def find_best_rival(group: list[Measurement]) -> Measurement:
    """Return the best measurement of an alternative to the data plane."""
    rivals = [one for one in group if not one.name.startswith(PRODUCT_PREFIX)]
    return max(rivals, key=lambda one: one.best if one.higher_is_better else -one.best)


def build_stage_table(group: list[Measurement]) -> Table:
    rival, first = find_best_rival(group), group[0]
    numbers = [f"best {first.unit}", "median", "× best rival"]
    rendered = create_table(f"{first.group}, {len(first.rounds)} rounds in turn", [""], numbers)
    for one in group:
        cells = (f"{one.best:,.4g}", f"{one.median:,.4g}", f"{one.calculate_speedup(rival):.2f}")
        rendered.add_row(one.name, *cells, style="bold" if one.name.startswith(PRODUCT_PREFIX) else "")
    return rendered


def group_measurements(measurements: Iterable[Measurement]) -> Iterator[list[Measurement]]:
    for _, members in groupby(measurements, key=lambda one: one.group):
        yield list(members)


def main(
    rounds: Annotated[int, typer.Option(help="Number of rounds per contestant.", min=1)] = 15,
    output: Annotated[Path, typer.Option(help="Folder for the plot and the figures.")] = DEFAULT_OUTPUT_FOLDER,
    only_goals: Annotated[bool, typer.Option("--goals", help="Only what the goals need.")] = False,
) -> None:
    """Build and run the native benchmarks, and print the results. Exit with status 1 if a goal is missed."""
    output.mkdir(parents=True, exist_ok=True)
    native.build_benchmarks()
    audio = synthesize_conversation()
    file = (output / "audio.pcm16be").resolve()
    file.write_bytes(audio.astype(">i2").tobytes())
    ceiling = streams.measure_ceiling(rounds, file)
    live, live_before = (
        streams.measure_live_rounds(3, file),
        streams.measure_live_rounds(3, file, streams.check_out_baseline()),
    )
    baseline = streams.compare_with_baseline(rounds, file)
    results = [*goals.create_stream_goals(ceiling, baseline), *goals.create_af_xdp_goals(live_before, live)]
    if only_goals:
        out.print(streams.build_baseline_table(baseline))
        report_goals(results)
        return
    stages = list(group_measurements(chain.from_iterable(native.measure_stages(rounds, output, audio))))
    batches = streams.measure_batches(rounds, file)
    relayed = relay.measure_rtpengine(3)
    for rendered in (
        *map(build_stage_table, stages),
        *map(streams.build_ceiling_table, group_measurements(ceiling)),
        streams.build_batch_table(batches),
        streams.build_baseline_table(baseline),
        relay.build_comparison_table(relayed, ceiling),
    ):
        out.print(rendered)
    if live:
        out.print(streams.build_live_table(live))
    else:
        out.print("Streams through AF_XDP need root, for network namespaces: sudo make bench-dataplane")
    plot.draw_plots(ceiling, live, output / "streams.png")
    figures = {
        "stages": [
            asdict(one) | {"best": one.best, "median": one.median, "times_the_best_rival": one.calculate_speedup(rival)}
            for group in stages
            for rival in [find_best_rival(group)]
            for one in group
        ],
        "ceiling": [asdict(one) | {"median": one.median} for one in ceiling],
        "batches": [asdict(one) | {"median": one.median} for one in batches],
        "baseline": [{"before": asdict(before), "now": asdict(now)} for before, now in baseline],
        "rtpengine": [asdict(one) | {"median": one.median} for one in relayed],
        "live": [asdict(one) for one in live],
        "loss_free": {
            "best": streams.find_max_loss_free_streams(live),
            "median": streams.find_max_loss_free_streams(live, "median"),
        },
        "goals": [asdict(one) | {"holds": one.is_met} for one in results],
    }
    (output / "figures.json").write_text(json.dumps(figures, indent=1))
    out.print(f"{output / 'figures.json'}, {output / 'streams.png'}")
    report_goals(results)


if __name__ == "__main__":
    typer.run(main)
