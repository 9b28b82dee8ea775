"""Ids of a client's realtime events, which an ``error`` repeats."""

import json

import pytest

from voice_runtime.openai_events import parse_event_id


@pytest.mark.parametrize(
    ("text", "event_id"),
    [
        ('{"event_id": "a"}', "a"),
        (b'{"event_id": "a"}', "a"),
        (json.dumps({"event_id": "a" * 512}), "a" * 512),
        (json.dumps({"event_id": "a" * 513}), None),
        ('{"event_id": ""}', ""),
        ('{"event_id": 5}', None),
        ('{"type": "a"}', None),
        ('["event_id"]', None),
        ('"event_id"', None),
        ("event_id", None),
        (b"\xff", None),
        ("[" * 100_000, None),
    ],
)
def test_only_a_short_text_is_an_id(text: str | bytes, event_id: str | None) -> None:
    assert parse_event_id(text) == event_id
