"""Writes logs as one JSON object per line, without credentials."""

import io
import json
import logging
import sys
from datetime import UTC, datetime

from voice_blueprint.contract.metrics import LOG_LEVEL_FIELD


class JsonFormatter(logging.Formatter):
    """Formats a record as JSON, with the fields of ``extra={"fields": {...}}``."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            # An unavailable trace collector does not affect callers.
            LOG_LEVEL_FIELD: "warning" if record.name.startswith("opentelemetry") else record.levelname.lower(),
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line)


def set_up_logging() -> None:
    """Send all logs from the process to stdout, which also contains the metrics."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    # uvicorn logs this message for every WebSocket that is refused with a response, as if no response had been sent.
    logging.getLogger("uvicorn.error").addFilter(lambda record: "without completing handshake" not in record.msg)
    for logger_name in ("httpx2", "uvicorn.error"):
        logging.getLogger(logger_name).setLevel(logging.WARNING)
