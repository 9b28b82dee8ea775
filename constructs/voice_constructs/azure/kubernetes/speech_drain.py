"""The preStop hook for vLLM-Omni, which delays SIGTERM until requests are complete, since SIGTERM aborts them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from voice_blueprint.azure.metrics import SpeechMetric
from voice_blueprint.contract.network import Port
from voice_blueprint.engines.launch.base import Launcher, build_http_url, dump_compact_json

PROGRAM_PATH = "/opt/voice/drain_speech.py"
SOURCE_FILE = Path(__file__).parent / "files" / "drain_speech.py"


@dataclass(frozen=True)
class SpeechDrainLauncher(Launcher):
    """A process whose container also contains the hook program.

    Attributes:
        process: The container's own process.
    """

    process: Launcher

    def build_command(self) -> tuple[str, ...]:
        """Return the command of the process."""
        return self.process.build_command()

    def build_environment(self) -> dict[str, str]:
        """Return the environment variables of the process."""
        return self.process.build_environment()

    def render_files(self) -> dict[str, str]:
        """Return the files of the process, and the hook program."""
        return self.process.render_files() | {PROGRAM_PATH: SOURCE_FILE.read_text(encoding="utf-8")}


def build_drain_hook_command(port: Port, *, settle_s: float, drain_s: float) -> Sequence[str]:
    """Return the command of the hook. Every engine image contains Python.

    Args:
        port: Port of the engine's metrics.
        settle_s: Time during which the router still sends requests.
        drain_s: Maximum time after ``settle_s`` for requests to finish.
    """
    drain = {
        "metrics": f"{build_http_url(port.number)}/metrics",
        "gauges": [SpeechMetric.RUNNING, SpeechMetric.WAITING],
        "settle_s": settle_s,
        "limit_s": settle_s + drain_s,
    }
    # -I -S skip the site packages of the image, whose import takes seconds.
    return ("python3", "-I", "-S", PROGRAM_PATH, dump_compact_json(drain))
