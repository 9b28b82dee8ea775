"""A report as tables."""

from collections.abc import Callable

from rich.markup import escape
from rich.table import Table

from ops.loadtest.compare import CONFIDENCE, Difference
from ops.loadtest.drivers import Api
from ops.loadtest.metrics import METRICS, Metric, label
from ops.loadtest.report import Comparison, Report
from ops.loadtest.summary import Distribution, Summary
from ops.output import empty_table

_INTEGRAL_FROM = 100
_ONE_PLACE_FROM = 10

_Cell = Callable[[Summary], str]


def results_table(report: Report) -> Table:
    """Return the figures, a column for each endpoint and load."""
    several = len({result.endpoint for result in report.results}) > 1
    headings = [
        f"{result.endpoint}, {result.summary.load}" if several else result.summary.load for result in report.results
    ]
    table = empty_table(report.title, ["of each: p50 / p95 / p99"], headings)
    for text, cell in _rows(report.api):
        cells = [cell(result.summary) for result in report.results]
        if any(cells):
            table.add_row(text, *(found or "-" for found in cells))
    return table


def comparison_table(report: Report, comparison: Comparison) -> Table:
    """Return the differences between two endpoints under one load."""
    numbers = ["measured", "baseline", "difference", f"{CONFIDENCE:.0%} interval", "beyond chance"]
    table = empty_table(f"measured against baseline, {comparison.load}", [""], numbers)
    for found in comparison.differences:
        percent = f" ({found.difference / found.baseline:+.1%})" if found.baseline else ""
        table.add_row(
            f"{found.statistic} {_named(found, report.api)}",
            _number(found.measured),
            _number(found.baseline),
            f"{found.difference:+.3g}{percent}",
            f"{found.low:+.3g} to {found.high:+.3g}",
            "yes" if found.shown else "no",
        )
    return table


def _rows(api: Api) -> list[tuple[str, _Cell]]:
    """Every row: its label, and its cell for one summary."""
    metrics: list[tuple[str, _Cell]] = [
        (
            _labelled(metric, api),
            lambda summary, name=metric.name: _percentiles(summary.metrics.get(name)),  # type: ignore[misc]
        )
        for metric in METRICS.values()
    ]
    return [
        ("requests, failed", lambda s: f"{s.requests}, {sum(s.failures.values())}"),
        *metrics,
        ("wait rate: starved streams", lambda s: _share(s.wait_rate)),
        ("char/s per GPU", lambda s: _number(s.chars_per_s_per_gpu)),
        ("tokens/s", lambda s: _number(s.tokens_per_s)),
        ("audio s/s", lambda s: _number(s.audio_s_per_s)),
        ("requests/s", lambda s: _number(s.requests_per_s)),
        ("goodput under the SLO, requests/s", lambda s: _number(s.goodput_per_s)),
        ("goodput under the SLO, share", lambda s: _share(s.goodput_share)),
        ("USD per audio hour", lambda s: _number(s.usd_per_audio_hour)),
        ("client: start lag, ms", lambda s: _percentiles(s.harness.start_lag_ms)),
        ("client: loop lag, ms", lambda s: _percentiles(s.harness.loop_lag_ms)),
        ("client: pacing lag, ms", lambda s: _percentiles(s.harness.pacing_lag_ms)),
        ("client: CPU, of one core", lambda s: _share(s.harness.cpu_share)),
    ]


def _named(difference: Difference, api: Api) -> str:
    return _labelled(METRICS[difference.metric], api) if difference.metric in METRICS else difference.metric


def _labelled(metric: Metric, api: Api) -> str:
    return escape(label(metric.name, api) + (f", {metric.unit}" if metric.unit else ""))


def _percentiles(found: Distribution | None) -> str:
    return " / ".join(map(_number, (found.p50, found.p95, found.p99))) if found else ""


def _number(value: float | None) -> str:
    """Return a figure with three significant digits, or all before the point."""
    if value is None:
        return ""
    if abs(value) >= _INTEGRAL_FROM:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= _ONE_PLACE_FROM else f"{value:.3g}"


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.1%}"
