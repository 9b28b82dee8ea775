"""Plots of a simulation."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from voice_ops.simulate.report import format_percent, summarize_result
from voice_ops.simulate.run import PolicyResult

_TEXT_COLOR, _SLOTS_COLOR, _CALLS_COLOR, _REFUSED_COLOR = "#222222", "#1f6fb4", "#a8d5ba", "#d1495b"
_COLUMN_IN, _HEIGHT_IN = 4.2, 6.7
_MIN_DAY_HOURS = 20


def write_calls_plot(results: Sequence[PolicyResult], title: str, folder: Path) -> Path:
    """Write ``calls.png`` with a column per policy, and return the path of the file.

    Raises:
        OSError: The folder cannot be created or written to.
    """
    folder.mkdir(parents=True, exist_ok=True)
    figure = Figure(figsize=(_COLUMN_IN * len(results), _HEIGHT_IN), layout="constrained")
    figure.suptitle(title, fontsize=12)
    axes = figure.subplots(2, len(results), sharex=True, sharey="row", squeeze=False, height_ratios=(1.25, 0.75))
    for result, (above, below) in zip(results, axes.T, strict=True):
        _format_axes(result, above, below)
        _plot_calls(result, above, below)
    axes[0][0].set_ylabel("calls at a time")
    axes[1][0].set_ylabel("callers refused\na minute")
    for row in axes:
        row[0].set_ylim(bottom=0)  # after all lines are drawn, since it disables autoscaling of a shared axis
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    figure.savefig(folder / "calls.png", dpi=110, metadata={"Software": None})
    return folder / "calls.png"


def _format_axes(result: PolicyResult, calls_axes: Axes, refused_axes: Axes) -> None:
    calls_axes.set_title(_format_headline(result), fontsize=10)
    refused_axes.set_xlabel("hour" if _is_day_long(result) else "minute")
    refused_axes.xaxis.set_major_locator(MaxNLocator(7, steps=[1, 2, 3, 4, 5, 10]))
    for axis in (calls_axes, refused_axes):
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
        axis.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))


def _plot_calls(result: PolicyResult, calls_axes: Axes, refused_axes: Axes) -> None:
    course = result.time_series
    time = course.second / (3600 if _is_day_long(result) else 60)
    calls_axes.fill_between(time, course.carried, color=_CALLS_COLOR, linewidth=0, label="carried")
    calls_axes.fill_between(
        time, course.carried, course.wanted, where=course.wanted > course.carried, color=_REFUSED_COLOR, alpha=0.35,
        linewidth=0, label="offered, not carried",
    )  # fmt: skip
    calls_axes.plot(time, course.wanted, color=_TEXT_COLOR, linewidth=1.2, label="offered load")
    calls_axes.step(
        time, course.places, color=_SLOTS_COLOR, linewidth=1.5, where="post", label="capacity in service (ASR)"
    )
    minute = max(1, 60 // result.tick_s)
    refused = np.diff(course.refused[::minute], prepend=0)
    refused_axes.fill_between(time[::minute], refused, color=_REFUSED_COLOR, step="post", linewidth=0)


def _format_headline(result: PolicyResult) -> str:
    summary = summarize_result(result)
    share = format_percent(summary.refused_calls, max(1, summary.offered_calls))
    refused = f"{share} of calls refused" if summary.refused_calls else "no call refused"
    return f"{result.policy}\n{refused}, {summary.usd:,.0f} USD"


def _is_day_long(result: PolicyResult) -> bool:
    return bool(result.time_series.second[-1] > _MIN_DAY_HOURS * 3600)
