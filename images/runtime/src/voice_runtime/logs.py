"""Log lines: one JSON object each. Nothing that opens anything is ever in one."""

import io
import json
import logging
import sys
from datetime import UTC, datetime

from blueprint.contract.metrics import LOG_LEVEL_FIELD


class JsonFormatter(logging.Formatter):
    """Writes a record as JSON, with the fields that were given as ``extra={"fields": {...}}``."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            # A collector of traces that is away costs no caller anything.
            LOG_LEVEL_FIELD: "warning" if record.name.startswith("opentelemetry") else record.levelname.lower(),
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line)


def set_up() -> None:
    """Lead every log of the process to stdout, where metrics go too."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    # uvicorn says so of every WebSocket that is refused with an answer, as if nobody had answered.
    logging.getLogger("uvicorn.error").addFilter(lambda record: "without completing handshake" not in record.msg)
    for chatty in ("httpx2", "uvicorn.error"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
