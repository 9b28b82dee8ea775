"""The course of a simulation as pictures."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from ops.simulate.report import percent, summarize
from ops.simulate.run import Result

_INK, _PLACES, _CARRIED, _REFUSED = "#222222", "#1f6fb4", "#a8d5ba", "#d1495b"
_FLEET_COLOURS = ("#7a8b99", "#1f6fb4", "#6ab187", "#e1a948", "#8e6c8a", "#c8553d")
_COLUMN_IN, _ROW_IN = 4.2, 2.9
_DAY_H = 20


def draw(results: Sequence[Result], title: str, folder: Path) -> list[Path]:
    """Write ``calls.png`` and ``hosts.png``, a column for each policy; return their paths.

    Raises:
        OSError: The folder cannot be made or written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    return [
        _save(_calls(results, title), folder / "calls.png"),
        _save(_hosts(results, title), folder / "hosts.png"),
    ]


def _save(figure: Figure, file: Path) -> Path:
    figure.savefig(file, dpi=110, metadata={"Software": None})
    return file


def _columns(results: Sequence[Result], title: str, heights: Sequence[float]) -> tuple[Figure, list[list[Axes]]]:
    figure = Figure(figsize=(_COLUMN_IN * len(results), _ROW_IN * sum(heights) + 0.9), layout="constrained")
    axes = figure.subplots(
        len(heights), len(results), sharex=True, sharey="row", squeeze=False, height_ratios=list(heights)
    )
    figure.suptitle(title, fontsize=12)
    for column, result in enumerate(results):
        axes[0][column].set_title(_headline(result), fontsize=10)
        axes[-1][column].set_xlabel("hour" if _is_day(result) else "minute")
        axes[-1][column].xaxis.set_major_locator(MaxNLocator(7, steps=[1, 2, 3, 4, 5, 10]))
    for axis in axes.flat:
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
        axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    return figure, axes.tolist()


def _headline(result: Result) -> str:
    summary = summarize(result)
    share = percent(summary.refused_calls, max(1, summary.offered_calls))
    refused = f"{share} of calls refused" if summary.refused_calls else "no call refused"
    return f"{result.policy}\n{refused}, {summary.usd:,.0f} USD"


def _is_day(result: Result) -> bool:
    return bool(result.course.second[-1] > _DAY_H * 3600)


def _time(result: Result) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return result.course.second / (3600 if _is_day(result) else 60)


def _calls(results: Sequence[Result], title: str) -> Figure:
    figure, axes = _columns(results, title, (1.25, 0.75))
    for column, result in enumerate(results):
        course, time = result.course, _time(result)
        above, below = axes[0][column], axes[1][column]
        above.fill_between(time, course.carried, color=_CARRIED, linewidth=0, label="carried")
        above.fill_between(
            time, course.carried, course.wanted, where=course.wanted > course.carried, color=_REFUSED, alpha=0.35,
            linewidth=0, label="offered, not carried",
        )  # fmt: skip
        above.plot(time, course.wanted, color=_INK, linewidth=1.2, label="offered load")
        above.step(time, course.places, color=_PLACES, linewidth=1.5, where="post", label="capacity in service (ASR)")
        minutes, refused = _per_minute(result)
        below.fill_between(minutes, refused, color=_REFUSED, step="post", linewidth=0)
    axes[0][0].set_ylabel("calls at a time")
    axes[1][0].set_ylabel("callers refused\na minute")
    _from_zero(axes)
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    return figure


def _per_minute(
    result: Result,
) -> tuple[np.ndarray[tuple[int], np.dtype[np.float64]], np.ndarray[tuple[int], np.dtype[np.float64]]]:
    ticks = max(1, 60 // result.tick_s)
    return _time(result)[::ticks], np.diff(result.course.refused[::ticks], prepend=0).astype(np.float64)


def _hosts(results: Sequence[Result], title: str) -> Figure:
    fleets = [plan.name for plan in results[0].plans]
    figure, axes = _columns(results, title, (0.6,) * len(fleets))
    for column, result in enumerate(results):
        for row, name in enumerate(fleets):
            axis, colour = axes[row][column], _FLEET_COLOURS[row % len(_FLEET_COLOURS)]
            axis.step(_time(result), result.course.hosts[name], color=colour, where="post", label="running")
            stopped = result.course.stopped[name]
            if stopped.any():
                axis.step(
                    _time(result), stopped, color=colour, where="post", linestyle=":", label="stopped, in warm pool"
                )
                axis.legend(frameon=False, fontsize=8)
            axis.yaxis.set_major_locator(MaxNLocator(4, integer=True))
            if not column:
                axis.set_ylabel(f"{name} hosts")
    _from_zero(axes)
    return figure


def _from_zero(axes: Sequence[Sequence[Axes]]) -> None:
    """Start every row at 0; not before all is drawn, since it ends the fitting of a shared axis."""
    for row in axes:
        row[0].set_ylim(bottom=0)
