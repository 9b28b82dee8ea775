"""Rules on the life of pods: probes, draining, disruption budgets, scaling, and references that lead somewhere."""

from collections.abc import Iterator

from blueprint.azure.contract import ENGINE_HTTP, ROUTER_HTTP
from stacks.azure.policy.engines import engines
from stacks.azure.policy.pods import REPLICATED, Pod, pods
from stacks.azure.policy.rules import Found, Resource, Stack, rule, stack_rule

CALLED = {str(port.number) for port in (ENGINE_HTTP, ROUTER_HTTP)}
"""Ports that requests come in on."""
VOLUME_SOURCES = (
    (("configMap", "name"), "ConfigMap"),
    (("persistentVolumeClaim", "claimName"), "PersistentVolumeClaim"),
    (("csi", "volumeAttributes", "secretProviderClass"), "SecretProviderClass"),
)


@rule(
    "engines-have-probes",
    "Every engine has a startup, a readiness and a liveness probe.",
    remedy="probe /health",
    source="https://kubernetes.io/docs/concepts/configuration/liveness-readiness-startup-probes",
)
def engines_have_probes(stack: Stack) -> Iterator[Found]:
    for engine in engines(stack):
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            if not engine.container.value[probe]:
                yield Found(engine.pod.urn, f"{engine.name} has no {probe}")


@rule(
    "replicated-pods-say-when-ready",
    "Every replicated pod has a readiness probe.",
    remedy="add one to the container that callers reach",
    source="https://kubernetes.io/docs/concepts/configuration/liveness-readiness-startup-probes",
)
def replicated_pods_are_ready(stack: Stack) -> Iterator[Found]:
    for pod in _replicated(stack):
        reached = [c for c in pod.running if {p["containerPort"].text for p in c.value["ports"]} & CALLED]
        if not any(container.value["readinessProbe"] for container in reached or pod.running):
            yield Found(
                pod.urn, f"what callers reach of {pod.name} has no readiness probe: they meet it while it starts"
            )


@rule(
    "grace-exceeds-drain",
    "Engines finish their requests before they are killed.",
    remedy="raise terminationGracePeriodSeconds above the preStop hook and --shutdown-timeout together",
    source="https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle#pod-termination",
)
def grace_exceeds_drain(stack: Stack) -> Iterator[Found]:
    for engine in engines(stack):
        drain = engine.number("--shutdown-timeout", 0)
        before = engine.container.grace_s
        grace = engine.pod.spec["terminationGracePeriodSeconds"].number
        grace = 30 if grace is None else grace
        if drain == 0:
            yield Found(engine.pod.urn, f"{engine.name} has --shutdown-timeout 0: it drops every request when it stops")
        elif drain + before >= grace:
            yield Found(
                engine.pod.urn, f"{engine.name} drains for {before:g} + {drain} s; it is killed after {grace:g} s"
            )


@stack_rule(
    "replicated-pods-have-budgets",
    "Every replicated workload has a disruption budget that allows some disruption.",
    remedy="add a PodDisruptionBudget with maxUnavailable: 1",
    source="https://kubernetes.io/docs/tasks/run-application/configure-pdb",
)
def replicated_pods_have_budgets(stack: Stack) -> Iterator[Found]:
    budgets = list(stack.of("policy/v1:PodDisruptionBudget"))
    for budget in budgets:
        spec = budget.props["spec"]
        if spec["maxUnavailable"].text in {"0", "0%"} or spec["minAvailable"].text == "100%":
            yield Found(budget.urn, f"budget {budget.name} allows no disruption: no node could ever be upgraded")
    for pod in _replicated(stack):
        if not any(_selects(budget, pod, "matchLabels") for budget in budgets):
            yield Found(pod.urn, f"{pod.name} has no disruption budget")


@stack_rule(
    "scaling-has-a-target",
    "Every ScaledObject scales a workload of the stack between bounds that are in order.",
    remedy="name a workload of the same namespace",
    source="https://keda.sh/docs/latest/concepts/scaling-deployments",
)
def scaling_has_a_target(stack: Stack) -> Iterator[Found]:
    known = {(pod.resource.type.rpartition(":")[2], pod.namespace, pod.name) for pod in pods(stack)}
    scaler: dict[tuple[str, str, str], str] = {}
    for scaled in stack.of(":ScaledObject"):
        spec, namespace = scaled.props["spec"], scaled.props.at("metadata", "namespace").text
        target = spec["scaleTargetRef"]
        kind, name = target["kind"].text or "Deployment", target["name"]
        if not name.unknown and (kind, namespace, name.text) not in known:
            yield Found(
                scaled.urn, f"ScaledObject {scaled.name} scales {kind} {namespace}/{name.text}, which there is not"
            )
        if scaler.setdefault((kind, namespace, name.text), scaled.name) != scaled.name and name.text:
            yield Found(scaled.urn, f"{scaler[kind, namespace, name.text]} and {scaled.name} both scale {name.text}")
        low, high = spec["minReplicaCount"].number or 0, spec["maxReplicaCount"].number
        if high is not None and low > high:
            yield Found(scaled.urn, f"ScaledObject {scaled.name} keeps {low:g} replicas and allows {high:g}")
        if not any(True for _ in spec["triggers"]):
            yield Found(scaled.urn, f"ScaledObject {scaled.name} has no trigger")


@stack_rule(
    "selectors-select",
    "Workloads, services and budgets select pods that exist.",
    remedy="use the labels of the pod template",
    source="https://kubernetes.io/docs/concepts/overview/working-with-objects/labels",
)
def selectors_select(stack: Stack) -> Iterator[Found]:
    known = pods(stack)
    for pod in known:
        wanted = pod.resource.props.at("spec", "selector", "matchLabels").texts()
        if not wanted.items() <= pod.labels.items():
            yield Found(pod.urn, f"{pod.name} selects {wanted}; its pods have {pod.labels}")
    for service in stack.of("core/v1:Service"):
        if service.props.at("spec", "selector") and not any(_selects(service, pod) for pod in known):
            yield Found(service.urn, f"service {service.name} selects no pod of the stack")
    for budget in stack.of("policy/v1:PodDisruptionBudget"):
        if not any(_selects(budget, pod, "matchLabels") for pod in known):
            yield Found(budget.urn, f"budget {budget.name} selects no pod of the stack")


@stack_rule(
    "references-resolve",
    "What pods mount and act as exists in their namespace.",
    remedy="make it in the same stack, or correct the name",
    source="https://kubernetes.io/docs/concepts/storage/volumes",
)
def references_resolve(stack: Stack) -> Iterator[Found]:
    for pod in pods(stack):
        names = {volume["name"].text for volume in pod.spec["volumes"]}
        for container in pod.containers:
            for path, name in container.mounts.items():
                if name not in names:
                    yield Found(pod.urn, f"{pod.name}/{container.name} mounts {name} at {path}, which is no volume")
        wanted = [("ServiceAccount", pod.spec["serviceAccountName"])]
        wanted += [(kind, volume.at(*path)) for volume in pod.spec["volumes"] for path, kind in VOLUME_SOURCES]
        for kind, name_value in wanted:
            if name_value.text and not _exists(stack, kind, pod.namespace, name_value.text):
                yield Found(pod.urn, f"{pod.name} needs {kind} {name_value.text}, which is not in {pod.namespace}")


def _replicated(stack: Stack) -> Iterator[Pod]:
    return (pod for pod in pods(stack) if pod.resource.type.endswith(REPLICATED))


def _selects(resource: Resource, pod: Pod, *inner: str) -> bool:
    labels = resource.props.at("spec", "selector", *inner).texts()
    same = resource.props.at("metadata", "namespace").text == pod.namespace
    return same and bool(labels) and labels.items() <= pod.labels.items()


def _exists(stack: Stack, kind: str, namespace: str, name: str) -> bool:
    return any(
        (r.props.at("metadata", "namespace").text, r.props.at("metadata", "name").text or r.name) == (namespace, name)
        for r in stack.of(f":{kind}")
    )
