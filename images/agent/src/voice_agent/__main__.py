"""Entry point of the agent: ``python -m voice_agent``."""

import asyncio
import logging
import sys
from typing import TYPE_CHECKING

from loguru import logger

from voice_agent.server import serve
from voice_agent.settings import AgentSettings
from voice_runtime import environment, logs
from voice_runtime.store import StoreSettings

if TYPE_CHECKING:
    from loguru import Message


def log_failure_location(message: "Message") -> None:
    """Log the location of a failure in Pipecat without its message, which may contain callers' speech."""
    record = message.record
    failed = record["exception"] and record["exception"].type
    source = f"{record['name']}:{record['line']}"
    logging.getLogger("pipecat").error(
        "failed", extra={"fields": {"where": source, "error": failed.__name__ if failed else ""}}
    )


def main() -> int:
    """Run the agent, and return the exit code, which is 1 if the agent cannot start."""
    settings, store = environment.read_settings(AgentSettings), environment.read_settings(StoreSettings)
    logs.set_up_logging()
    logger.remove()
    logger.add(log_failure_location, level="ERROR")
    try:
        asyncio.run(serve(settings, store))
    except OSError as error:
        sys.stderr.write(f"the agent cannot start: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
