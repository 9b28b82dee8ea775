"""Common parts of OpenAI's realtime events for gateway and agent."""

import json

MAX_ID_CHARACTERS = 512
"""Maximum length of a client's ``event_id``. A longer id is not repeated."""


def parse_event_id(text: str | bytes) -> str | None:
    """Return the id of a client's event, or ``None`` if the event has none. An ``error`` repeats this id."""
    try:
        event = json.loads(text)
    except (ValueError, RecursionError):
        return None
    value = event.get("event_id") if isinstance(event, dict) else None
    return value if isinstance(value, str) and len(value) <= MAX_ID_CHARACTERS else None
