"""Log lines as JSON, and messages that are not logged."""

import io
import json
import logging
import sys
from collections.abc import Iterator

import pytest

from voice_runtime.logs import JsonFormatter, set_up_logging


def record(name: str = "voice", level: int = logging.ERROR, **more: object) -> logging.LogRecord:
    made = logging.LogRecord(name, level, "file.py", 1, "lost %d", (3,), None)
    made.created = 1_700_000_000.0625
    made.__dict__.update(more)
    return made


def test_a_line_has_the_time_the_level_and_the_fields() -> None:
    assert json.loads(JsonFormatter().format(record(fields={"ssrc": 7}))) == {
        "time": "2023-11-14T22:13:20.062+00:00", "level": "error", "message": "lost 3", "ssrc": 7
    }  # fmt: skip


@pytest.mark.parametrize(("name", "level"), [("opentelemetry.sdk", "warning"), ("voice.opentelemetry", "error")])
def test_an_unavailable_trace_collector_is_no_error(name: str, level: str) -> None:
    assert json.loads(JsonFormatter().format(record(name)))["level"] == level


def test_an_error_has_its_traceback() -> None:
    try:
        int("broken")
    except ValueError:
        line = JsonFormatter().format(record(exc_info=sys.exc_info()))
    assert "\n" not in line
    assert json.loads(line)["trace"].endswith("invalid literal for int() with base 10: 'broken'")


@pytest.fixture
def stdout(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.BytesIO]:
    """Set up logging to a file that would otherwise be buffered, and restore the loggers afterwards."""
    root, uvicorn_error = logging.getLogger(), logging.getLogger("uvicorn.error")
    state = root.handlers[:], root.level, uvicorn_error.filters[:]
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, line_buffering=False))
    set_up_logging()
    yield written
    root.handlers[:], uvicorn_error.filters[:] = state[0], state[2]
    root.setLevel(state[1])
    for name in ("httpx2", "uvicorn.error"):
        logging.getLogger(name).setLevel(logging.NOTSET)


def test_lines_are_written_at_once_and_without_details_of_libraries(stdout: io.BytesIO) -> None:
    for name, level in (("voice", logging.DEBUG), ("voice", logging.INFO), ("httpx2", logging.INFO)):
        logging.getLogger(name).log(level, "from %s at %s", name, logging.getLevelName(level))
    for message in ("ASGI callable returned without completing handshake.", "broken"):
        logging.getLogger("uvicorn.error").error(message)
    lines = [json.loads(line) for line in stdout.getvalue().decode().splitlines()]
    assert [(line["level"], line["message"]) for line in lines] == [
        ("info", "from voice at INFO"),
        ("error", "broken"),
    ]
