"""What operators of an Azure half are told, and when: each alert becomes a rule of the managed Prometheus.

An alert is here because somebody can do something about it; what is only interesting is on a dashboard. Its id names
its runbook, `docs/runbooks/azure/<id>.md`.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from blueprint.azure.contract import NAMESPACE, Component
from blueprint.azure.metrics import (
    PHASE_SERIES,
    SERVICE_SERIES,
    START_SECONDS,
    AgentMetric,
    ClusterMetric,
    EngineMetric,
    GpuMetric,
    SpeechMetric,
    p95,
    total,
)
from blueprint.azure.names import replicas_name
from blueprint.contract.images import Image
from blueprint.contract.metrics import FLEET_DIMENSION, LOSS_DIMENSION, METRICS, REASON_DIMENSION, DropReason, Loss
from blueprint.file.model.azure import AzureService, PrefillDecodeCell, TtsService
from blueprint.file.model.deployment import Deployment
from blueprint.file.model.scaling import Comparison
from blueprint.hosts import AGENT_POD_IMAGES, CALLER_TIER_IMAGES, held_back, service_images
from blueprint.observability.azure_scaling import TARGET_SHARE, triggers

BUDGET = "budget"
"""Runbook of the budget's notifications."""
SPENT_PERCENT = 80
FORECAST_PERCENT = 100

SATURATED_SHARE = 0.95
"""Share of what a replica carries at which growing has not helped: scaling asks at ``TARGET_SHARE``."""
TURN_S = 2.5
"""Hosted agents take 0.8 to 2 s; beyond, callers ask whether anybody is there. A choice."""
BARGE_IN_S = 0.75
"""An interruption is noticed after 0.22 s of speech; what is more is the agent's process, which waits for its core."""
FIRST_ANSWER_S = 1.0
"""Beyond 1 s a person notices the wait: https://www.nngroup.com/articles/response-times-3-important-limits/"""

GROWTH_MINUTES = 15
"""A new node and a cold engine take 15 to 25 minutes; from then on waiting has another reason."""
START_MINUTES = 45


@dataclass(frozen=True)
class Alert:
    """One alert.

    Attributes:
        meaning: One sentence for the person who is woken.
        query: PromQL of what is watched; each of its series fires alone.
        minutes: How long it has to last.
        callers_affected: Whether callers notice while it lasts.
        target: Which one, where several things can raise the same alert.
        unit: Of the threshold, for people.
    """

    id: str
    meaning: str
    query: str
    comparison: Comparison
    threshold: float
    minutes: int
    callers_affected: bool = False
    target: str | None = None
    unit: str = ""

    @property
    def name(self) -> str:
        return "-".join(filter(None, (self.id, self.target)))

    @property
    def expression(self) -> str:
        """PromQL that has a result while the alert's condition holds."""
        sign = ">" if self.comparison is Comparison.ABOVE else "<"
        return f"{self.query} {sign} {self.threshold:g}"


@dataclass(frozen=True)
class Recording:
    """What a recording rule publishes."""

    record: str
    query: str
    labels: dict[str, str]


def alerts(deployment: Deployment) -> tuple[Alert, ...]:
    """Return every alert that a deployment's shape allows; what waits for its image raises none."""
    return tuple(alert for group in alert_groups(deployment).values() for alert in group)


def alert_groups(deployment: Deployment) -> dict[str, tuple[Alert, ...]]:
    """Return the alerts by group: the cluster's, and those of each service. Azure takes 20 rules in a group."""
    running = [each for each in deployment.azure.services if not held_back(deployment, service_images(each))]
    callers = tuple(_of_callers(deployment)) if deployment.azure.callers else ()
    agents = deployment.azure.agents and not held_back(deployment, AGENT_POD_IMAGES)
    return {
        "cluster": tuple(_of_cluster(deployment)),
        **({"callers": callers} if callers else {}),
        **({"agents": tuple(_of_agents())} if agents else {}),
        **{service.name: tuple(_of_service(deployment, service)) for service in running},
    }


def recordings() -> tuple[Recording, ...]:
    """Return the parts of a pod's start, in seconds, as the cluster sees them; the last one is the engine's own."""

    def at(metric: ClusterMetric) -> str:
        return _by("pod", metric, namespace=NAMESPACE)

    # A cell's two engines start together.
    engine = f'max by (pod) ({ClusterMetric.STARTED_AT}{{namespace="{NAMESPACE}",container=~"engine|decode"}})'
    parts = {
        "node": f"{at(ClusterMetric.SCHEDULED_AT)} - {at(ClusterMetric.CREATED)}",
        "pull": f"{engine} - {at(ClusterMetric.SCHEDULED_AT)}",
        "engine": f"{at(ClusterMetric.READY_AT)} - {engine}",
    }
    return tuple(Recording(START_SECONDS, query, {PHASE_SERIES: phase}) for phase, query in parts.items())


def _of_cluster(deployment: Deployment) -> Iterator[Alert]:
    """Yield what does not depend on a service."""
    yield _silent(
        "Nothing has come from the cluster for five minutes: scaling holds its replicas, and alerts are blind.",
        f"absent({ClusterMetric.NODE})",
        "cluster",
    )
    if not held_back(deployment, (Image.ROUTER,)):
        yield _down("router", [Component.ROUTER.value], 2)
    # Both sides have the same labels; a Deployment whose bounds are one number is always at its maximum.
    bounded = f"({_of(ClusterMetric.SCALED_MAX)} > {_of(ClusterMetric.SCALED_MIN)})"
    yield Alert(
        "replicas-at-maximum",
        "A service has had its maximum of replicas for a quarter of an hour: it cannot grow when load does.",
        f"{_of(ClusterMetric.SCALED)} / {bounded}",
        Comparison.ABOVE,
        0.99,
        GROWTH_MINUTES,
        unit=" of the maximum",
    )
    yield Alert(
        "replicas-missing",
        "Replicas that scaling asks for have not become ready: no GPU node has come, or the engine does not start.",
        f"{_of(ClusterMetric.WANTED)} - {_of(ClusterMetric.AVAILABLE)}",
        Comparison.ABOVE,
        0,
        START_MINUTES,
    )
    yield Alert(
        "engine-restarts",
        "A container has restarted three times within an hour: its callers lose their sessions each time.",
        f"increase({_of(ClusterMetric.RESTARTS)}[1h])",
        Comparison.ABOVE,
        2,
        1,
        callers_affected=True,
    )
    yield Alert(
        "model-fetch-failed",
        "A model could not be fetched: engines that need it do not start.",
        _of(ClusterMetric.JOB_FAILED),
        Comparison.ABOVE,
        0,
        1,
    )
    yield Alert(
        "node-not-ready",
        "A node has not answered the cluster for ten minutes: what ran on it is away.",
        _by("node", ClusterMetric.NODE_CONDITION, condition="Ready", status="true"),
        Comparison.BELOW,
        1,
        10,
    )
    yield Alert(
        "gpu-error",
        "A GPU's driver reports an error (XID): the engine on it may stop or give wrong results.",
        f"max by (Hostname, gpu) ({GpuMetric.XID})",
        Comparison.ABOVE,
        0,
        1,
    )


_TIER_METRIC = {Component.GATEWAY: "OpenSockets", Component.VAD: "VadSessions", Component.ASR: "FreeSlots"}
"""What every pod of a tier that carries callers publishes."""


def _of_callers(deployment: Deployment) -> Iterator[Alert]:
    """Yield what callers would complain of; thresholds are those of AWS, over five minutes instead of two."""
    running = [tier for tier, images in CALLER_TIER_IMAGES.items() if not held_back(deployment, images)]
    for tier in running:
        yield _down(tier.value, [tier.value], 2)
        published = f"sum({METRICS[_TIER_METRIC[tier]].series}{_selector({FLEET_DIMENSION: tier})})"
        yield _silent(
            f"Pods of {tier} are ready and have published nothing for five minutes: alerts do not see them.",
            f"({_deployments(ClusterMetric.READY, [tier.value])} unless on () {published})",
            tier.value,
        )
    if Component.GATEWAY in running:
        yield Alert(
            "sessions-refused",
            "The gateway refuses new sessions for want of capacity.",
            f"sum({_added('SessionsRefused', FLEET_DIMENSION, Component.GATEWAY)})",
            Comparison.ABOVE,
            0,
            2,
            callers_affected=True,
        )
        yield Alert(
            "first-transcript-slow",
            "One caller in twenty waits more than a second for the first words of a transcript.",
            p95(METRICS["TimeToFinal"].series),
            Comparison.ABOVE,
            FIRST_ANSWER_S * 1000,
            10,
            callers_affected=True,
            unit=" ms",
        )
    if Component.VAD in running:
        # 50 packets of 20 ms are one second of one caller.
        yield Alert(
            "vad-packets-dropped",
            "The data plane drops audio because its rings are full, or speech because nobody takes it: words are lost.",
            f"sum by ({REASON_DIMENSION}) ({_added('RxDropped', REASON_DIMENSION, *_OVERLOAD)})",
            Comparison.ABOVE,
            50,
            2,
            callers_affected=True,
        )
        yield Alert(
            "vad-stopped",
            "The VAD module of a pod was stopped: silence goes to the ASR tier as if it were speech.",
            f"max by (pod) ({METRICS['VadStopped'].series})",
            Comparison.ABOVE,
            0,
            2,
        )
    if Component.ASR in running:
        yield Alert(
            "asr-slots-exhausted",
            "No pod of the ASR tier has a free slot: new sessions are refused.",
            f"max({METRICS['FreeSlots'].series})",
            Comparison.BELOW,
            1,
            1,
            callers_affected=True,
        )
        # 10 chunks are a second of one caller's speech.
        yield Alert(
            "speech-lost",
            "The ASR tier does not transcribe speech of callers who were let in.",
            f"sum by ({LOSS_DIMENSION}) ({_added('SpeechLost', LOSS_DIMENSION, *_HEARD_BY_NOBODY)})",
            Comparison.ABOVE,
            10,
            2,
            callers_affected=True,
        )


def _of_agents() -> Iterator[Alert]:
    """Yield what conversations suffer from."""
    agent = Component.AGENT.value
    yield _down(agent, [agent], 2)
    yield _silent(
        "Agents are ready and have published nothing for five minutes: scaling does not see their conversations.",
        f"({_deployments(ClusterMetric.READY, [agent])} unless on () sum({AgentMetric.CONVERSATIONS}))",
        agent,
    )
    yield Alert(
        "conversations-refused",
        "Agents have refused callers: they are full, or what they need is away.",
        f"sum by (reason) (increase({AgentMetric.REFUSED}[5m]))",
        Comparison.ABOVE,
        0,
        2,
        callers_affected=True,
    )
    yield Alert(
        "turn-slow",
        "One answer in twenty begins more than two and a half seconds after its question.",
        p95(AgentMetric.TURN),
        Comparison.ABOVE,
        TURN_S,
        10,
        callers_affected=True,
        unit=" s",
    )
    yield Alert(
        "barge-in-slow",
        "One interruption in twenty does not silence the agent within three quarters of a second.",
        p95(AgentMetric.BARGE_IN),
        Comparison.ABOVE,
        BARGE_IN_S,
        10,
        callers_affected=True,
        unit=" s",
    )


_OVERLOAD = (DropReason.RING_FULL, DropReason.NO_HOST, DropReason.SHED)
_HEARD_BY_NOBODY = (Loss.REFUSED, Loss.LOST_CHUNKS, Loss.GIVEN_UP)


def _of_service(deployment: Deployment, service: AzureService) -> Iterator[Alert]:
    azure, own = deployment.azure, {SERVICE_SERIES: service.name}
    by_pool = triggers(azure, service)
    names = [replicas_name(service, pool) for pool in by_pool]
    # Without a minimum nothing has to be there.
    if any(service.replicas_on(pool).min for pool in by_pool):
        yield _down(service.name, names, 5)
    yield _silent(
        f"Engines of {service.name} are ready and have published nothing for five minutes: scaling does not see them.",
        f"({_deployments(ClusterMetric.READY, names)} unless on () {total(EngineMetric.RUNNING, **own)})",
        service.name,
    )
    for pool, asked in by_pool.items():
        replicas = f"{_deployments(ClusterMetric.READY, [replicas_name(service, pool)])}"
        for trigger in asked:
            yield Alert(
                "service-saturated",
                f"{service.name} on {pool} has had more {trigger.name} than its replicas carry for a quarter of an "
                "hour: growing does not help.",
                f"({trigger.query}) / {replicas}",
                Comparison.ABOVE,
                trigger.per_replica * SATURATED_SHARE / TARGET_SHARE,
                GROWTH_MINUTES,
                target=f"{replicas_name(service, pool)}-{trigger.name}",
                unit=" a replica",
            )
    speech = isinstance(service, TtsService)
    first = "sound" if speech else "word"
    yield Alert(
        "first-answer-slow",
        f"One request in twenty to {service.name} waits more than a second for the first {first}.",
        p95(SpeechMetric.FIRST_SOUND if speech else EngineMetric.FIRST_TOKEN, **own),
        Comparison.ABOVE,
        FIRST_ANSWER_S,
        10,
        callers_affected=True,
        target=service.name,
        unit=" s",
    )
    if speech:
        failed, done = (_rate(each, **own) for each in (SpeechMetric.FAILED, SpeechMetric.SUCCEEDED))
        yield Alert(
            "speech-fails",
            f"{service.name} fails more than one request in a hundred.",
            f"{failed} / ({failed} + {done})",
            Comparison.ABOVE,
            0.01,
            5,
            callers_affected=True,
            target=service.name,
        )
    if isinstance(service, PrefillDecodeCell):
        yield Alert(
            "kv-transfers-fail",
            f"KV cache does not reach the decode engines of {service.name}: they prefill again, and callers wait.",
            f"sum(increase({EngineMetric.TRANSFERS_FAILED}{_selector(own)}[10m]))",
            Comparison.ABOVE,
            0,
            5,
            target=service.name,
        )


def _down(target: str, deployments: list[str], minutes: int) -> Alert:
    return Alert(
        "service-down",
        f"{target} has no replica that takes requests.",
        _deployments(ClusterMetric.AVAILABLE, deployments),
        Comparison.BELOW,
        1,
        minutes,
        callers_affected=True,
        target=target,
    )


def _silent(meaning: str, query: str, target: str) -> Alert:
    return Alert("telemetry-silent", meaning, query, Comparison.ABOVE, 0, 5, target=target)


def _added(metric: str, label: str, *values: str) -> str:
    """Return PromQL for what was added to a metric of our images in five minutes, where a label has one of values."""
    return f'increase({METRICS[metric].series}{{{label}=~"{"|".join(values)}"}}[5m])'


def _selector(labels: dict[str, str]) -> str:
    return "{" + ",".join(f'{name}="{value}"' for name, value in labels.items()) + "}"


def _of(metric: ClusterMetric, **labels: str) -> str:
    """Return PromQL for a metric of our namespace."""
    return f"{metric}{_selector({'namespace': NAMESPACE, **labels})}"


def _by(label: str, metric: ClusterMetric, **labels: str) -> str:
    """Return PromQL for a metric with one label alone: an agent that is replaced repeats its series with another."""
    return f"max by ({label}) ({metric}{_selector(labels)})"


def _deployments(metric: ClusterMetric, names: list[str]) -> str:
    """Return PromQL for the sum of a metric over Deployments; names have no character with a meaning in a pattern."""
    return f'sum({metric}{{namespace="{NAMESPACE}",deployment=~"{"|".join(names)}"}})'


def _rate(metric: SpeechMetric, **labels: str) -> str:
    return f"sum(rate({metric}{_selector(labels)}[5m]))"
