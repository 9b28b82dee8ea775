"""The preStop hook of vLLM-Omni, which delays SIGTERM until requests are complete, since SIGTERM aborts them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from voice_blueprint.azure.metrics import SpeechMetric
from voice_blueprint.contract.network import Port
from voice_blueprint.engines.launch.base import Launcher, compact_json, http_url

PROGRAM = "/opt/voice/drain_speech.py"
SOURCE = Path(__file__).parent / "files" / "drain_speech.py"


@dataclass(frozen=True)
class DrainedLauncher(Launcher):
    """A process whose container also contains the program of the hook.

    Attributes:
        process: The container's own process.
    """

    process: Launcher

    def command(self) -> tuple[str, ...]:
        """Return the command of the process."""
        return self.process.command()

    def environment(self) -> dict[str, str]:
        """Return the environment variables of the process."""
        return self.process.environment()

    def files(self) -> dict[str, str]:
        """Return the files of the process, and the program of the hook."""
        return self.process.files() | {PROGRAM: SOURCE.read_text(encoding="utf-8")}


def drain_hook(port: Port, *, settle_s: float, drain_s: float) -> Sequence[str]:
    """Return the command of the hook. Every engine image contains Python.

    Args:
        port: Port of the engine's metrics.
        settle_s: Time in which the router still sends requests.
        drain_s: Maximum time after ``settle_s`` for requests to finish.
    """
    drain = {
        "metrics": f"{http_url(port.number)}/metrics",
        "gauges": [SpeechMetric.RUNNING, SpeechMetric.WAITING],
        "settle_s": settle_s,
        "limit_s": settle_s + drain_s,
    }
    # -I -S skip the site packages of the image, whose import takes seconds.
    return ("python3", "-I", "-S", PROGRAM, compact_json(drain))
