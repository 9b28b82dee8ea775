"""Check that network policies allow each flow in the contract at the receiver and at the sender."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from ipaddress import ip_network

from voice_blueprint.azure.contract import CLIENT_LABEL, COMPONENT_LABEL, SYSTEM_NAMESPACE, ClusterFlow, Component
from voice_blueprint.azure.ranges import calculate_infrastructure_ranges
from voice_stacks.azure.policy.pods import PodTemplate, list_pods
from voice_stacks.azure.policy.rules import Resource, Stack, Violation
from voice_stacks.azure.policy.values import Value

NAMESPACE_NAME_LABEL = "kubernetes.io/metadata.name"
"""Label that Kubernetes adds to every namespace."""
EXAMPLE_INTERNET_RANGE = "203.0.113.0/24"
"""Range that represents the internet, since no cluster uses it (RFC 5737)."""
SYSTEM_POD_LABELS_BY_COMPONENT = {
    Component.MONITORING: {"rsName": "ama-metrics"},
    Component.DNS: {"k8s-app": "kube-dns"},
}
"""AKS pods, as `voice_constructs.azure.kubernetes.network_policies` selects them."""


def find_blocked_flow_violations(stack: Stack) -> Iterator[Violation]:
    """Yield a violation for each pod that cannot receive or send a flow in the contract."""
    policies = list(stack.find_resources("networking.k8s.io/v1:NetworkPolicy"))
    stack_pods = list_pods(stack)
    for flow in stack.flows:
        senders = [pod for pod in stack_pods if pod.labels.get(COMPONENT_LABEL) == flow.source.value]
        receivers = [pod for pod in stack_pods if pod.labels.get(COMPONENT_LABEL) == flow.destination.value]
        for pod in receivers:
            if not any(
                _allows_flow(stack, policy, pod, _FlowEndpoint(flow, "Ingress", senders)) for policy in policies
            ):
                yield Violation(
                    pod.urn,
                    f"no network policy allows {flow.source.value} to reach {pod.name} on port {flow.port.number}",
                )
        for pod in senders:
            if not any(
                _allows_flow(stack, policy, pod, _FlowEndpoint(flow, "Egress", receivers)) for policy in policies
            ):
                yield Violation(
                    pod.urn,
                    f"no network policy allows {pod.name} to reach {flow.destination.value} on port {flow.port.number}",
                )


@dataclass(frozen=True)
class _FlowEndpoint:
    """One end of a flow, and the pods at the other end. The policy type is ``Ingress`` or ``Egress``."""

    flow: ClusterFlow
    policy_type: str
    other_pods: Sequence[PodTemplate]

    @property
    def other_component(self) -> Component:
        return self.flow.source if self.policy_type == "Ingress" else self.flow.destination


def _allows_flow(stack: Stack, policy: Resource, pod: PodTemplate, side: _FlowEndpoint) -> bool:
    """Return True if a policy allows a flow between a pod and all pods at the other end."""
    spec = policy.props["spec"]
    same_namespace = policy.props.get("metadata", "namespace").text == pod.namespace
    selected = spec.get("podSelector", "matchLabels").as_text_dict().items() <= pod.labels.items()
    if not same_namespace or not selected or side.policy_type not in {kind.text for kind in spec["policyTypes"]}:
        return False
    port = (str(side.flow.port.number), side.flow.port.protocol.upper())
    for entry in spec["ingress" if side.policy_type == "Ingress" else "egress"]:
        opened = {(port["port"].text, port["protocol"].text or "TCP") for port in entry["ports"]}
        if port in opened or not opened:
            peers = list(entry["from" if side.policy_type == "Ingress" else "to"])
            if side.other_pods and all(
                any(_peer_selects_pod(peer, each) for peer in peers) for each in side.other_pods
            ):
                return True
            if not side.other_pods and any(
                _peer_includes_component(stack, peer, side.other_component) for peer in peers
            ):
                return True
    return False


def _peer_selects_pod(peer: Value, pod: PodTemplate) -> bool:
    labels = peer.get("podSelector", "matchLabels").as_text_dict()
    namespace = peer.get("namespaceSelector", "matchLabels").as_text_dict()
    return (
        bool(labels)
        and labels.items() <= pod.labels.items()
        and namespace.get(NAMESPACE_NAME_LABEL) in {None, pod.namespace}
    )


def _peer_includes_component(stack: Stack, peer: Value, component: Component) -> bool:
    """Return True if a peer in a policy includes a component that has no pods in the stack."""
    namespace = peer.get("namespaceSelector", "matchLabels").as_text_dict()
    azure = stack.azure
    match component:
        case Component.CLIENT:
            return CLIENT_LABEL in namespace
        case Component.MONITORING | Component.DNS:
            is_system_pod = (
                peer.get("podSelector", "matchLabels").as_text_dict().items()
                <= SYSTEM_POD_LABELS_BY_COMPONENT[component].items()
            )
            return is_system_pod and namespace.get(NAMESPACE_NAME_LABEL) == SYSTEM_NAMESPACE
        case Component.EDGE | Component.STATE if azure:
            ranges = calculate_infrastructure_ranges(azure.network.cidr)
            return _peer_contains_range(peer, ranges.edge if component is Component.EDGE else ranges.endpoints)
        case Component.INTERNET:
            return _peer_contains_range(peer, EXAMPLE_INTERNET_RANGE)
        case _:
            # A component of this deployment whose pods wait for their images, or a component of another stack.
            return bool(peer)


def _peer_contains_range(peer: Value, cidr: str) -> bool:
    block, desired = peer["ipBlock"], ip_network(cidr)
    if not block["cidr"].text or not desired.subnet_of(ip_network(block["cidr"].text)):  # type: ignore[arg-type]
        return False
    return not any(desired.overlaps(ip_network(each.text)) for each in block["except"])
