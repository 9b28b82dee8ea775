"""Prints what the data plane's stages do, each beside its rivals of the same run.

Contestants take turns within one process, and the best round of each is compared: whatever else the machine does can
make a round worse, never better. Never a test: figures of a shared machine prove nothing about the next one.
"""

import json
from collections.abc import Callable
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Annotated, TypeAlias

import numpy as np
import numpy.typing as npt
import typer
from rich.console import Console
from rich.table import Table

from bench.dataplane import native, plot, streams
from bench.dataplane.audio import conversation
from bench.dataplane.native import OURS, Measurement

OUTPUT = Path("build/bench-dataplane")
Print: TypeAlias = Callable[[Table], None]


def best_rival(group: list[Measurement]) -> Measurement:
    """Return the rival that did best."""
    rivals = [one for one in group if not one.name.startswith(OURS)]
    return max(rivals, key=lambda one: one.best if one.higher_is_better else -one.best)


def as_dict(group: list[Measurement]) -> list[dict[str, object]]:
    """Describe a group for pipelines."""
    rival = best_rival(group)
    return [
        {
            "group": one.group,
            "name": one.name,
            "unit": one.unit,
            "best": one.best,
            "median": one.median,
            "rounds": one.rounds,
            "times_the_best_rival": one.times_better_than(rival),
        }
        for one in group
    ]


def table(group: list[Measurement]) -> Table:
    rival = best_rival(group)
    unit = group[0].unit
    drawn = Table(title=f"{group[0].group}, {len(group[0].rounds)} rounds in turn", title_justify="left")
    drawn.add_column("", min_width=26)
    for heading in (f"best {unit}", "median", "× best rival"):
        drawn.add_column(heading, justify="right")
    for one in group:
        ratio = f"{one.times_better_than(rival):.2f}"
        drawn.add_row(
            one.name, f"{one.best:,.4g}", f"{one.median:,.4g}", ratio, style="bold" if one.name.startswith(OURS) else ""
        )
    return drawn


def compare(rounds: int, folder: Path, audio: npt.NDArray[np.int16], print_table: Print) -> list[dict[str, object]]:
    """Run the stages' benches beside their rivals."""
    described: list[dict[str, object]] = []
    for measurements in native.all_measurements(rounds, folder, audio):
        for _, members in groupby(measurements, key=lambda one: one.group):
            group = list(members)
            described += as_dict(group)
            print_table(table(group))
    return described


def count_streams(folder: Path, rounds: int, audio: npt.NDArray[np.int16], print_table: Print) -> dict[str, object]:
    """Measure how many streams a core carries, and draw it."""
    file = folder / "audio.pcm16be"
    file.write_bytes(audio.astype(">i2").tobytes())
    ceiling = streams.ceiling(rounds, file)
    for _, members in groupby(ceiling, key=lambda one: one.group):
        print_table(streams.ceiling_table(list(members)))
    batches = streams.batches(rounds, file)
    print_table(streams.batch_table(batches))
    live = streams.live(3, file)
    if live:
        print_table(streams.live_table(live))
    plot.draw(ceiling, live, folder / "streams.png")
    return {
        "ceiling": [asdict(one) | {"median": one.median} for one in ceiling],
        "batches": [asdict(one) | {"median": one.median} for one in batches],
        "live": [asdict(one) for one in live],
        "loss_free": {"best": streams.loss_free(live), "median": streams.loss_free(live, "median")},
    }


def main(
    rounds: Annotated[int, typer.Option(help="How often each contestant has its turn.", min=1)] = 15,
    output: Annotated[Path, typer.Option(help="Folder for the plot and the figures.")] = OUTPUT,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for pipelines.")] = False,
) -> None:
    """Build the native benches, run them, print what they gave."""
    console = Console(stderr=as_json)
    output.mkdir(parents=True, exist_ok=True)
    native.build()
    audio = conversation()
    described: dict[str, object] = {"stages": compare(rounds, output, audio, console.print)}
    described |= count_streams(output, rounds, audio, console.print)
    (output / "figures.json").write_text(json.dumps(described, indent=1))
    if not described["live"]:
        console.print("Streams through AF_XDP need root, for network namespaces: sudo make bench-dataplane")
    console.print(f"{output / 'figures.json'}, {output / 'streams.png'}")
    if as_json:
        Console().print_json(data=described)


if __name__ == "__main__":
    typer.run(main)
