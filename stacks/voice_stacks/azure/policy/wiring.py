"""Rules on connections between workloads: ports, LMCache servers, quotas, flows."""

import itertools
from collections.abc import Iterator

from voice_blueprint.azure.contract import GPU_RESOURCE
from voice_blueprint.engines.launch.fabric import SIDE_CHANNEL_PORT_VARIABLE
from voice_stacks.azure.policy.cluster import collect_max_replicas_by_workload
from voice_stacks.azure.policy.engines import list_engines
from voice_stacks.azure.policy.flows import find_blocked_flow_violations
from voice_stacks.azure.policy.pods import REPLICATED_TYPES, Container, list_pods
from voice_stacks.azure.policy.quantities import parse_quantity_or_zero
from voice_stacks.azure.policy.rules import Stack, Violation, rule, stack_rule
from voice_stacks.azure.policy.values import Value

PORT_FLAGS = ("--port", "--http-port")
PORT_VARIABLES = (SIDE_CHANNEL_PORT_VARIABLE,)
HOST_FLAG_BY_PORT_FLAG = {"--port": "--host", "--http-port": "--http-host"}
LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "::1")
PROBE_FIELDS = ("startupProbe", "readinessProbe", "livenessProbe")
LMCACHE_SERVER_COMMAND = ("lmcache", "server")
POD_DOCS_URL = "https://kubernetes.io/docs/concepts/workloads/pods"
HASH_SEED_VARIABLE = "PYTHONHASHSEED"


def find_listening_ports(container: Container) -> set[str]:
    """Return the ports on which a container listens according to its manifest."""
    argv = container.argv
    ports = {after for flag, after in itertools.pairwise(argv) if flag in PORT_FLAGS}
    ports |= {argument.partition("=")[2] for argument in argv if argument.partition("=")[0] in PORT_FLAGS}
    ports |= {container.environment[name] for name in PORT_VARIABLES if name in container.environment}
    ports |= {port["containerPort"].text for port in container.spec["ports"]}
    return ports - {""}


@rule(
    "ports-are-apart",
    "Containers of a pod must listen on different ports.",
    remedy="use the port of each container in the cluster's contract",
    source=POD_DOCS_URL,
)
def check_ports_are_distinct(stack: Stack) -> Iterator[Violation]:
    for pod in list_pods(stack):
        owner: dict[str, str] = {}
        for container in pod.running_containers:
            for port in sorted(find_listening_ports(container)):
                if port in owner:
                    yield Violation(
                        pod.urn, f"{owner[port]} and {container.name} of {pod.name} both listen on port {port}"
                    )
                owner[port] = container.name


@rule(
    "servers-listen-to-others",
    "A server for other pods must listen on the pod's address, on the port that its command contains.",
    remedy="listen on 0.0.0.0, and declare the port of the command",
    source=POD_DOCS_URL,
)
def check_servers_listen_on_pod_ip(stack: Stack) -> Iterator[Violation]:
    for pod in list_pods(stack):
        for container in pod.running_containers:
            label = f"{pod.name}/{container.name}"
            named = {flag: container.get_option(flag) for flag in PORT_FLAGS if container.get_option(flag)}
            declared = {port["containerPort"].text for port in container.spec["ports"]}
            for port in sorted(declared - set(named.values())) if named else ():
                yield Violation(
                    pod.urn, f"{label} declares port {port}; its command listens on {', '.join(named.values())}"
                )
            for flag, port in named.items():
                if port in declared and container.get_option(HOST_FLAG_BY_PORT_FLAG[flag]) in LOOPBACK_HOSTS:
                    yield Violation(
                        pod.urn, f"{label} listens on port {port} of the loopback, which other pods cannot reach"
                    )


@stack_rule(
    "ports-have-listeners",
    "Probes and services must use ports that a container listens on.",
    remedy="use the port that the container's command contains",
    source=POD_DOCS_URL,
)
def check_probes_have_targets(stack: Stack) -> Iterator[Violation]:
    for pod in list_pods(stack):
        for container in pod.containers:
            for probe in PROBE_FIELDS:
                port = container.spec.get(probe, "httpGet", "port")
                if port.text and not _has_port(container, port) and find_listening_ports(container):
                    yield Violation(
                        pod.urn,
                        f"{pod.name}/{container.name}: {probe} uses port {port.text}, on which no container listens",
                    )
    for service in stack.find_resources("core/v1:Service"):
        labels = service.props.get("spec", "selector").as_text_dict()
        for port in service.props.get("spec", "ports"):
            target = port["port"] if port["targetPort"].is_missing else port["targetPort"]
            selected = [pod for pod in list_pods(stack) if labels and labels.items() <= pod.labels.items()]
            if selected and not any(
                _has_port(container, target) for pod in selected for container in pod.running_containers
            ):
                yield Violation(
                    service.urn, f"service {service.name} uses target port {target.text}, on which no pod listens"
                )


@rule(
    "engines-have-their-cache",
    "Every engine with LMCache must have its own server in its pod, with the same hash seed.",
    remedy="use a server and port per engine, and the same PYTHONHASHSEED for both",
    source="https://docs.lmcache.ai/mp/disaggregated_prefill.html",
)
def check_engines_have_lmcache_server(stack: Stack) -> Iterator[Violation]:
    servers_by_port: dict[tuple[str, str], str] = {}
    for engine in list_engines(stack):
        for connector in engine.connectors:
            port = connector.get("kv_connector_extra_config", "lmcache.mp.port").text
            if not port:
                continue
            servers = [c for c in engine.pod.running_containers if _serves_port(c, port)]
            if not servers:
                yield Violation(
                    engine.pod.urn,
                    f"{engine.name} uses an LMCache server on port {port}, on which no server of its pod listens",
                )
            key = (engine.pod.urn, port)
            if key in servers_by_port:
                yield Violation(
                    engine.pod.urn, f"{servers_by_port[key]} and {engine.name} share the LMCache server on port {port}"
                )
            servers_by_port[key] = engine.name
            seeds = {c.environment.get(HASH_SEED_VARIABLE, "random") for c in [engine.container, *servers]}
            if len(seeds) > 1 or seeds & {"random"}:
                yield Violation(
                    engine.pod.urn,
                    f"{engine.name} and its LMCache server have different chunk hashes: {HASH_SEED_VARIABLE} {seeds}",
                )


@stack_rule(
    "quotas-hold-replicas",
    "The resource quota of a namespace must allow the maximum replicas of every workload.",
    remedy="raise the quota, or lower maxReplicaCount",
    source="https://kubernetes.io/docs/concepts/policy/resource-quotas",
)
def check_quotas_fit_replicas(stack: Stack) -> Iterator[Violation]:
    max_replicas = collect_max_replicas_by_workload(stack)
    for quota in stack.find_resources("core/v1:ResourceQuota"):
        namespace, hard = quota.props.get("metadata", "namespace").text, quota.props.get("spec", "hard")
        members = [
            pod
            for pod in list_pods(stack)
            if pod.namespace == namespace and pod.resource.type.endswith(REPLICATED_TYPES)
        ]
        for key, pod_field in (
            (f"requests.{GPU_RESOURCE}", lambda pod: pod.gpu_count),
            ("requests.memory", lambda pod: pod.memory_gib * 2**30),
            ("requests.cpu", lambda pod: pod.requested_cpus),
            ("pods", lambda _: 1),
        ):
            need = sum(max_replicas.get((pod.namespace, pod.name), 1) * pod_field(pod) for pod in members)
            if hard[key].text and need > float(parse_quantity_or_zero(hard[key].text)):
                yield Violation(
                    quota.urn, f"quota {key} of {namespace} is {hard[key].text}; its replicas may use {need:g}"
                )


@rule(
    "gpus-are-whole",
    "GPU requests must be whole numbers, and equal the limits.",
    remedy="set both to the same whole number",
    source="https://kubernetes.io/docs/tasks/manage-gpus/scheduling-gpus",
)
def check_gpu_requests_are_integers(stack: Stack) -> Iterator[Violation]:
    for pod in list_pods(stack):
        for container in pod.containers:
            resources = container.spec["resources"]
            request, limit = resources["requests"][GPU_RESOURCE].text, resources["limits"][GPU_RESOURCE].text
            if (request or limit) and (not limit or request not in {"", limit} or not limit.isdecimal()):
                yield Violation(
                    pod.urn,
                    f"{pod.name}/{container.name} requests {request or 'no'} GPUs; its limit is {limit or 'none'}",
                )


@stack_rule(
    "contract-flows-are-allowed",
    "Every flow of the cluster's contract must have network policies that allow its egress and its ingress.",
    remedy="render the policies from voice_blueprint.azure.contract.build_cluster_flows",
    source="https://kubernetes.io/docs/concepts/services-networking/network-policies",
)
def check_flows_are_allowed(stack: Stack) -> Iterator[Violation]:
    yield from find_blocked_flow_violations(stack)


def _has_port(container: Container, port: Value) -> bool:
    named = {entry["name"].text: entry["containerPort"].text for entry in container.spec["ports"]}
    return named.get(port.text, port.text) in find_listening_ports(container)


def _serves_port(container: Container, port: str) -> bool:
    argv = container.argv
    return any(
        (program.rpartition("/")[2], command) == LMCACHE_SERVER_COMMAND for program, command in itertools.pairwise(argv)
    ) and port in find_listening_ports(container)
