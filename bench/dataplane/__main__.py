"""Prints what the data plane's stages do, each beside its rivals of the same run.

Contestants take turns within one process, and the best round of each is compared: whatever else the machine does can
make a round worse, never better. Never a test: figures of a shared machine prove nothing about the next one.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from itertools import chain, groupby
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from bench.dataplane import native, plot, relay, streams
from bench.dataplane.audio import conversation
from bench.dataplane.native import OURS, Measurement
from ops.output import empty_table, out

OUTPUT = Path("build/bench-dataplane")


def best_rival(group: list[Measurement]) -> Measurement:
    """Return the rival that did best."""
    rivals = [one for one in group if not one.name.startswith(OURS)]
    return max(rivals, key=lambda one: one.best if one.higher_is_better else -one.best)


def table(group: list[Measurement]) -> Table:
    rival, first = best_rival(group), group[0]
    numbers = [f"best {first.unit}", "median", "× best rival"]
    drawn = empty_table(f"{first.group}, {len(first.rounds)} rounds in turn", [""], numbers)
    for one in group:
        cells = (f"{one.best:,.4g}", f"{one.median:,.4g}", f"{one.times_better_than(rival):.2f}")
        drawn.add_row(one.name, *cells, style="bold" if one.name.startswith(OURS) else "")
    return drawn


def groups(measurements: Iterable[Measurement]) -> Iterator[list[Measurement]]:
    for _, members in groupby(measurements, key=lambda one: one.group):
        yield list(members)


def main(
    rounds: Annotated[int, typer.Option(help="How often each contestant has its turn.", min=1)] = 15,
    output: Annotated[Path, typer.Option(help="Folder for the plot and the figures.")] = OUTPUT,
) -> None:
    """Build the native benches, run them, print what they gave."""
    output.mkdir(parents=True, exist_ok=True)
    native.build()
    audio = conversation()
    file = output / "audio.pcm16be"
    file.write_bytes(audio.astype(">i2").tobytes())
    stages = list(groups(chain.from_iterable(native.all_measurements(rounds, output, audio))))
    ceiling = streams.ceiling(rounds, file)
    batches = streams.batches(rounds, file)
    live = streams.live(3, file)
    baseline = streams.against_baseline(rounds, file)
    relayed = relay.rtpengine(3)
    for drawn in (
        *map(table, stages),
        *map(streams.ceiling_table, groups(ceiling)),
        streams.batch_table(batches),
        streams.baseline_table(baseline),
        relay.table(relayed, ceiling),
    ):
        out.print(drawn)
    if live:
        out.print(streams.live_table(live))
    else:
        out.print("Streams through AF_XDP need root, for network namespaces: sudo make bench-dataplane")
    plot.draw(ceiling, live, output / "streams.png")
    figures = {
        "stages": [
            asdict(one) | {"best": one.best, "median": one.median, "times_the_best_rival": one.times_better_than(rival)}
            for group in stages
            for rival in [best_rival(group)]
            for one in group
        ],
        "ceiling": [asdict(one) | {"median": one.median} for one in ceiling],
        "batches": [asdict(one) | {"median": one.median} for one in batches],
        "baseline": [{"before": asdict(before), "now": asdict(now)} for before, now in baseline],
        "rtpengine": [asdict(one) | {"median": one.median} for one in relayed],
        "live": [asdict(one) for one in live],
        "loss_free": {"best": streams.loss_free(live), "median": streams.loss_free(live, "median")},
    }
    (output / "figures.json").write_text(json.dumps(figures, indent=1))
    out.print(f"{output / 'figures.json'}, {output / 'streams.png'}")


if __name__ == "__main__":
    typer.run(main)
