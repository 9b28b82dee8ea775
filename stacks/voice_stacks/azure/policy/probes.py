"""Rules on the pod lifecycle: probes, draining, disruption budgets, scaling, and valid references."""

from collections.abc import Iterator

from voice_blueprint.azure.contract import ENGINE_HTTP, ROUTER_HTTP
from voice_blueprint.contract.environment import DRAIN_TIMEOUT_S
from voice_blueprint.contract.session_api import HEALTH_PATH
from voice_stacks.azure.policy.drains import calculate_drain_times_s, format_abort_reason
from voice_stacks.azure.policy.engines import list_engines
from voice_stacks.azure.policy.pods import REPLICATED_TYPES, PodTemplate, list_pods
from voice_stacks.azure.policy.rules import Resource, Stack, Violation, rule, stack_rule
from voice_stacks.azure.policy.values import Value

DEFAULT_GRACE_PERIOD_S = 30
"""Default grace period in Kubernetes."""
MIN_HANG_DETECTION_S = 60
MIN_STOP_MARGIN_S = 15
"""Time between the end of a program's own drain and SIGKILL, during which remaining connections are closed and sidecars
stop."""
REQUEST_PORTS = {str(port.number) for port in (ENGINE_HTTP, ROUTER_HTTP)}
"""Ports that receive requests."""
VOLUME_SOURCES = (
    (("configMap", "name"), "ConfigMap"),
    (("persistentVolumeClaim", "claimName"), "PersistentVolumeClaim"),
    (("csi", "volumeAttributes", "secretProviderClass"), "SecretProviderClass"),
)


@rule(
    "engines-have-probes",
    "Every engine must have a startup, a readiness and a liveness probe.",
    remedy="use /health for the startup probe, and requests for the others",
    source="https://kubernetes.io/docs/concepts/configuration/liveness-readiness-startup-probes",
)
def check_engines_have_probes(stack: Stack) -> Iterator[Violation]:
    for engine in list_engines(stack):
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            if not engine.container.spec[probe]:
                yield Violation(engine.pod.urn, f"{engine.name} has no {probe}")


@rule(
    "replicated-pods-say-when-ready",
    "Every replicated pod must have a readiness probe.",
    remedy="add one to the container that serves callers",
    source="https://kubernetes.io/docs/concepts/configuration/liveness-readiness-startup-probes",
)
def check_replicated_pods_have_readiness_probes(stack: Stack) -> Iterator[Violation]:
    for pod in _iter_replicated_pods(stack):
        serving = [
            c for c in pod.running_containers if {p["containerPort"].text for p in c.spec["ports"]} & REQUEST_PORTS
        ]
        if not any(container.spec["readinessProbe"] for container in serving or pod.running_containers):
            yield Violation(
                pod.urn,
                f"the containers of {pod.name} that serve callers have no readiness probe: they get traffic while "
                "they start",
            )


@rule(
    "grace-exceeds-drain",
    "Engines and caller tiers must have time to finish in-flight work before they are killed.",
    remedy="raise terminationGracePeriodSeconds above the preStop hook and the drain time (--shutdown-timeout, "
    f"{DRAIN_TIMEOUT_S.name}) together, with {MIN_STOP_MARGIN_S} s to spare",
    source="https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle#pod-termination",
)
def check_grace_exceeds_drain(stack: Stack) -> Iterator[Violation]:
    for engine in list_engines(stack):
        before, drain = calculate_drain_times_s(engine)
        grace = _read_grace_period_s(engine.pod)
        if drain == 0:
            yield Violation(engine.pod.urn, f"{engine.name} {format_abort_reason(engine)}")
        elif drain + before >= grace:
            yield Violation(
                engine.pod.urn, f"{engine.name} drains for {before:g} + {drain:g} s, but is killed after {grace:g} s"
            )
    for pod in list_pods(stack):
        for container in pod.running_containers:
            text, grace = container.environment.get(DRAIN_TIMEOUT_S.name, ""), _read_grace_period_s(pod)
            if text.isdecimal() and container.pre_stop_delay_s + int(text) + MIN_STOP_MARGIN_S > grace:
                yield Violation(
                    pod.urn,
                    f"{pod.name}/{container.name} drains for {container.pre_stop_delay_s:g} + {text} s and stops "
                    f"within "
                    f"{MIN_STOP_MARGIN_S} s, but is killed after {grace:g} s",
                )


@rule(
    "callers-are-not-left-to-a-hung-program",
    "Programs that drain callers must have a liveness probe that tolerates slow responses under load.",
    remedy="use an endpoint that the program serves until it exits, and a failure time of at least "
    f"{MIN_HANG_DETECTION_S} s",
    source="https://kubernetes.io/docs/concepts/configuration/liveness-readiness-startup-probes",
)
def check_liveness_probes_tolerate_load(stack: Stack) -> Iterator[Violation]:
    for pod in list_pods(stack):
        for container in pod.running_containers:
            if DRAIN_TIMEOUT_S.name not in container.environment:
                continue
            name, probe = f"{pod.name}/{container.name}", container.spec["livenessProbe"]
            if not probe:
                yield Violation(pod.urn, f"{name} has no livenessProbe: it is not restarted if it hangs")
                continue
            detection_s = (probe["periodSeconds"].number or 10) * (probe["failureThreshold"].number or 3)
            if detection_s < MIN_HANG_DETECTION_S:
                yield Violation(
                    pod.urn,
                    f"{name} is restarted after {detection_s:g} s without a response, which can also occur under load",
                )
            unready = container.spec["readinessProbe"]
            if probe["httpGet"] and probe.get("httpGet", "path").text == HEALTH_PATH and _fails_while_draining(unready):
                yield Violation(
                    pod.urn,
                    f"livenessProbe of {name} uses {HEALTH_PATH}, which fails while it drains or waits for its store",
                )


@stack_rule(
    "replicated-pods-have-budgets",
    "Every replicated workload must have a PodDisruptionBudget that allows disruptions.",
    remedy="add a PodDisruptionBudget with maxUnavailable: 1",
    source="https://kubernetes.io/docs/tasks/run-application/configure-pdb",
)
def check_replicated_pods_have_budgets(stack: Stack) -> Iterator[Violation]:
    budgets = list(stack.find_resources("policy/v1:PodDisruptionBudget"))
    for budget in budgets:
        spec = budget.props["spec"]
        if spec["maxUnavailable"].text in {"0", "0%"} or spec["minAvailable"].text == "100%":
            yield Violation(budget.urn, f"budget {budget.name} allows no disruption: nodes can never be upgraded")
    for pod in _iter_replicated_pods(stack):
        if not pod.is_single and not any(_selects_pod(budget, pod, "matchLabels") for budget in budgets):
            yield Violation(pod.urn, f"{pod.name} has no disruption budget")


@stack_rule(
    "scaling-has-a-target",
    "Every ScaledObject must scale a workload of the stack, with a trigger and ordered bounds.",
    remedy="set scaleTargetRef to a workload of the same namespace",
    source="https://keda.sh/docs/latest/concepts/scaling-deployments",
)
def check_scaled_objects_have_target(stack: Stack) -> Iterator[Violation]:
    existing = {(pod.resource.type.rpartition(":")[2], pod.namespace, pod.name) for pod in list_pods(stack)}
    scaler: dict[tuple[str, str, str], str] = {}
    for scaled in stack.find_resources(":ScaledObject"):
        spec, namespace = scaled.props["spec"], scaled.props.get("metadata", "namespace").text
        target = spec["scaleTargetRef"]
        kind, name = target["kind"].text or "Deployment", target["name"]
        if not name.is_unknown and (kind, namespace, name.text) not in existing:
            yield Violation(
                scaled.urn, f"ScaledObject {scaled.name} scales {kind} {namespace}/{name.text}, which does not exist"
            )
        if scaler.setdefault((kind, namespace, name.text), scaled.name) != scaled.name and name.text:
            yield Violation(
                scaled.urn, f"{scaler[kind, namespace, name.text]} and {scaled.name} both scale {name.text}"
            )
        low, high = spec["minReplicaCount"].number or 0, spec["maxReplicaCount"].number
        if high is not None and low > high:
            yield Violation(
                scaled.urn, f"ScaledObject {scaled.name} has minReplicaCount {low:g} and maxReplicaCount {high:g}"
            )
        if not any(True for _ in spec["triggers"]):
            yield Violation(scaled.urn, f"ScaledObject {scaled.name} has no trigger")


@stack_rule(
    "selectors-select",
    "Selectors of workloads, services and disruption budgets must match existing pods.",
    remedy="use the labels of the pod template",
    source="https://kubernetes.io/docs/concepts/overview/working-with-objects/labels",
)
def check_selectors_match_pods(stack: Stack) -> Iterator[Violation]:
    existing = list_pods(stack)
    for pod in existing:
        desired = pod.resource.props.get("spec", "selector", "matchLabels").as_text_dict()
        if not desired.items() <= pod.labels.items():
            yield Violation(pod.urn, f"{pod.name} selects {desired}; its pods have {pod.labels}")
    for service in stack.find_resources("core/v1:Service"):
        if service.props.get("spec", "selector") and not any(_selects_pod(service, pod) for pod in existing):
            yield Violation(service.urn, f"service {service.name} selects no pod of the stack")
    for budget in stack.find_resources("policy/v1:PodDisruptionBudget"):
        if not any(_selects_pod(budget, pod, "matchLabels") for pod in existing):
            yield Violation(budget.urn, f"budget {budget.name} selects no pod of the stack")


@stack_rule(
    "references-resolve",
    "Volumes and service accounts that pods refer to must exist in their namespace.",
    remedy="create it in the same stack, or correct the name",
    source="https://kubernetes.io/docs/concepts/storage/volumes",
)
def check_references_resolve(stack: Stack) -> Iterator[Violation]:
    for pod in list_pods(stack):
        names = {volume["name"].text for volume in pod.spec["volumes"]}
        for container in pod.containers:
            for path, name in container.volume_by_mount_path.items():
                if name not in names:
                    yield Violation(
                        pod.urn,
                        f"{pod.name}/{container.name} mounts {name} at {path}, which is not a volume of the pod",
                    )
        desired = [("ServiceAccount", pod.spec["serviceAccountName"])]
        desired += [(kind, volume.get(*path)) for volume in pod.spec["volumes"] for path, kind in VOLUME_SOURCES]
        for kind, name_value in desired:
            if name_value.text and not _has_resource(stack, kind, pod.namespace, name_value.text):
                yield Violation(
                    pod.urn, f"{pod.name} requires {kind} {name_value.text}, which does not exist in {pod.namespace}"
                )


def _read_grace_period_s(pod: PodTemplate) -> float:
    grace = pod.spec["terminationGracePeriodSeconds"].number
    return DEFAULT_GRACE_PERIOD_S if grace is None else grace


def _fails_while_draining(readiness: Value) -> bool:
    """Return True if readiness depends on the HTTP status of the program's health path."""
    return readiness.get("httpGet", "path").text == HEALTH_PATH


def _iter_replicated_pods(stack: Stack) -> Iterator[PodTemplate]:
    return (pod for pod in list_pods(stack) if pod.resource.type.endswith(REPLICATED_TYPES))


def _selects_pod(resource: Resource, pod: PodTemplate, *inner: str) -> bool:
    labels = resource.props.get("spec", "selector", *inner).as_text_dict()
    same_namespace = resource.props.get("metadata", "namespace").text == pod.namespace
    return same_namespace and bool(labels) and labels.items() <= pod.labels.items()


def _has_resource(stack: Stack, kind: str, namespace: str, name: str) -> bool:
    return any(
        (r.props.get("metadata", "namespace").text, r.props.get("metadata", "name").text or r.name) == (namespace, name)
        for r in stack.find_resources(f":{kind}")
    )
