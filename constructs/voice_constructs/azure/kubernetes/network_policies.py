"""Network policies: default deny, and one rule for each flow in the contract."""

import ipaddress
from collections.abc import Sequence

import pulumi
import pulumi_kubernetes as k8s

from voice_blueprint.azure.contract import (
    CLIENT_LABEL,
    COMPONENT_LABEL,
    GPU_NAMESPACE,
    NAMESPACE,
    SYSTEM_NAMESPACE,
    ClusterFlow,
    Component,
    build_cluster_flows,
)
from voice_blueprint.azure.ranges import calculate_infrastructure_ranges
from voice_constructs.azure.kubernetes.context import COMPONENT_TYPE_PREFIX, ClusterContext, create_metadata

Peer = k8s.networking.v1.NetworkPolicyPeerArgs

NAMESPACE_BY_COMPONENT: dict[Component, str] = {
    Component.ROUTER: NAMESPACE,
    Component.ENGINE: NAMESPACE,
    Component.LMCACHE_COORDINATOR: NAMESPACE,
    Component.MODEL_FETCH: NAMESPACE,
    Component.GATEWAY: NAMESPACE,
    Component.VAD: NAMESPACE,
    Component.ASR: NAMESPACE,
    Component.AGENT: NAMESPACE,
    Component.GPU_METRICS: GPU_NAMESPACE,
    Component.DEVICE_PLUGIN: GPU_NAMESPACE,
}
"""Namespaces of the components that run as pods in this product. Policies can only apply to these components."""

NAMESPACE_NAME_LABEL = "kubernetes.io/metadata.name"
"""Label that Kubernetes adds to every namespace."""

_SYSTEM_POD_LABELS: dict[Component, dict[str, str]] = {
    # The agent's ReplicaSet runs the scrape jobs of pod monitors; its DaemonSet only scrapes Kubernetes itself.
    # https://learn.microsoft.com/azure/azure-monitor/containers/prometheus-metrics-scrape-configuration
    Component.MONITORING: {"rsName": "ama-metrics"},
    Component.DNS: {"k8s-app": "kube-dns"},
}

METADATA_SERVICE_CIDR = "169.254.169.254/32"
"""Azure's instance metadata service, which issues tokens for the node's identities."""


class NetworkPolicies(pulumi.ComponentResource):
    """A default deny policy in each namespace, and the flows in the contract.

    Attributes:
        policies: Policies by name.
    """

    def __init__(self, name: str, *, context: ClusterContext, opts: pulumi.ResourceOptions) -> None:
        super().__init__(f"{COMPONENT_TYPE_PREFIX}:NetworkPolicies", name, None, opts)
        self._context = context
        self._namespaces = {NAMESPACE: context.namespace, GPU_NAMESPACE: context.gpu_namespace}
        self.policies: dict[str, k8s.networking.v1.NetworkPolicy] = {}
        for namespace in (NAMESPACE, GPU_NAMESPACE):
            self._add_policy("refuse-everything", namespace, k8s.meta.v1.LabelSelectorArgs(), ["Ingress", "Egress"])
        azure = context.azure
        every = build_cluster_flows(
            callers=azure.callers is not None,
            agents=azure.agents is not None,
            archive=azure.archive is not None,
            peers=azure.has_peers,
        )
        for source, destination in dict.fromkeys((flow.source, flow.destination) for flow in every):
            flows = [flow for flow in every if (flow.source, flow.destination) == (source, destination)]
            self._allow_flows(source, destination, flows)
        self.register_outputs({})

    def _allow_flows(self, source: Component, destination: Component, flows: Sequence[ClusterFlow]) -> None:
        """Allow ingress at the destination and egress at the source, if these are pods in this deployment."""
        ports = [
            k8s.networking.v1.NetworkPolicyPortArgs(port=flow.port.number, protocol=flow.port.protocol.upper())
            for flow in flows
        ]
        if destination in NAMESPACE_BY_COMPONENT:
            self._add_policy(
                f"{destination}-from-{source}",
                NAMESPACE_BY_COMPONENT[destination],
                _build_pod_selector(destination),
                ["Ingress"],
                ingress=[
                    k8s.networking.v1.NetworkPolicyIngressRuleArgs(from_=[self._build_policy_peer(source)], ports=ports)
                ],
            )
        if source in NAMESPACE_BY_COMPONENT:
            self._add_policy(
                f"{source}-to-{destination}",
                NAMESPACE_BY_COMPONENT[source],
                _build_pod_selector(source),
                ["Egress"],
                egress=[
                    k8s.networking.v1.NetworkPolicyEgressRuleArgs(
                        to=[self._build_policy_peer(destination)], ports=ports
                    )
                ],
            )

    def _build_policy_peer(self, component: Component) -> Peer:
        match component:
            case Component.CLIENT:
                return Peer(namespace_selector=k8s.meta.v1.LabelSelectorArgs(match_labels={CLIENT_LABEL: "true"}))
            case Component.MONITORING | Component.DNS:
                return Peer(
                    namespace_selector=_build_namespace_selector(SYSTEM_NAMESPACE),
                    pod_selector=k8s.meta.v1.LabelSelectorArgs(match_labels=_SYSTEM_POD_LABELS[component]),
                )
            case Component.INTERNET:
                return self._build_public_peer()
            case Component.EDGE:
                return Peer(
                    ip_block=_build_ip_block(calculate_infrastructure_ranges(self._context.azure.network.cidr).edge)
                )
            case Component.STATE | Component.ARCHIVE:
                return Peer(
                    ip_block=_build_ip_block(
                        calculate_infrastructure_ranges(self._context.azure.network.cidr).endpoints
                    )
                )
            case _:
                return Peer(
                    namespace_selector=_build_namespace_selector(NAMESPACE_BY_COMPONENT[component]),
                    pod_selector=_build_pod_selector(component),
                )

    def _build_public_peer(self) -> Peer:
        network = self._context.azure.network
        inside = [network.cidr, network.pod_cidr, network.service_cidr]
        return Peer(ip_block=_build_ip_block("0.0.0.0/0", [*inside, METADATA_SERVICE_CIDR]))

    def _add_policy(
        self,
        name: str,
        namespace: str,
        pods: k8s.meta.v1.LabelSelectorArgs,
        types: list[str],
        *,
        ingress: list[k8s.networking.v1.NetworkPolicyIngressRuleArgs] | None = None,
        egress: list[k8s.networking.v1.NetworkPolicyEgressRuleArgs] | None = None,
    ) -> None:
        key = f"{namespace}-{name}"
        self.policies[key] = k8s.networking.v1.NetworkPolicy(
            key,
            metadata=create_metadata(name, self._namespaces[namespace]),
            spec=k8s.networking.v1.NetworkPolicySpecArgs(
                pod_selector=pods, policy_types=types, ingress=ingress, egress=egress
            ),
            opts=pulumi.ResourceOptions(parent=self),
        )


def _build_pod_selector(component: Component) -> k8s.meta.v1.LabelSelectorArgs:
    return k8s.meta.v1.LabelSelectorArgs(match_labels={COMPONENT_LABEL: component.value})


def _build_namespace_selector(name: str) -> k8s.meta.v1.LabelSelectorArgs:
    return k8s.meta.v1.LabelSelectorArgs(match_labels={NAMESPACE_NAME_LABEL: name})


def _build_ip_block(cidr: str, except_: Sequence[str] = ()) -> k8s.networking.v1.IPBlockArgs:
    network = ipaddress.ip_network(cidr)
    return k8s.networking.v1.IPBlockArgs(cidr=str(network), except_=list(except_) or None)
