"""``python -m voice_ops.demo.agent``, which `make demo-agent` runs."""

import typer
from loguru import logger

# Pipecat, whose messages the caller uses, logs its name and version on import.
logger.remove()

from voice_ops.demo.agent.command import demo  # noqa: E402

typer.run(demo)
