"""Smoke tests of images, which run the commands of a deployment's launchers."""

from dataclasses import dataclass, field

from voice_blueprint.azure import contract as cluster_contract
from voice_blueprint.contract.images import Image
from voice_blueprint.engines.launch.base import Launcher
from voice_blueprint.engines.launch.pd_router import CellProxy, PdRouter
from voice_blueprint.engines.launch.router import Backend, BackendService, Router
from voice_blueprint.engines.launch.vllm import DEFAULT_MAX_BODY_MIB


@dataclass(frozen=True)
class SmokeTest:
    """Input of ``smoke/run.sh``, mounted as ``/smoke/launch.json``. The launchers' files are mounted at their paths."""

    launchers: tuple[Launcher, ...] = ()
    ports: dict[str, int] = field(default_factory=dict)

    def render_files(self) -> dict[str, str]:
        """Return the contents of the files that the launchers' programs read, by absolute path."""
        return {path: text for launcher in self.launchers for path, text in launcher.render_files().items()}

    def to_launch_document(self) -> dict[str, object]:
        """Return the content of ``launch.json``."""
        return {"commands": [launcher.build_command() for launcher in self.launchers], "ports": self.ports}


def create_smoke_test(image: Image) -> SmokeTest:
    """Return the launchers and ports with which the image is started. Most images need none."""
    if image is Image.ROUTER:
        pods = BackendService(
            "service", "engines-service.voice.svc.cluster.local", cluster_contract.ENGINE_HTTP.number, 2
        )
        backends = [Backend("model", [pods])]
        return SmokeTest((Router(cluster_contract.ROUTER_HTTP.number, backends, drain_s=10, thread_count=1),))
    if image is not Image.PD_ROUTER:
        return SmokeTest()
    front, router = cluster_contract.ENGINE_HTTP.number, cluster_contract.PD_ROUTER_HTTP.number
    prefill, decode = cluster_contract.PREFILL_HTTP.number, cluster_contract.DECODE_HTTP.number
    return SmokeTest(
        (CellProxy(front, router, decode, DEFAULT_MAX_BODY_MIB), PdRouter(router, prefill, decode)),
        {"front": front, "prefill": prefill, "decode": decode},
    )
