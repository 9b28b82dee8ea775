"""The parent of a cell's decode engine: callers come once KV cache is seen to go from GPU to GPU."""

import json
from dataclasses import dataclass
from pathlib import Path

from blueprint.azure.contract import PD_ROUTER_HTTP
from blueprint.engines.launch.base import Launcher, http
from blueprint.engines.launch.vllm import VllmServer
from blueprint.file.model.azure import WithoutPeerAccess
from voice_constructs.azure.kubernetes.files.check_transport import EXPECTED_VARIABLE

PROGRAM = "/opt/voice/check_transport.py"
SOURCE = Path(__file__).parent / "files" / "check_transport.py"
READY = "/tmp/kv-transport-ready"  # noqa: S108  a volume of the pod


@dataclass(frozen=True)
class TransportCheck(Launcher):
    """The program as a file of a pod, in front of the engine's own command.

    Attributes:
        without_peer_access: Whether the engine stops where KV cache does not go from GPU to GPU.
    """

    engine: VllmServer
    without_peer_access: WithoutPeerAccess

    def command(self) -> tuple[str, ...]:
        """Return both; every engine image has Python."""
        return ("python3", PROGRAM, *self.engine.command())

    def environment(self) -> dict[str, str]:
        expected = {
            "url": f"{http(PD_ROUTER_HTTP.number)}/v1/completions",
            "model": self.engine.model.name,
            "ready": READY,
            "refuse": self.without_peer_access is WithoutPeerAccess.REFUSE,
        }
        return self.engine.environment() | {EXPECTED_VARIABLE: json.dumps(expected)}

    def files(self) -> dict[str, str]:
        """Return the program's text beside the engine's files."""
        return self.engine.files() | {PROGRAM: SOURCE.read_text(encoding="utf-8")}
