"""The router in front of every engine: production-stack's ``vllm-router`` (Python), which carries audio."""

from dataclasses import dataclass
from typing import Literal

from blueprint.contract.session_api import ROUTING_HEADER
from blueprint.engines.launch.base import ANY_ADDRESS, Launcher, flags

LOOKS_AT_ENGINES_EVERY_S = 15
"""How often the router reads the engines' metrics; its default of 30 s is long against a conversation's turn."""


@dataclass(frozen=True)
class Router(Launcher):
    """One replica of the router; it finds engines by their labels.

    The image's program has the name of the Rust router in ``pd_router``; they have little more in common.

    Attributes:
        engine_port: HTTP port of every engine.
        namespace: Kubernetes namespace of the engines.
        label_selector: What the engines' pods have, as ``key=value``.
        routing: ``session`` by ``ROUTING_HEADER``, ``prefixaware`` by the longest prompt prefix that one has seen.
    """

    port: int
    engine_port: int
    namespace: str
    label_selector: str
    routing: Literal["session", "prefixaware"] = "session"

    def command(self) -> tuple[str, ...]:
        """Return the full argument vector. Metrics are under ``/metrics`` of the same port."""
        return (
            "vllm-router",
            *flags(
                {
                    "--host": ANY_ADDRESS,
                    "--port": self.port,
                    "--service-discovery": "k8s",
                    "--k8s-service-discovery-type": "pod-ip",
                    "--k8s-namespace": self.namespace,
                    "--k8s-label-selector": self.label_selector,
                    "--k8s-port": self.engine_port,
                    "--routing-logic": self.routing,
                    "--session-key": ROUTING_HEADER if self.routing == "session" else None,
                    "--engine-stats-interval": LOOKS_AT_ENGINES_EVERY_S,
                    "--log-level": "info",
                }
            ),
        )
