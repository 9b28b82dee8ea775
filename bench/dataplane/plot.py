"""Plots the loss by number of streams, and the processing time per packet by stage."""

from collections.abc import Sequence
from pathlib import Path
from statistics import median

import matplotlib as mpl

from bench.dataplane.native import Measurement
from bench.dataplane.streams import CEILING_TARGET, LOSS_FREE_TARGET, LiveRoundsSummary

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

CORE_NS_PER_STREAM = 1e9 / 50
"""CPU time per packet in nanoseconds, if a core serves a single stream of 50 packets per second."""
MIN_PLOTTED_LOSS = 1e-6
"""Value that represents no loss on a logarithmic axis."""


def _plot_loss(axis: Axes, results: Sequence[LiveRoundsSummary]) -> None:
    streams = [one.streams for one in results]
    for label, aggregate in (("median round", median), ("best round", min)):
        axis.plot(streams, [max(MIN_PLOTTED_LOSS, aggregate(one.lost)) for one in results], "o-", label=label)
    limited = [one.streams for one in results if not one.sender_keeps_up]
    if limited:
        axis.axvspan(min(limited), max(streams), color="grey", alpha=0.2, label="the sender is late")
    axis.axvline(LOSS_FREE_TARGET, color="grey", linewidth=0.8, linestyle="--", label="target without loss")
    axis.set(yscale="log", xlabel="streams on one core", ylabel="share of packets lost", ylim=(MIN_PLOTTED_LOSS / 2, 1))
    axis.set_title("Through veth and AF_XDP (the lowest line is no loss)")
    axis.legend()


def _plot_stages(axis: Axes, ceiling: Sequence[Measurement]) -> None:
    groups = list(dict.fromkeys(one.group for one in ceiling))
    names = [one.name for one in ceiling if one.group == groups[0] and one.unit == "ns"]
    bottom = [0.0] * len(groups)
    totals = [sum(one.median for one in ceiling if one.group == group and one.unit == "ns") for group in groups]
    for name in names:
        heights = [one.median for one in ceiling if one.name == name]
        bars = axis.bar(
            [" ".join([group.split()[0], *group.split(", ")[3:]]) for group in groups],
            heights,
            bottom=bottom,
            label=name,
        )
        labels = [
            f"{height:,.0f} ({height / measurements_of_group:.0%})"
            for height, measurements_of_group in zip(heights, totals, strict=True)
        ]
        axis.bar_label(bars, labels, label_type="center", fontsize=8)
        bottom = [low + height for low, height in zip(bottom, heights, strict=True)]
    label = f"target: {CEILING_TARGET:,} streams a core"
    axis.axhline(CORE_NS_PER_STREAM / CEILING_TARGET, color="black", linewidth=0.8, linestyle="--", label=label)
    axis.set(
        xlabel="streams", ylabel="ns a packet, of the thread's time", title="From memory: where a packet's time goes"
    )
    axis.set_ylim(0, max(*bottom, CORE_NS_PER_STREAM / CEILING_TARGET) * 1.35)
    axis.legend(loc="upper left", ncols=2, fontsize=8)


def draw_plots(ceiling: Sequence[Measurement], live: Sequence[LiveRoundsSummary], path: Path) -> None:
    """Write the plot of the stages and, if the loss was measured, the plot of the loss to a file."""
    figure, axes = plt.subplots(1, 2 if live else 1, figsize=(13 if live else 7, 5), squeeze=False)
    _plot_stages(axes[0][0], ceiling)
    if live:
        _plot_loss(axes[0][1], live)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
