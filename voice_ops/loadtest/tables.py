"""A report as tables, for a terminal and for Markdown."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich import box
from rich.table import Table

from voice_ops.loadtest.compare import CONFIDENCE_LEVEL, Difference
from voice_ops.loadtest.drivers import Api
from voice_ops.loadtest.metrics import METRICS, Metric, get_metric_label
from voice_ops.loadtest.report import Comparison, EndpointResult, LoadTestReport
from voice_ops.loadtest.scenarios import PUBLICATION
from voice_ops.loadtest.summary import Distribution, EndpointSummary
from voice_ops.output import UntruncatedTable

_MIN_WITHOUT_DECIMALS = 100
_MIN_WITH_ONE_DECIMAL = 10


@dataclass(frozen=True)
class TextTable:
    """A table of text with a left-aligned first column."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]

    def to_table(self) -> Table:
        table = UntruncatedTable(title=self.title, title_justify="left", box=box.SIMPLE_HEAD)
        for number, heading in enumerate(self.headings):
            table.add_column(heading, justify="right" if number else "left")
        for row in self.rows:
            table.add_row(*row)
        return table

    def to_markdown(self) -> str:
        rule = ["---", *("---:" for _ in self.headings[1:])]
        lines = (f"| {' | '.join(cells)} |" for cells in (self.headings, rule, *self.rows))
        return "\n".join([f"## {self.title}", "", *lines])


def format_number(value: float) -> str:
    """Format a number with three significant digits, or with all digits before the decimal point if there are more."""
    if abs(value) >= _MIN_WITHOUT_DECIMALS:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= _MIN_WITH_ONE_DECIMAL else f"{value:.3g}"


def _format_percentiles(distribution: Distribution | None) -> str | None:
    return (
        " / ".join(map(format_number, (distribution.p50, distribution.p95, distribution.p99))) if distribution else None
    )


def _format_optional_number(value: float | None) -> str | None:
    return None if value is None else format_number(value)


def _format_fraction(value: float | None) -> str | None:
    return None if value is None else f"{value:.1%}"


def _format_goodput(summary: EndpointSummary) -> str | None:
    if summary.goodput_per_s is None:
        return None
    return f"{format_number(summary.goodput_per_s)}/s, {_format_fraction(summary.goodput_share)}"


_CellFormatter = Callable[[EndpointSummary], str | None]


def _list_table_rows(api: Api) -> list[tuple[str, str, _CellFormatter]]:
    """Return the key and the label of each row, and the function that formats a cell of the row."""
    metrics: list[tuple[str, str, _CellFormatter]] = [
        (
            metric.name,
            _format_metric_label(metric, api),
            lambda summary, name=metric.name: _format_percentiles(summary.metrics.get(name)),  # type: ignore[misc]
        )
        for metric in METRICS.values()
    ]
    return [
        ("requests", "requests, failed", lambda s: f"{s.requests}, {sum(s.failures.values())}"),
        *metrics,
        ("wait", "wait rate: starved streams", lambda s: _format_fraction(s.wait_rate)),
        ("chars", "char/s per GPU", lambda s: _format_optional_number(s.chars_per_s_per_gpu)),
        ("tokens", "tokens/s", lambda s: _format_optional_number(s.tokens_per_s)),
        ("audio", "audio s/s", lambda s: _format_optional_number(s.audio_s_per_s)),
        ("rate", "requests/s", lambda s: _format_optional_number(s.requests_per_s)),
        ("goodput", "goodput under the SLO", _format_goodput),
        ("cost", "USD per audio hour", lambda s: _format_optional_number(s.usd_per_audio_hour)),
        ("start", "client: start lag, ms", lambda s: _format_percentiles(s.harness.start_lag_ms)),
        ("loop", "client: loop lag, ms", lambda s: _format_percentiles(s.harness.loop_lag_ms)),
        ("pacing", "client: pacing lag, ms", lambda s: _format_percentiles(s.harness.pacing_lag_ms)),
        ("cpu", "client: CPU, of one core", lambda s: _format_fraction(s.harness.cpu_share)),
    ]


def create_results_table(report: LoadTestReport) -> TextTable:
    """Create a table with a column for each endpoint and load. Published figures follow the measured ones."""
    has_several_endpoints = len({result.endpoint for result in report.results}) > 1
    rows = []
    for key, text, cell in _list_table_rows(report.api):
        cells = [cell(result.summary) for result in report.results]
        if any(cells):
            rows.append([text, *(outcome or "-" for outcome in cells)])
        if any(key in result.published_figures for result in report.results):
            rows.append(["  published", *(_format_published_result(result, key) for result in report.results)])
    headings = [
        f"{result.endpoint}, {result.summary.load}" if has_several_endpoints else result.summary.load
        for result in report.results
    ]
    source = f" (published: {PUBLICATION})" if any(result.published_figures for result in report.results) else ""
    return TextTable(f"{report.title}{source}", ["of each: p50 / p95 / p99", *headings], rows)


def _format_published_result(result: EndpointResult, key: str) -> str:
    if key not in result.published_figures:
        return "-"
    value = result.published_figures[key]
    return f"{value:.1%}" if key == "wait" else format_number(value)


def create_comparison_table(report: LoadTestReport, comparison: Comparison) -> TextTable:
    """Create a table of the differences between two endpoints with one load."""
    measured, baseline = dict.fromkeys(result.endpoint for result in report.results)
    rows = [
        [
            f"{difference.statistic} {_format_metric_name(difference, report.api)}",
            format_number(difference.measured),
            format_number(difference.baseline),
            f"{difference.difference:+.3g}{_format_percent(difference)}",
            f"{difference.low:+.3g} to {difference.high:+.3g}",
            "yes" if difference.is_significant else "no",
        ]
        for difference in comparison.differences
    ]
    interval = f"{CONFIDENCE_LEVEL:.0%} interval"
    headings = ["", measured, baseline, "difference", interval, "beyond chance"]
    return TextTable(f"{measured} against {baseline}, {comparison.load}", headings, rows)


def _format_metric_name(difference: Difference, api: Api) -> str:
    if difference.metric not in METRICS:
        return difference.metric
    return _format_metric_label(METRICS[difference.metric], api)


def _format_metric_label(metric: Metric, api: Api) -> str:
    return get_metric_label(metric.name, api) + (f", {metric.unit}" if metric.unit else "")


def _format_percent(difference: Difference) -> str:
    return f" ({difference.difference / difference.baseline:+.1%})" if difference.baseline else ""


def format_markdown(report: LoadTestReport, plots: Sequence[str]) -> str:
    grids = [
        create_results_table(report),
        *(create_comparison_table(report, comparison) for comparison in report.comparisons),
    ]
    meanings = [
        f"- {get_metric_label(m.name, report.api)}: {m.meaning}"
        for m in METRICS.values()
        if _is_measured(report, m.name)
    ]
    parts = [
        f"# {report.title}",
        "\n".join(f"- {key}: {value}" for key, value in report.setup.items()),
        *(grid.to_markdown() for grid in grids),
        *(["## Doubts\n\n" + "\n".join(f"- {doubt}" for doubt in report.warnings)] if report.warnings else []),
        *(f"![{name.removesuffix('.png')}]({name})" for name in plots),
        "## What is measured\n\n" + "\n".join(meanings),
    ]
    return "\n\n".join(parts) + "\n"


def _is_measured(report: LoadTestReport, name: str) -> bool:
    return any(name in result.summary.metrics for result in report.results)
