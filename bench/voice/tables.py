"""Builds the tables of loads and of sustained loads."""

from collections.abc import Mapping, Sequence

from rich.table import Table

from bench.voice.search import LoadSearch
from bench.voice.step import PERCENTILES, LoadResult
from voice_ops.output import create_table

PROGRAM_NAMES = ("asr", "vad", "gateway", "store")


def build_loads_table(searches: Mapping[str, LoadSearch]) -> Table:
    """Return a table of all loads and their results."""
    percentiles = "/".join(map(str, PERCENTILES))
    title = "Loads in the order in which they took turns; red: not sustained; silence kept: disaggregated, without VAD"
    numbers = [
        "streams", "worst\nRTF", f"first text, s\np{percentiles}", f"final, s\np{percentiles}", "words\nwrong",
        "CPU s, a minute of a stream\nall: " + " ".join(PROGRAM_NAMES), "of the machine\ncallers, others",
    ]  # fmt: skip
    rendered = create_table(title, [""], numbers)
    for name, search in searches.items():
        for step in search.results:
            rendered.add_row(name, *_format_row(step), style="" if step.is_sustained else "red")
        rendered.add_section()
    return rendered


def build_summary_table(searches: Mapping[str, LoadSearch]) -> Table:
    """Return a table of the maximum sustained load for each contestant."""
    title = "Most streams at a real-time factor below 1"
    rendered = create_table(title, [""], ["sustained", "too many", "CPU s, a minute of a stream there"])
    for name, search in searches.items():
        best = next(
            (step for step in search.results if step.streams == search.max_sustained_streams and step.is_sustained),
            None,
        )
        cpu = f"{sum(best.cpu_s.values()):.2f}" if best else ""
        rendered.add_row(
            name, str(search.max_sustained_streams or "none"), str(search.min_excessive_streams or "not reached"), cpu
        )
    return rendered


def _format_row(step: LoadResult) -> list[str]:
    missing = f", {len(step.failed)} failed" if step.failed else f", {step.lost} lost" if step.lost else ""
    return [
        str(step.streams),
        f"{step.real_time_factor:.2f}{missing}",
        _format_percentiles(step.first_text_s),
        _format_percentiles(step.final_s),
        f"{step.word_error_rate:.0%}",
        f"{sum(step.cpu_s.values()):.2f}: {_format_percentiles([step.cpu_s[program] for program in PROGRAM_NAMES])}",
        f"{step.callers_share:.0%}, {step.others_share:.0%}",
    ]


def _format_percentiles(values: Sequence[float]) -> str:
    return " ".join(f"{value:.2f}" for value in values) or "-"
