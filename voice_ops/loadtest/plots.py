"""Plots for a report."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter

from voice_ops.loadtest.compare import CONFIDENCE_LEVEL
from voice_ops.loadtest.drivers import Api
from voice_ops.loadtest.metrics import METRICS, get_metric_label
from voice_ops.loadtest.report import Comparison, EndpointResult, LoadTestReport
from voice_ops.loadtest.tables import format_number
from voice_ops.loadtest.trace import RequestTrace

_TEXT_COLOR = "#333333"
_PUBLISHED_COLOR = "#c2410c"
_DPI = 130
_THOUSANDS_FORMATTER = StrMethodFormatter("{x:,g}")
_RATES_BY_API = {
    Api.SPEECH: ("chars_per_s_per_gpu", "char/s per GPU"),
    Api.CHAT: ("tokens_per_s", "tokens/s"),
    Api.TRANSCRIPTION: ("audio_s_per_s", "seconds of audio per second"),
    Api.REALTIME: ("audio_s_per_s", "seconds of audio per second"),
    Api.SESSION: ("audio_s_per_s", "seconds of audio per second"),
    Api.OPENAI: ("audio_s_per_s", "seconds of audio per second"),
    Api.DEEPGRAM: ("audio_s_per_s", "seconds of audio per second"),
    Api.CONVERSATION: ("audio_s_per_s", "seconds of audio per second"),
}


def save_plots(report: LoadTestReport, folder: Path) -> list[str]:
    """Write the plots for a report to a folder, and return the names of the files."""
    _save_figure(_create_results_figure(report), folder / "results.png")
    if not report.comparisons:
        return ["results.png"]
    _save_figure(_create_comparisons_figure(report), folder / "comparison.png")
    return ["results.png", "comparison.png"]


def _save_figure(figure: Figure, file: Path) -> None:
    figure.savefig(file, dpi=_DPI, facecolor="white")


def _create_results_figure(report: LoadTestReport) -> Figure:
    figure = Figure(figsize=(12, 8.5), layout="constrained")
    _set_title(figure, report)
    axes = figure.subplots(2, 2)
    _plot_distribution(axes[0, 0], report)
    _plot_percentiles(axes[0, 1], report)
    _plot_throughput(axes[1, 0], report)
    _plot_timeline(axes[1, 1], report)
    return figure


def _set_title(figure: Figure, report: LoadTestReport) -> None:
    endpoints = dict.fromkeys(result.endpoint for result in report.results)
    endpoint_text = "; ".join(f"{name}: {report.setup[name]}" for name in endpoints)
    figure.suptitle(f"{report.title}\n{endpoint_text}", fontsize=12, color=_TEXT_COLOR)


def _select_colors(report: LoadTestReport) -> list[Any]:
    return [colormaps["viridis"](share) for share in np.linspace(0.05, 0.85, len(report.results))]


def _format_result_labels(report: LoadTestReport) -> list[str]:
    has_several_endpoints = len({result.endpoint for result in report.results}) > 1
    return [
        f"{result.endpoint}\n{result.summary.load}" if has_several_endpoints else result.summary.load
        for result in report.results
    ]


def _calculate_first_response_ms(trace: RequestTrace) -> float | None:
    return None if trace.error is not None or trace.first_piece_delay_s is None else 1000 * trace.first_piece_delay_s


def _collect_first_response_times_ms(result: EndpointResult) -> list[float]:
    return [value for trace in result.run.traces if (value := _calculate_first_response_ms(trace)) is not None]


def _label_axes(axes: Axes, title: str, x: str, y: str) -> None:
    axes.set_title(title, loc="left", fontsize=11, color=_TEXT_COLOR)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(visible=True, color="#e5e5e5")
    axes.set_axisbelow(True)
    axes.xaxis.set_major_formatter(_THOUSANDS_FORMATTER)
    axes.yaxis.set_major_formatter(_THOUSANDS_FORMATTER)
    axes.spines[["top", "right"]].set_visible(False)


def _plot_distribution(axes: Axes, report: LoadTestReport) -> None:
    """Plot the share of requests with a first piece over time. Failed requests count as requests without a piece."""
    for result, name, color in zip(report.results, _format_result_labels(report), _select_colors(report), strict=True):
        values = sorted(_collect_first_response_times_ms(result))
        shares = 100 * np.arange(1, len(values) + 1) / len(result.run.traces)
        axes.step(values, shares, where="post", color=color, linewidth=2, label=name.replace("\n", ", "))
    metric_label = get_metric_label("first", report.api)
    _label_axes(
        axes,
        f"Requests that have had their {metric_label.removeprefix('time to ')}",
        "ms after the intended start",
        "%",
    )
    axes.set_ylim(0, 102)
    axes.set_xlim(left=0)
    axes.legend(framealpha=0.9, edgecolor="white", fontsize=9, loc="best")


def _plot_percentiles(axes: Axes, report: LoadTestReport) -> None:
    positions = np.arange(len(report.results))
    width = 0.26
    for index, (percentile, color) in enumerate((("p50", "#93c5fd"), ("p95", "#3b82f6"), ("p99", "#1e3a8a"))):
        heights = [getattr(result.summary.metrics.get("first"), percentile, 0.0) for result in report.results]
        bars = axes.bar(positions + (index - 1) * width, heights, width, color=color, label=percentile)
        axes.bar_label(bars, fmt="{:,.0f}", fontsize=8, color=_TEXT_COLOR)
    _plot_published_figures(axes, report, "first", positions - 1.5 * width)
    _label_axes(axes, f"{get_metric_label('first', report.api).capitalize()}, percentiles", "", "ms")
    axes.set_xticks(positions, _format_result_labels(report))
    _add_legend(axes)


def _plot_throughput(axes: Axes, report: LoadTestReport) -> None:
    attribute, unit = _RATES_BY_API[report.api]
    positions = np.arange(len(report.results))
    heights = [getattr(result.summary, attribute) or 0.0 for result in report.results]
    bars = axes.bar(positions, heights, 0.5, color="#0f766e", label="measured")
    axes.bar_label(bars, [format_number(height) for height in heights], fontsize=8, color=_TEXT_COLOR)
    _plot_published_figures(axes, report, "chars", positions - 0.25)
    _label_axes(axes, "Throughput", "", unit)
    axes.set_xticks(positions, _format_result_labels(report))
    _add_legend(axes)


def _add_legend(axes: Axes) -> None:
    axes.set_ylim(0, 1.18 * axes.get_ylim()[1])
    axes.legend(frameon=False, fontsize=9, loc="upper left", ncols=4)


def _plot_published_figures(
    axes: Axes, report: LoadTestReport, key: str, positions: Sequence[float] | np.ndarray[Any, Any]
) -> None:
    published_values = [
        (position, result.published_figures[key])
        for position, result in zip(positions, report.results, strict=True)
        if key in result.published_figures
    ]
    if published_values:
        axes.plot(*zip(*published_values, strict=True), "D", color=_PUBLISHED_COLOR, markersize=7, label="published")


def _plot_timeline(axes: Axes, report: LoadTestReport) -> None:
    """Plot the waiting time of each request over its scheduled start. A stall appears as a slope."""
    begin = min(trace.intended_s for result in report.results for trace in result.run.traces)
    for result, color in zip(report.results, _select_colors(report), strict=True):
        successes = [
            (trace.intended_s - begin, ms)
            for trace in result.run.traces
            if (ms := _calculate_first_response_ms(trace)) is not None
        ]
        if successes:
            axes.plot(*zip(*successes, strict=True), ".", color=color, markersize=6, alpha=0.7)
        failures = [
            (trace.intended_s - begin, 1000 * trace.total_duration_s)
            for trace in result.run.traces
            if trace.error is not None
        ]
        if failures:
            axes.plot(*zip(*failures, strict=True), "x", color="#dc2626", markersize=7)
    _label_axes(axes, "Every request (failed: red ×)", "intended start, s", "ms to the first piece, or to the failure")
    axes.set_ylim(bottom=0)


def _create_comparisons_figure(report: LoadTestReport) -> Figure:
    count = len(report.comparisons)
    rows = max(len(comparison.differences) for comparison in report.comparisons)
    figure = Figure(figsize=(10, count * (1.2 + 0.38 * rows)), layout="constrained")
    _set_title(figure, report)
    for axes, comparison in zip(figure.subplots(count, 1, squeeze=False)[:, 0], report.comparisons, strict=True):
        _draw_forest_plot(axes, comparison, report)
    return figure


def _draw_forest_plot(axes: Axes, comparison: Comparison, report: LoadTestReport) -> None:
    measured, baseline = dict.fromkeys(result.endpoint for result in report.results)
    shown_differences = [difference for difference in comparison.differences if difference.baseline]
    for index, outcome in enumerate(reversed(shown_differences)):
        low, estimate, high = (
            100 * value / outcome.baseline for value in (outcome.low, outcome.difference, outcome.high)
        )
        color = "#1d4ed8" if outcome.is_significant else "#9ca3af"
        axes.plot([low, high], [index, index], color=color, linewidth=3, solid_capstyle="butt")
        axes.plot(estimate, index, "o", color=color, markersize=7)
        axes.annotate(
            f"{estimate:+.1f} %", (estimate, index), (0, 7), textcoords="offset points", ha="center", fontsize=8
        )
    texts = [
        f"{get_metric_label(outcome.metric, report.api) if outcome.metric in METRICS else outcome.metric}, "
        f"{outcome.statistic}"
        for outcome in reversed(shown_differences)
    ]
    title = f"{measured} against {baseline}, {comparison.load} (grey: not significant)"
    _label_axes(axes, title, f"difference, % of {baseline}, with its {CONFIDENCE_LEVEL:.0%} interval", "")
    axes.set_yticks(range(len(shown_differences)), texts)
    axes.set_ylim(-0.6, len(shown_differences) - 0.2)
    axes.axvline(0, color=_TEXT_COLOR, linewidth=1)
    axes.margins(x=0.12)
