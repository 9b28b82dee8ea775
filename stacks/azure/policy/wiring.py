"""Rules on how the parts of a workload meet: ports, LMCache servers, quotas, flows."""

import itertools
from collections.abc import Iterator

from blueprint.azure.contract import COMPONENT_LABEL, GPU_RESOURCE, ClusterFlow
from stacks.azure.policy.cluster import most_replicas
from stacks.azure.policy.engines import engines
from stacks.azure.policy.pods import REPLICATED, Container, Pod, pods
from stacks.azure.policy.quantities import amount
from stacks.azure.policy.rules import Found, Resource, Stack, rule, stack_rule
from stacks.azure.policy.values import Value

PORT_FLAGS = ("--port", "--http-port")
PORT_VARIABLES = ("VLLM_NIXL_SIDE_CHANNEL_PORT",)
PROBES = ("startupProbe", "readinessProbe", "livenessProbe")
LMCACHE_SERVER = ("lmcache", "server")
PODS = "https://kubernetes.io/docs/concepts/workloads/pods"
HASH_SEED = "PYTHONHASHSEED"


def listening(container: Container) -> set[str]:
    """Return the ports that a container listens on, as far as its manifest says."""
    argv = container.argv
    ports = {after for flag, after in itertools.pairwise(argv) if flag in PORT_FLAGS}
    ports |= {argument.partition("=")[2] for argument in argv if argument.partition("=")[0] in PORT_FLAGS}
    ports |= {container.environment[name] for name in PORT_VARIABLES if name in container.environment}
    ports |= {port["containerPort"].text for port in container.value["ports"]}
    return ports - {""}


@rule(
    "ports-are-apart",
    "No two containers of a pod listen on one port.",
    remedy="give each its own port of the cluster's contract",
    source=PODS,
)
def ports_are_apart(stack: Stack) -> Iterator[Found]:
    for pod in pods(stack):
        owner: dict[str, str] = {}
        for container in pod.running:
            for port in sorted(listening(container)):
                if port in owner:
                    yield Found(pod.urn, f"{owner[port]} and {container.name} of {pod.name} both listen on port {port}")
                owner[port] = container.name


@stack_rule(
    "ports-have-listeners",
    "Probes and services lead to ports that a container listens on.",
    remedy="use the port that the container's command names",
    source=PODS,
)
def probes_reach_somebody(stack: Stack) -> Iterator[Found]:
    for pod in pods(stack):
        for container in pod.containers:
            for probe in PROBES:
                port = container.value.at(probe, "httpGet", "port")
                if port.text and not _has(container, port) and listening(container):
                    yield Found(
                        pod.urn, f"{pod.name}/{container.name}: {probe} asks port {port.text}, which nobody has"
                    )
    for service in stack.of("core/v1:Service"):
        labels = service.props.at("spec", "selector").texts()
        for port in service.props.at("spec", "ports"):
            target = port["port"] if port["targetPort"].missing else port["targetPort"]
            selected = [pod for pod in pods(stack) if labels and labels.items() <= pod.labels.items()]
            if selected and not any(_has(container, target) for pod in selected for container in pod.running):
                yield Found(service.urn, f"service {service.name} leads to port {target.text}, which no pod has")


@rule(
    "engines-have-their-cache",
    "Every engine on LMCache has a server of its own in its pod, and both hash chunks alike.",
    remedy="give each engine its own server and port, and both the same PYTHONHASHSEED",
    source="https://docs.lmcache.ai/mp/disaggregated_prefill.html",
)
def engines_have_their_cache(stack: Stack) -> Iterator[Found]:
    taken: dict[tuple[str, str], str] = {}
    for engine in engines(stack):
        for connector in engine.connectors:
            port = connector.at("kv_connector_extra_config", "lmcache.mp.port").text
            if not port:
                continue
            servers = [c for c in engine.pod.running if _serves(c, port)]
            if not servers:
                yield Found(
                    engine.pod.urn, f"{engine.name} asks an LMCache server on port {port}; its pod has none there"
                )
            key = (engine.pod.urn, port)
            if key in taken:
                yield Found(engine.pod.urn, f"{taken[key]} and {engine.name} share the LMCache server on port {port}")
            taken[key] = engine.name
            seeds = {c.environment.get(HASH_SEED, "random") for c in [engine.container, *servers]}
            if len(seeds) > 1 or seeds & {"random"}:
                yield Found(
                    engine.pod.urn, f"{engine.name} and its LMCache server name chunks apart: {HASH_SEED} {seeds}"
                )


@stack_rule(
    "quotas-hold-replicas",
    "A namespace's quota holds all replicas that its pods may be scaled to.",
    remedy="raise the quota, or lower maxReplicaCount",
    source="https://kubernetes.io/docs/concepts/policy/resource-quotas",
)
def quotas_hold_replicas(stack: Stack) -> Iterator[Found]:
    most = most_replicas(stack)
    for quota in stack.of("core/v1:ResourceQuota"):
        namespace, hard = quota.props.at("metadata", "namespace").text, quota.props.at("spec", "hard")
        members = [pod for pod in pods(stack) if pod.namespace == namespace and pod.resource.type.endswith(REPLICATED)]
        for key, of_pod in (
            (f"requests.{GPU_RESOURCE}", lambda pod: pod.gpus),
            ("requests.memory", lambda pod: pod.memory_gib * 2**30),
            ("requests.cpu", lambda pod: pod.cpus),
            ("pods", lambda _: 1),
        ):
            need = sum(most.get((pod.namespace, pod.name), 1) * of_pod(pod) for pod in members)
            if hard[key].text and need > float(amount(hard[key].text)):
                yield Found(
                    quota.urn, f"quota {key} of {namespace} is {hard[key].text}; its replicas may take {need:g}"
                )


@rule(
    "gpus-are-whole",
    "GPUs are asked for in whole numbers, request and limit the same.",
    remedy="set both to the same whole number",
    source="https://kubernetes.io/docs/tasks/manage-gpus/scheduling-gpus",
)
def gpus_are_whole(stack: Stack) -> Iterator[Found]:
    for pod in pods(stack):
        for container in pod.containers:
            resources = container.value["resources"]
            asked, limit = resources["requests"][GPU_RESOURCE].text, resources["limits"][GPU_RESOURCE].text
            if (asked or limit) and (not limit or asked not in {"", limit} or not limit.isdecimal()):
                yield Found(
                    pod.urn, f"{pod.name}/{container.name} asks for {asked or 'no'} GPUs, limit {limit or 'none'}"
                )


@stack_rule(
    "contract-flows-are-allowed",
    "Every flow of the cluster's contract has a network policy that lets it in.",
    remedy="render the policies from blueprint.azure.contract.cluster_flows",
    source="https://kubernetes.io/docs/concepts/services-networking/network-policies",
)
def flows_are_allowed(stack: Stack) -> Iterator[Found]:
    policies = list(stack.of("networking.k8s.io/v1:NetworkPolicy"))
    known = pods(stack)
    for flow in stack.flows:
        senders = [pod for pod in known if pod.labels.get(COMPONENT_LABEL) == flow.source.value]
        for pod in known:
            if pod.labels.get(COMPONENT_LABEL) == flow.destination.value and not any(
                _lets_in(policy, pod, flow, senders) for policy in policies
            ):
                yield Found(pod.urn, f"no policy lets {flow.source.value} reach {pod.name} on port {flow.port.number}")


def _has(container: Container, port: Value) -> bool:
    named = {entry["name"].text: entry["containerPort"].text for entry in container.value["ports"]}
    return named.get(port.text, port.text) in listening(container)


def _serves(container: Container, port: str) -> bool:
    argv = container.argv
    return any(argv[i : i + 2] == LMCACHE_SERVER for i in range(len(argv))) and port in listening(container)


def _lets_in(policy: Resource, pod: Pod, flow: ClusterFlow, senders: list[Pod]) -> bool:
    """Whether a policy opens a flow's port of a pod; to its senders, where they are pods of the same stack."""
    spec = policy.props["spec"]
    same = policy.props.at("metadata", "namespace").text == pod.namespace
    if not same or not spec.at("podSelector", "matchLabels").texts().items() <= pod.labels.items():
        return False
    for entry in spec["ingress"]:
        if str(flow.port.number) in {port["port"].text for port in entry["ports"]}:
            peers = [peer.at("podSelector", "matchLabels").texts() for peer in entry["from"]]
            if not senders or any(peer and peer.items() <= s.labels.items() for peer in peers for s in senders):
                return True
    return False
