"""Rules on time and replicas, which compare starts, rollouts and disruptions with the workload's requirements."""

import math
from collections.abc import Iterator

from voice_blueprint import catalog
from voice_blueprint.contract.images import Image
from voice_blueprint.engines.launch.coldstart import PHASE_BUDGETS_BY_IMAGE, calculate_start_duration_s
from voice_stacks.azure.policy.cluster import collect_max_replicas_by_workload
from voice_stacks.azure.policy.engines import Engine, list_engines
from voice_stacks.azure.policy.pods import REPLICATED_TYPES, PodTemplate, list_pods
from voice_stacks.azure.policy.rules import Stack, Violation, rule, stack_rule
from voice_stacks.azure.policy.values import Value

MIN_WEIGHTS_MIB_PER_S = 100
"""Minimum throughput that Azure Files guarantees for a premium share of any size:
https://learn.microsoft.com/azure/storage/files/understanding-billing#provisioned-v1-provisioning-detail."""
MIN_STARTUP_S = 60
"""Minimum start-up timeout for a program without a model."""
MAX_SCALING_DELAY_S = 120
"""Maximum delay before scaling adds a pod. This is our choice: starting a node and an engine takes ten times as
long."""
DEFAULT_PERIOD_S, DEFAULT_FAILURES = 10, 3
"""Kubernetes defaults for probes."""


def calculate_max_failure_time_s(probe: Value) -> float:
    """Return the time in seconds for which a probe may fail before Kubernetes reacts."""
    period, failures = probe["periodSeconds"].number, probe["failureThreshold"].number
    return (probe["initialDelaySeconds"].number or 0) + (period or DEFAULT_PERIOD_S) * (failures or DEFAULT_FAILURES)


def calculate_min_start_time_s(engine: Engine) -> tuple[float, str]:
    """Return the minimum duration of an engine's first start with empty caches, and the reason."""
    repository = engine.container.image.text.partition("@")[0].rpartition("/")[2]
    image = next((each for each in PHASE_BUDGETS_BY_IMAGE if each.value == repository), None)
    image_pull_s = calculate_start_duration_s(image, pull=False) if image else 0.0
    weights = engine.model.weights_gib * 1024 / MIN_WEIGHTS_MIB_PER_S if engine.model else 0.0
    results = (
        image_pull_s + weights,
        f"{image_pull_s:g} s for {image or Image.ASR_VLLM}, and {weights:.0f} s to read its weights",
    )
    init_timeout_s = float(engine.parse_int_flag("--init-timeout", 0))
    return max(results, (init_timeout_s, f"its own --init-timeout of {init_timeout_s:g} s"))


@rule(
    "starts-fit-probes",
    "An engine's startup probe must allow enough time to start the image and load the weights.",
    remedy="raise failureThreshold of the startup probe",
    source="voice_blueprint/engines/launch/coldstart.yaml; "
    "https://kubernetes.io/docs/concepts/configuration/liveness-readiness-startup-probes",
)
def check_startup_probes_allow_start(stack: Stack) -> Iterator[Violation]:
    for engine in list_engines(stack):
        probe = engine.container.spec["startupProbe"]
        needs, reason = calculate_min_start_time_s(engine)
        if probe and calculate_max_failure_time_s(probe) < needs:
            yield Violation(
                engine.pod.urn,
                f"{engine.name} is restarted after {calculate_max_failure_time_s(probe):g} s; a first start takes "
                f"{needs:.0f} s: {reason}",
            )
    for pod in list_pods(stack):
        for container in pod.running_containers:
            probe = container.spec["startupProbe"]
            if probe and calculate_max_failure_time_s(probe) < MIN_STARTUP_S:
                yield Violation(
                    pod.urn,
                    f"{pod.name}/{container.name} has {calculate_max_failure_time_s(probe):g} s to start; it requires "
                    f"{MIN_STARTUP_S} s",
                )


@stack_rule(
    "rollouts-keep-replicas",
    "A rollout must replace some replicas at a time, and never stop all replicas of a workload. A workload of a single "
    "pod must never have two.",
    remedy="use RollingUpdate with maxUnavailable below the minimum number of replicas, or with maxSurge; for a single "
    "pod, use Recreate and one replica",
    source="https://kubernetes.io/docs/concepts/workloads/controllers/deployment#strategy",
)
def check_rollouts_keep_replicas(stack: Stack) -> Iterator[Violation]:
    min_replicas_all = collect_min_replicas_by_workload(stack)
    for pod in list_pods(stack):
        if not pod.resource.type.endswith(REPLICATED_TYPES):
            continue
        strategy, min_replicas = pod.resource.props.get("spec", "strategy"), min_replicas_all[pod.namespace, pod.name]
        if pod.is_single:
            if strategy["type"].text != "Recreate" or min_replicas > 1:
                yield Violation(pod.urn, f"{pod.name} may have two pods, each of which has an incomplete state")
            continue
        if strategy["type"].text == "Recreate":
            yield Violation(
                pod.urn, f"{pod.name} has strategy Recreate: all of its replicas stop before the first new one"
            )
            continue
        rolling = strategy["rollingUpdate"]
        unavailable = _parse_pod_count(rolling["maxUnavailable"], min_replicas, default="25%", round_up=False)
        surge_pod_count = _parse_pod_count(rolling["maxSurge"], min_replicas, default="25%", round_up=True)
        if not unavailable and not surge_pod_count:
            yield Violation(pod.urn, f"a rollout of {pod.name} may neither add nor stop a pod: it never ends")
        if min_replicas and unavailable >= min_replicas:
            yield Violation(
                pod.urn, f"a rollout of {pod.name} may stop {unavailable} of {min_replicas} replicas at once"
            )


@stack_rule(
    "budgets-fit-replicas",
    "A disruption budget must allow a node to be drained, and must keep one replica of each workload on several nodes.",
    remedy="set maxUnavailable: 1, or the pods of a node in a pool without surge nodes",
    source="https://kubernetes.io/docs/tasks/run-application/configure-pdb",
)
def check_budgets_fit_replicas(stack: Stack) -> Iterator[Violation]:
    min_replicas_all, max_replicas = collect_min_replicas_by_workload(stack), collect_max_replicas_by_workload(stack)
    for budget in stack.find_resources(":PodDisruptionBudget"):
        spec, labels = budget.props["spec"], budget.props.get("spec", "selector", "matchLabels").as_text_dict()
        namespace = budget.props.get("metadata", "namespace").text
        pod_engines = [
            pod
            for pod in list_pods(stack)
            if pod.namespace == namespace and labels and labels.items() <= pod.labels.items()
        ]
        if len(pod_engines) > 1:
            yield Violation(
                budget.urn, f"budget {budget.name} is shared by {', '.join(pod.name for pod in pod_engines)}"
            )
        for pod in pod_engines[:1]:
            min_replicas, all_ = (
                min_replicas_all[pod.namespace, pod.name],
                max_replicas.get((pod.namespace, pod.name), 1),
            )
            if not spec["minAvailable"].is_missing and _parse_pod_count(
                spec["minAvailable"], min_replicas, default="0", round_up=True
            ) >= max(min_replicas, 1):
                yield Violation(
                    budget.urn,
                    f"budget {budget.name} requires {spec['minAvailable'].text} of {min_replicas} replicas: nodes "
                    "cannot be "
                    "drained",
                )
            unavailable = _parse_pod_count(spec["maxUnavailable"], all_, default="0", round_up=True)
            together = _calculate_max_evicted_pods(stack, pod)
            on_node = min(together, all_)
            if 0 < unavailable < on_node:
                yield Violation(
                    budget.urn,
                    f"budget {budget.name} allows {unavailable} of the {on_node} pods of a node to be stopped, but "
                    f"pool {pod.pool} has no surge node for their replacements: the node cannot be drained",
                )
            of_unknown_pool = pod.gpu_count and stack.azure is None
            if min_replicas > max(1, together) and unavailable >= min_replicas and not of_unknown_pool:
                yield Violation(
                    budget.urn,
                    f"budget {budget.name} allows {unavailable} of {min_replicas} replicas to be stopped at once",
                )


@stack_rule(
    "scaling-can-grow",
    "A ScaledObject must add pods soon after load rises, and its fallback must keep the minimum replicas.",
    remedy="use the behaviour and the fallback of voice_blueprint.observability.azure.scaling",
    source="https://kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale/#configurable-scaling-behavior; "
    "https://keda.sh/docs/latest/reference/scaledobject-spec",
)
def check_scaling_adds_pods_in_time(stack: Stack) -> Iterator[Violation]:
    for scaled in stack.find_resources(":ScaledObject"):
        spec = scaled.props["spec"]
        grows = spec.get("advanced", "horizontalPodAutoscalerConfig", "behavior", "scaleUp")
        policies = list(grows["policies"])
        if grows["selectPolicy"].text == "Disabled" or (
            policies and not any(each["value"].number for each in policies)
        ):
            yield Violation(scaled.urn, f"ScaledObject {scaled.name} never adds a pod")
        waits = max(grows["stabilizationWindowSeconds"].number or 0, spec["pollingInterval"].number or 30)
        if waits > MAX_SCALING_DELAY_S:
            yield Violation(scaled.urn, f"ScaledObject {scaled.name} only reacts to load after {waits:g} s")
        low, min_replicas = spec["minReplicaCount"].number or 0, spec.get("fallback", "replicas").number
        if min_replicas is not None and min_replicas < low:
            yield Violation(
                scaled.urn, f"ScaledObject {scaled.name} falls back to {min_replicas:g} of {low:g} replicas"
            )


def _calculate_max_evicted_pods(stack: Stack, pod: PodTemplate) -> int:
    """Return the maximum number of pods that a node drain evicts from a workload at once; 0 with a surge node."""
    pool = next((pool for pool in stack.azure.pools if pool.name == pod.pool), None) if stack.azure else None
    if pool is None or pool.surge_nodes or not pod.gpu_count:
        return 0
    return catalog.vm_sizes()[pool.vm_size].gpu_count // pod.gpu_count


def collect_min_replicas_by_workload(stack: Stack) -> dict[tuple[str, str], int]:
    """Return the minimum number of replicas of each workload.

    The minimum is ``minReplicaCount`` of the workload's ScaledObject, or its ``replicas`` if it is not scaled.
    """
    min_replicas_all = {(pod.namespace, pod.name): _read_configured_replicas(pod) for pod in list_pods(stack)}
    for scaled in stack.find_resources(":ScaledObject"):
        key = (scaled.props.get("metadata", "namespace").text, scaled.props.get("spec", "scaleTargetRef", "name").text)
        min_replicas_all[key] = int(scaled.props.get("spec", "minReplicaCount").number or 0)
    return min_replicas_all


def _read_configured_replicas(pod: PodTemplate) -> int:
    replicas = pod.resource.props.get("spec", "replicas").number
    return 1 if replicas is None else int(replicas)


def _parse_pod_count(value: Value, total: int, *, default: str, round_up: bool) -> int:
    """Return a number of pods that is configured as a number or a percentage.

    Kubernetes rounds the number of added pods up, and the number of unavailable pods down.
    """
    text = value.text or default
    share = float(text.removesuffix("%")) / 100 * total if text.endswith("%") else float(text)
    return math.ceil(share) if round_up else math.floor(share)
