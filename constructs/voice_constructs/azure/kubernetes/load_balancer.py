"""An Azure load balancer in front of pods in the CPU pool."""

from collections.abc import Mapping, Sequence

import pulumi
import pulumi_kubernetes as k8s

from voice_blueprint.contract.network import Port
from voice_constructs.azure.kubernetes.context import COMPONENT_TYPE_PREFIX, ClusterContext, create_metadata

REASON_ANNOTATION = "voice-serve/reason"
"""Annotation with the reason for exposing the service."""
ANNOTATION_PREFIX = "service.beta.kubernetes.io/"
"""Prefix of AKS's annotations:
https://learn.microsoft.com/azure/aks/load-balancer-standard#customizations-via-kubernetes-annotations"""


class LoadBalancer(pulumi.ComponentResource):
    """A Service of type ``LoadBalancer``.

    Packets are only sent to nodes with a ready pod, and pods see the source addresses.

    Attributes:
        node_port_count: Number of node ports, which a quota limits.
    """

    def __init__(
        self,
        name: str,
        *,
        context: ClusterContext,
        selector: Mapping[str, str],
        ports: Sequence[Port],
        health: Port,
        reason: str,
        annotations: Mapping[str, pulumi.Input[str]],
        opts: pulumi.ResourceOptions,
        sticky: bool = False,
    ) -> None:
        """Create the service.

        Args:
            sticky: Whether all flows of a source IP address reach one pod. AKS also sets source IP affinity on the load
                balancer's rule.
        """
        super().__init__(f"{COMPONENT_TYPE_PREFIX}:LoadBalancer", name, None, opts)
        self.node_port_count = len(ports)
        k8s.core.v1.Service(
            name,
            metadata=create_metadata(
                name,
                context.namespace,
                annotations={
                    REASON_ANNOTATION: reason,
                    # Azure assigns the address when the first node is ready.
                    "pulumi.com/skipAwait": "true",
                    **{f"{ANNOTATION_PREFIX}{key}": value for key, value in annotations.items()},
                },
            ),
            spec=k8s.core.v1.ServiceSpecArgs(
                type="LoadBalancer",
                selector=dict(selector),
                external_traffic_policy="Local",
                health_check_node_port=health.number,
                session_affinity="ClientIP" if sticky else "None",
                ports=[
                    k8s.core.v1.ServicePortArgs(
                        name=f"{port.protocol}-{port.number}",
                        port=port.number,
                        target_port=port.number,
                        protocol=port.protocol.upper(),
                    )
                    for port in ports
                ],
            ),
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.register_outputs({})
