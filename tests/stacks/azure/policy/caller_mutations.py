"""Mistakes in the lifecycle of pods that serve callers."""

from tests.stacks.azure.policy.graphs import CALLERS, Damage, Emitted, Mutation, variable

TIERS = ("gateway", "vad", "asr", "agent")
GRACE, HUNG = ("grace-exceeds-drain",), ("callers-are-not-left-to-a-hung-program",)
LIVENESS = "livenessProbe"


def grace(name: str, seconds: int | None) -> Damage:
    """Set the grace period of a tier's pods; Kubernetes has a default."""

    def damage(graph: Emitted) -> None:
        if seconds is None:
            del graph.pod(name)["terminationGracePeriodSeconds"]
        else:
            graph.pod(name)["terminationGracePeriodSeconds"] = seconds

    return damage


def longer_drain(graph: Emitted) -> None:
    variable(graph.container("agent", "agent"), "VOICE_DRAIN_TIMEOUT_S", "100000")


def longer_pre_stop(graph: Emitted) -> None:
    graph.container("gateway", "gateway")["lifecycle"]["preStop"]["sleep"]["seconds"] = 120


def no_liveness(name: str) -> Damage:
    """Remove the liveness probe of a tier."""

    def damage(graph: Emitted) -> None:
        del graph.container(name, name)[LIVENESS]

    return damage


def liveness(name: str, **values: object) -> Damage:
    """Change the liveness probe of a tier."""

    def damage(graph: Emitted) -> None:
        graph.container(name, name)[LIVENESS].update(values)

    return damage


def liveness_by_health(name: str) -> Damage:
    """Probe a path that refuses while the program drains."""

    def damage(graph: Emitted) -> None:
        graph.container(name, name)[LIVENESS]["httpGet"]["path"] = "/healthz"

    return damage


MUTATIONS = (
    Mutation("gateway killed after 30 s", CALLERS, grace("gateway", 30), GRACE, ("15 + 110 s", "30 s")),
    Mutation("gateway without a grace period", CALLERS, grace("gateway", None), GRACE, ("30 s",)),
    Mutation("gateway killed as its drain ends", CALLERS, grace("gateway", 126), GRACE, ("stops within",)),
    *(Mutation(f"{tier} killed after 5 s", CALLERS, grace(tier, 5), GRACE) for tier in TIERS),
    Mutation("agents that drain longer than they live", CALLERS, longer_drain, GRACE, ("100000 s",)),
    Mutation("preStop that takes the drain's time", CALLERS, longer_pre_stop, GRACE, ("120 + 110 s",)),
    *(Mutation(f"{tier} without liveness", CALLERS, no_liveness(tier), HUNG) for tier in TIERS),
    Mutation("gateway restarted under load", CALLERS, liveness("gateway", failureThreshold=2), HUNG, ("20 s",)),
    *(Mutation(f"{tier} restarted as it drains", CALLERS, liveness_by_health(tier), HUNG, ("drains",))
      for tier in ("gateway", "asr", "agent")),
)  # fmt: skip
