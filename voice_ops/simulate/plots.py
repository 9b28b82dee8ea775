"""Plots of a simulation."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from voice_ops.simulate.report import percent, summarize
from voice_ops.simulate.run import Result

_TEXT_COLOR, _SLOTS_COLOR, _CALLS_COLOR, _REFUSED_COLOR = "#222222", "#1f6fb4", "#a8d5ba", "#d1495b"
_COLUMN_IN, _HEIGHT_IN = 4.2, 6.7
_DAY_H = 20


def draw(results: Sequence[Result], title: str, folder: Path) -> Path:
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
        _fill(result, above, below)
    axes[0][0].set_ylabel("calls at a time")
    axes[1][0].set_ylabel("callers refused\na minute")
    for row in axes:
        row[0].set_ylim(bottom=0)  # after all lines are drawn, since it disables autoscaling of a shared axis
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    figure.savefig(folder / "calls.png", dpi=110, metadata={"Software": None})
    return folder / "calls.png"


def _format_axes(result: Result, above: Axes, below: Axes) -> None:
    above.set_title(_headline(result), fontsize=10)
    below.set_xlabel("hour" if _is_day(result) else "minute")
    below.xaxis.set_major_locator(MaxNLocator(7, steps=[1, 2, 3, 4, 5, 10]))
    for axis in (above, below):
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
        axis.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))


def _fill(result: Result, above: Axes, below: Axes) -> None:
    course = result.course
    time = course.second / (3600 if _is_day(result) else 60)
    above.fill_between(time, course.carried, color=_CALLS_COLOR, linewidth=0, label="carried")
    above.fill_between(
        time, course.carried, course.wanted, where=course.wanted > course.carried, color=_REFUSED_COLOR, alpha=0.35,
        linewidth=0, label="offered, not carried",
    )  # fmt: skip
    above.plot(time, course.wanted, color=_TEXT_COLOR, linewidth=1.2, label="offered load")
    above.step(time, course.places, color=_SLOTS_COLOR, linewidth=1.5, where="post", label="capacity in service (ASR)")
    minute = max(1, 60 // result.tick_s)
    refused = np.diff(course.refused[::minute], prepend=0)
    below.fill_between(time[::minute], refused, color=_REFUSED_COLOR, step="post", linewidth=0)


def _headline(result: Result) -> str:
    summary = summarize(result)
    share = percent(summary.refused_calls, max(1, summary.offered_calls))
    refused = f"{share} of calls refused" if summary.refused_calls else "no call refused"
    return f"{result.policy}\n{refused}, {summary.usd:,.0f} USD"


def _is_day(result: Result) -> bool:
    return bool(result.course.second[-1] > _DAY_H * 3600)
