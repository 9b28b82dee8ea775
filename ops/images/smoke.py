"""What an image's smoke test starts: a deployment's own launchers, so that their commands meet the real programs."""

from dataclasses import dataclass, field

from blueprint.azure import contract as cluster_contract
from blueprint.contract.images import Image
from blueprint.engines.launch.base import Launcher
from blueprint.engines.launch.pd_router import CellFront, PdRouter
from blueprint.engines.launch.vllm import DEFAULT_BODY_MIB


@dataclass(frozen=True)
class Smoke:
    """Given to ``smoke/run.sh`` as ``/smoke/launch.json``; the launchers' files are mounted where they belong."""

    launchers: tuple[Launcher, ...] = ()
    ports: dict[str, int] = field(default_factory=dict)

    def files(self) -> dict[str, str]:
        """Return the text of each file that some launcher's program reads, by absolute path."""
        return {path: text for launcher in self.launchers for path, text in launcher.files().items()}

    def document(self) -> dict[str, object]:
        """Return what the test reads."""
        return {"commands": [launcher.command() for launcher in self.launchers], "ports": self.ports}


def smoke_of(image: Image) -> Smoke:
    """Return what one image's smoke test starts."""
    if image is not Image.PD_ROUTER:
        return Smoke()
    front, router = cluster_contract.ENGINE_HTTP.number, cluster_contract.PD_ROUTER_HTTP.number
    prefill, decode = cluster_contract.PREFILL_HTTP.number, cluster_contract.DECODE_HTTP.number
    return Smoke(
        (CellFront(front, router, decode, DEFAULT_BODY_MIB), PdRouter(router, prefill, decode)),
        {"front": front, "prefill": prefill, "decode": decode},
    )
