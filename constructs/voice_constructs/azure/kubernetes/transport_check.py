"""The parent process of a cell's decode engine, which checks that KV cache is transferred directly between GPUs."""

import json
from dataclasses import dataclass
from pathlib import Path

from voice_blueprint.azure.contract import PD_ROUTER_HTTP
from voice_blueprint.engines.launch.base import Launcher, build_http_url
from voice_blueprint.engines.launch.vllm import VllmServer
from voice_blueprint.file.model.azure import MissingPeerAccessPolicy
from voice_constructs.azure.kubernetes.files.check_transport import TRANSPORT_CONFIG_VARIABLE

PROGRAM_PATH = "/opt/voice/check_transport.py"
SOURCE_FILE = Path(__file__).parent / "files" / "check_transport.py"
READY_FILE = "/tmp/kv-transport-ready"  # noqa: S108  a volume of the pod


@dataclass(frozen=True)
class TransportCheck(Launcher):
    """A process that runs the check program, which starts the engine.

    Attributes:
        without_peer_access: Behaviour if KV cache is not transferred directly between GPUs.
    """

    engine: VllmServer
    without_peer_access: MissingPeerAccessPolicy

    def build_command(self) -> tuple[str, ...]:
        """Return the command of the check, followed by the engine's command. Every engine image contains Python."""
        return ("python3", PROGRAM_PATH, *self.engine.build_command())

    def build_environment(self) -> dict[str, str]:
        expected = {
            "url": f"{build_http_url(PD_ROUTER_HTTP.number)}/v1/completions",
            "model": self.engine.model.name,
            "ready": READY_FILE,
            "refuse": self.without_peer_access is MissingPeerAccessPolicy.REFUSE,
        }
        return self.engine.build_environment() | {TRANSPORT_CONFIG_VARIABLE: json.dumps(expected)}

    def render_files(self) -> dict[str, str]:
        """Return the engine's files and the program."""
        return self.engine.render_files() | {PROGRAM_PATH: SOURCE_FILE.read_text(encoding="utf-8")}
