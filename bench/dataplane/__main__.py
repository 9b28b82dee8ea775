"""Prints what the data plane's stages do, each beside its rivals of the same run.

Contestants take turns within one process, and the best round of each is compared: whatever else the machine does can
make a round worse, never better. Never a test: figures of a shared machine prove nothing about the next one.
"""

from itertools import groupby
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from bench.dataplane import native
from bench.dataplane.native import OURS, Measurement


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
    """Draw a group."""
    rival = best_rival(group)
    unit = group[0].unit
    drawn = Table(title=f"{group[0].group}, {len(group[0].rounds)} rounds in turn", title_justify="left")
    drawn.add_column("", min_width=26)
    for heading in (f"best {unit}", "median", "× best rival"):
        drawn.add_column(heading, justify="right")
    for one in group:
        ratio = f"{one.times_better_than(rival):.2f}"
        drawn.add_row(
            one.name, f"{one.best:,.4g}", f"{one.median:,.4g}", ratio, style="bold" if one.name == OURS else ""
        )
    return drawn


def main(
    rounds: Annotated[int, typer.Option(help="How often each contestant has its turn.", min=1)] = 15,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for pipelines.")] = False,
) -> None:
    """Build the native benches, run them, print what they gave."""
    console = Console()
    native.build()
    described: list[dict[str, object]] = []
    for measurements in native.all_measurements(rounds):
        for _, members in groupby(measurements, key=lambda one: one.group):
            group = list(members)
            described += as_dict(group)
            if not as_json:
                console.print(table(group))
    if as_json:
        console.print_json(data=described)


if __name__ == "__main__":
    typer.run(main)
