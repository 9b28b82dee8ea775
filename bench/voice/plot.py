"""Plots the transcript latency by load, and the CPU time per stream."""

from collections.abc import Callable, Mapping
from pathlib import Path

import matplotlib as mpl

from bench.voice.search import LoadSearch
from bench.voice.step import LoadResult
from bench.voice.tables import PROGRAM_NAMES

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator, StrMethodFormatter


def _plot_latency(
    axis: Axes, searches: Mapping[str, LoadSearch], title: str, of: Callable[[LoadResult], tuple[float, ...]]
) -> None:
    for number, (name, search) in enumerate(searches.items()):
        steps = sorted((step for step in search.results if of(step)), key=lambda step: step.streams)
        streams, color = [step.streams for step in steps], f"C{number}"
        axis.plot(streams, [of(step)[0] for step in steps], color=color, label=name)
        axis.plot(streams, [of(step)[1] for step in steps], color=color, linestyle=":")
        for step in steps:
            filled = color if step.is_sustained else "white"
            axis.plot(step.streams, of(step)[0], "o", markeredgecolor=color, markerfacecolor=filled)
    axis.set(xlabel="streams", ylabel="seconds", title=title, yscale="log")
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.yaxis.set_minor_locator(NullLocator())
    axis.grid(visible=True, alpha=0.3)


def _plot_cpu(axis: Axes, searches: Mapping[str, LoadSearch]) -> None:
    first = [search.results[0] for search in searches.values()]
    bottom = [0.0] * len(first)
    for program in PROGRAM_NAMES:
        heights = [step.cpu_s[program] for step in first]
        axis.bar(list(searches), heights, bottom=bottom, label=program)
        bottom = [low + height for low, height in zip(bottom, heights, strict=True)]
    for position, total_height in enumerate(bottom):
        axis.text(position, total_height, f"{total_height:.2f}", ha="center", va="bottom")
    axis.set(ylabel="CPU seconds", title=f"A minute of a stream, {first[0].streams} at a time")
    axis.set_ylim(0, max(bottom) * 1.3)
    axis.legend(ncols=2)


def draw_plots(searches: Mapping[str, LoadSearch], path: Path) -> None:
    """Write the plots to a file.

    Solid lines show medians, dotted lines show 95th percentiles, and hollow points show excessive loads.
    """
    figure, axes = plt.subplots(1, 3, figsize=(17, 5.5), layout="constrained")
    _plot_latency(axes[0], searches, "Start of a sentence to its first text", lambda step: step.first_text_s)
    _plot_latency(axes[1], searches, "End of a sentence to its final", lambda step: step.final_s)
    title = "median; dotted: p95; hollow: not sustained; silence kept: disaggregated, without VAD"
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(searches), title=title)
    _plot_cpu(axes[2], searches)
    figure.savefig(path, dpi=110)
