"""Starts the engine: ``python -m voice_whisper``."""

import asyncio
import logging
import sys

from voice_runtime import environment
from voice_runtime.store import StoreSettings
from voice_whisper.engine import Engine
from voice_whisper.process import WorkerStartError
from voice_whisper.settings import EngineSettings, ModelSettings


def main() -> int:
    """Run the engine, and return the exit code, which is 1 if the engine cannot start."""
    settings, store = environment.read_settings(EngineSettings), environment.read_settings(StoreSettings)
    environment.read_settings(
        ModelSettings
    )  # the workers' own settings, validated here so that errors are reported once
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    problems: list[str] = []
    try:
        asyncio.run(_run_engine(settings, store))
    except* (WorkerStartError, OSError) as errors:
        problems = [str(error) for error in _flatten_errors(errors)]
    for problem in dict.fromkeys(problems):
        sys.stderr.write(f"the engine cannot start: {problem}\n")
    return 1 if problems else 0


async def _run_engine(settings: EngineSettings, store: StoreSettings) -> None:
    await Engine(settings, store).run()


def _flatten_errors(errors: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    leaves: list[BaseException] = []
    for error in errors.exceptions:
        leaves += _flatten_errors(error) if isinstance(error, BaseExceptionGroup) else [error]
    return leaves


if __name__ == "__main__":
    sys.exit(main())
