"""Rules on our programs and their pods: ports, paths, readiness, and the order of shutdown."""

from collections.abc import Iterator, Mapping

from voice_blueprint.azure.contract import COMPONENT_LABEL, REDIS, Component
from voice_blueprint.contract import environment as contract_variables
from voice_blueprint.contract.network import (
    AGENT_HTTP,
    CHUNK,
    ENGINE_HEALTH,
    GATEWAY_HTTP,
    GATEWAY_MEDIA,
    PROMETHEUS,
    RTP,
    VAD_HEALTH,
    Port,
)
from voice_stacks.azure.policy.pods import PodTemplate, list_pods
from voice_stacks.azure.policy.rollouts import calculate_max_failure_time_s
from voice_stacks.azure.policy.rules import Stack, Violation, rule, stack_rule
from voice_stacks.azure.policy.values import Value

CONTRACT_PORT_BY_VARIABLE: Mapping[str, Port] = {
    contract_variables.RTP_PORT.name: RTP,
    contract_variables.CHUNK_PORT.name: CHUNK,
    contract_variables.MEDIA_PORT.name: GATEWAY_MEDIA,
    contract_variables.VALKEY_PORT.name: REDIS,
    contract_variables.PROMETHEUS_PORT.name: PROMETHEUS,
}
"""Ports in the contract, by environment variable. The variables configure listeners and clients."""
COMPONENT_PORTS_BY_VARIABLE: Mapping[str, Mapping[str, Port]] = {
    contract_variables.HTTP_PORT.name: {Component.GATEWAY.value: GATEWAY_HTTP, Component.AGENT.value: AGENT_HTTP},
    contract_variables.HEALTH_PORT.name: {Component.VAD.value: VAD_HEALTH, Component.ASR.value: ENGINE_HEALTH},
}
"""Ports in the contract that differ between components, by environment variable."""
MAX_UNREADY_S = 60
"""Maximum time for which callers may be routed to a pod that does not respond. This is our choice: the edge sends a
probe every 10 s, and requires two failures."""
PROBE_DOCS_URL = "https://kubernetes.io/docs/concepts/configuration/liveness-readiness-startup-probes"


@rule(
    "programs-use-contract-ports",
    "Programs must listen and connect on the ports of the contract's flows.",
    remedy="use the port of voice_blueprint.contract.network",
    source="voice_blueprint/contract/network.py",
)
def check_programs_use_contract_ports(stack: Stack) -> Iterator[Violation]:
    for pod in list_pods(stack):
        component = pod.labels.get(COMPONENT_LABEL, "")
        for container in pod.running_containers:
            for name, value in container.environment.items():
                port = CONTRACT_PORT_BY_VARIABLE.get(name) or COMPONENT_PORTS_BY_VARIABLE.get(name, {}).get(component)
                if port and value != str(port.number):
                    yield Violation(
                        pod.urn, f"{pod.name}/{container.name} has {name} {value}; the contract's port is {port.number}"
                    )


@stack_rule(
    "programs-use-edge-names",
    "Programs must send callers to host names of the edge and load balancers, in the file's edge.domain.",
    remedy="use names in edge.domain of the deployment file",
    source="constructs/voice_constructs/azure/kubernetes/programs.py",
)
def check_programs_use_edge_names(stack: Stack) -> Iterator[Violation]:
    azure = stack.azure
    if azure is None or azure.callers is None:
        return
    domain = azure.callers.edge.domain.name
    for pod in list_pods(stack):
        for container in pod.running_containers:
            for name, first in ((contract_variables.MEDIA_HOST.name, "media"), ("VOICE_RTP_HOST", "rtp")):
                value = container.environment.get(name, f"{first}.{domain}")
                if value != f"{first}.{domain}":
                    yield Violation(
                        pod.urn, f"{pod.name}/{container.name} sends callers to {value}, not {first}.{domain}"
                    )
    for edge in stack.find_resources(":ApplicationGateway"):
        for listener in edge.props["httpListeners"]:
            host = listener["hostName"]
            if host.text and host.text.partition(".")[2] != domain:
                yield Violation(edge.urn, f"{edge.name} has a listener for {host.text}, which is not in {domain}")


@rule(
    "dead-pods-leave-in-time",
    "A pod must be unready within a minute of its failure, and a probe must end before the next one starts.",
    remedy="lower periodSeconds, failureThreshold or timeoutSeconds of the readiness probe",
    source=PROBE_DOCS_URL,
)
def check_failed_pods_become_unready(stack: Stack) -> Iterator[Violation]:
    for pod in list_pods(stack):
        for container in pod.running_containers:
            probe = container.spec["readinessProbe"]
            unready_s = calculate_max_failure_time_s(probe) - (probe["initialDelaySeconds"].number or 0)
            if probe and unready_s > MAX_UNREADY_S:
                yield Violation(
                    pod.urn, f"{pod.name}/{container.name} gets traffic for {unready_s:g} s after its failure"
                )


@rule(
    "spreads-select-their-pods",
    "Topology spread constraints and anti-affinity of a pod must match its own labels.",
    remedy="use the labels of the pod template",
    source="https://kubernetes.io/docs/concepts/scheduling-eviction/topology-spread-constraints",
)
def check_spread_constraints_match_pods(stack: Stack) -> Iterator[Violation]:
    for pod in list_pods(stack):
        anti_affinity = pod.spec.get("affinity", "podAntiAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
        for each in (*pod.spec["topologySpreadConstraints"], *anti_affinity):
            yield from _find_spread_violations(pod, each)


def _find_spread_violations(pod: PodTemplate, constraint: Value) -> Iterator[Violation]:
    labels = constraint.get("labelSelector", "matchLabels").as_text_dict()
    if not labels or not labels.items() <= pod.labels.items():
        yield Violation(pod.urn, f"{pod.name} is spread by {labels or 'no labels'}, which its pods do not have")
