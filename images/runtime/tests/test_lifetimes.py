"""Lifetimes and sizes of data in the store, as the pages for callers and operators describe them."""

from datetime import timedelta
from pathlib import Path

from voice_runtime import state

ARCHIVE_PAGE = " ".join((Path(__file__).parents[3] / "docs/archive.md").read_text(encoding="utf-8").split())


def test_the_page_about_the_archive_names_the_size_and_the_lifetime_of_a_transcript() -> None:
    assert f"that callers read keeps only {state.MAX_TRANSCRIPT_EVENTS:,} events" in ARCHIVE_PAGE
    assert "until the store deletes the transcript after ten minutes" in ARCHIVE_PAGE
    assert timedelta(seconds=state.SESSION_RETENTION_S) == timedelta(minutes=10)


def test_the_usage_of_a_day_can_be_reported_on_the_next_two_days() -> None:
    assert timedelta(seconds=state.USAGE_RETENTION_S) == timedelta(days=1) + timedelta(days=2)
