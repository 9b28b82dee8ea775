"""The virtual network, its subnets and its egress."""

from collections.abc import Iterator

import pulumi
from pulumi_azure_native import network

from voice_blueprint.azure.contract import (
    AGENT_FLOWS,
    AGENT_NODE_HEALTH,
    CALLER_FLOWS,
    GATEWAY_HEALTH,
    REDIS,
    VAD_NODE_HEALTH,
    Component,
)
from voice_blueprint.azure.ranges import (
    calculate_agent_address,
    calculate_gateway_address,
    calculate_infrastructure_ranges,
    calculate_nodes_range,
)
from voice_blueprint.contract.network import Port
from voice_blueprint.file.model.azure import Azure, ClusterNetwork, ExistingNetwork, JumpHost, PeeredNetwork
from voice_constructs.azure.scope import Scope

BASTION_SUBNET_NAME = "AzureBastionSubnet"
"""Required name of the subnet. A security group for it would need rules that Azure prescribes, one of which allows all
addresses on port 443: https://learn.microsoft.com/azure/bastion/bastion-nsg"""
_IDLE_TIMEOUT_MIN = 10
"""Idle timeout of the NAT gateway. A download that pauses for minutes keeps its connection; Azure's default is 4."""


class VoiceNetwork(pulumi.ComponentResource):
    """A virtual network with subnets for nodes and private endpoints, and inbound access as configured in the file.

    For an existing network, the component creates nothing and only contains ids.

    Attributes:
        id: Id of the virtual network.
        name: Name.
        nodes_subnet_id: Subnet of the nodes.
        endpoints_subnet_id: Subnet of private endpoints.
        subnet_ids: Ids of all created subnets, by name.
        resolvers: Ids of the networks that resolve private names, by label: this network, and a peered network.
        egress_address: Public address of outbound connections; ``None`` for an existing network.
        egress_id: Id of the NAT gateway; ``None`` for an existing network.
        rtp_address: Public address for UDP, if there are callers.
    """

    def __init__(self, name: str, *, scope: Scope) -> None:
        super().__init__("voice:azure:VoiceNetwork", name)
        self._scope = scope
        access = scope.deployment.azure.access
        self.subnet_ids: dict[str, pulumi.Output[str]] = {}
        self.egress_address: pulumi.Output[str | None] | None = None
        self.egress_id: pulumi.Output[str] | None = None
        self.rtp_address: network.PublicIPAddress | None = None
        if isinstance(access, ExistingNetwork):
            self.id: pulumi.Input[str] = access.network_id
            self.name: pulumi.Input[str] = access.network_id.rpartition("/")[2]
            self.nodes_subnet_id: pulumi.Input[str] = access.nodes_subnet_id
            self.endpoints_subnet_id: pulumi.Input[str] = access.endpoints_subnet_id
        else:
            self._build_network(name)
        peer = {"operators": access.network_id} if isinstance(access, PeeredNetwork) else {}
        self.resolvers: dict[str, pulumi.Input[str]] = {"": self.id, **peer}
        self.register_outputs({})

    def _build_network(self, name: str) -> None:
        scope, azure = self._scope, self._scope.deployment.azure
        cidr = azure.network.cidr
        ranges = calculate_infrastructure_ranges(cidr)
        self.rtp_address = self._build_address("rtp", azure.availability_zones) if azure.callers else None
        virtual_network = network.VirtualNetwork(
            name,
            resource_group_name=scope.group,
            virtual_network_name=scope.build_name(name),
            location=scope.location,
            address_space=network.AddressSpaceArgs(address_prefixes=[cidr]),
            tags=scope.tags,
            opts=scope.retention.create_serving_options(parent=self),
        )
        self.id, self.name = virtual_network.id, virtual_network.name
        gateway, address = self._build_egress(azure.availability_zones)
        self.egress_address, self.egress_id = address.ip_address, gateway.id
        nodes = self._build_subnet(
            "nodes",
            virtual_network,
            prefix=calculate_nodes_range(cidr),
            rules=[
                *_build_node_rules(azure.network),
                *(_build_caller_rules(azure, self.rtp_address) if self.rtp_address else ()),
            ],
            nat_gateway=gateway.id,
            # The file driver mounts NFS shares through this endpoint, and would add the endpoint if it were missing.
            service_endpoints=[network.ServiceEndpointPropertiesFormatArgs(service="Microsoft.Storage")],
        )
        endpoints = self._build_subnet(
            "endpoints",
            virtual_network,
            prefix=ranges.endpoints,
            # The tag includes peered networks and networks connected through a gateway, from which operators connect.
            rules=[
                _build_inbound_rule("https", 100, source="VirtualNetwork", destination=ranges.endpoints, port="443"),
                # Traffic of pods leaves the node with the node's address.
                *(
                    [_build_flow_rule("state", 110, calculate_nodes_range(cidr), ranges.endpoints, REDIS)]
                    if azure.callers
                    else ()
                ),
            ],
            private_endpoint_network_policies=network.VirtualNetworkPrivateEndpointNetworkPolicies.ENABLED,
            # Azure changes one subnet of a network at a time.
            depends_on=[nodes],
        )
        self.nodes_subnet_id, self.endpoints_subnet_id = nodes.id, endpoints.id
        if isinstance(azure.access, JumpHost):
            jump = self._build_subnet(
                "jump",
                virtual_network,
                prefix=ranges.jump_host,
                rules=[_build_inbound_rule("ssh", 100, source=ranges.bastion, destination=ranges.jump_host, port="22")],
                nat_gateway=gateway.id,
                depends_on=[endpoints],
            )
            endpoints = self._build_subnet(
                BASTION_SUBNET_NAME, virtual_network, prefix=ranges.bastion, rules=None, depends_on=[jump]
            )
        if azure.callers:
            self._build_subnet(
                "edge",
                virtual_network,
                prefix=ranges.edge,
                rules=_build_edge_rules(ranges.edge),
                # An application gateway reads its settings from Azure through public addresses.
                default_outbound_access=None,
                depends_on=[endpoints],
            )

    def _build_egress(self, zones: tuple[str, ...]) -> tuple[network.NatGateway, network.PublicIPAddress]:
        """Create a zonal NAT gateway with the Standard SKU. Its zone-redundant address allows the gateway to be moved.

        The zone-redundant StandardV2 is not part of the installed provider's API version. If the zone fails, only new
        connections to the internet fail, since the registry, the vault and a private API server are inside the network.
        """
        address = self._build_address("egress", zones)
        gateway = network.NatGateway(
            "egress",
            resource_group_name=self._scope.group,
            nat_gateway_name=self._scope.build_name("nat"),
            location=self._scope.location,
            sku=network.NatGatewaySkuArgs(name=network.NatGatewaySkuName.STANDARD),
            zones=list(zones[:1]),
            idle_timeout_in_minutes=_IDLE_TIMEOUT_MIN,
            public_ip_addresses=[network.SubResourceArgs(id=address.id)],
            tags=self._scope.tags,
            opts=pulumi.ResourceOptions(parent=self),
        )
        return gateway, address

    def _build_address(self, name: str, zones: tuple[str, ...]) -> network.PublicIPAddress:
        return network.PublicIPAddress(
            name,
            resource_group_name=self._scope.group,
            public_ip_address_name=self._scope.build_name(name),
            location=self._scope.location,
            sku=network.PublicIPAddressSkuArgs(name=network.PublicIPAddressSkuName.STANDARD),
            public_ip_allocation_method=network.IPAllocationMethod.STATIC,
            zones=list(zones),
            tags=self._scope.tags,
            opts=pulumi.ResourceOptions(parent=self),
        )

    def _build_subnet(
        self,
        name: str,
        virtual_network: network.VirtualNetwork,
        *,
        prefix: str,
        rules: list[network.SecurityRuleArgs] | None,
        nat_gateway: pulumi.Output[str] | None = None,
        service_endpoints: list[network.ServiceEndpointPropertiesFormatArgs] | None = None,
        private_endpoint_network_policies: network.VirtualNetworkPrivateEndpointNetworkPolicies | None = None,
        default_outbound_access: bool | None = False,
        depends_on: list[pulumi.Resource] | None = None,
    ) -> network.Subnet:
        """Create a subnet. A subnet without rules has no security group from this deployment."""
        group = None if rules is None else self._build_security_group(name, rules)
        subnet = network.Subnet(
            name,
            resource_group_name=self._scope.group,
            virtual_network_name=virtual_network.name,
            subnet_name=name,
            address_prefix=prefix,
            # This is Azure's default egress for machines without a gateway, through public addresses.
            default_outbound_access=default_outbound_access if group else None,
            network_security_group=network.NetworkSecurityGroupArgs(id=group.id) if group else None,
            nat_gateway=network.SubResourceArgs(id=nat_gateway) if nat_gateway else None,
            service_endpoints=service_endpoints,
            private_endpoint_network_policies=private_endpoint_network_policies,
            opts=pulumi.ResourceOptions.merge(
                self._scope.retention.create_serving_options(parent=self), pulumi.ResourceOptions(depends_on=depends_on)
            ),
        )
        self.subnet_ids[name] = subnet.id
        return subnet

    def _build_security_group(self, name: str, rules: list[network.SecurityRuleArgs]) -> network.NetworkSecurityGroup:
        return network.NetworkSecurityGroup(
            name,
            resource_group_name=self._scope.group,
            network_security_group_name=self._scope.build_name(name),
            location=self._scope.location,
            security_rules=[*rules, _build_deny_inbound_rule()],
            tags=self._scope.tags,
            opts=pulumi.ResourceOptions(parent=self),
        )


def _build_node_rules(ranges: ClusterNetwork) -> list[network.SecurityRuleArgs]:
    """Return the rules for traffic between nodes and pods; network policies restrict individual pods.

    With an overlay, traffic between nodes keeps the addresses of pods, which are not in the network's own range:
    https://learn.microsoft.com/azure/aks/concepts-network-azure-cni-overlay
    """
    nodes = calculate_nodes_range(ranges.cidr)
    return [
        _build_inbound_rule("nodes-to-nodes", 100, source=nodes, destination=nodes),
        _build_inbound_rule("nodes-to-pods", 110, source=nodes, destination=ranges.pod_cidr),
        _build_inbound_rule("pods-to-pods", 120, source=ranges.pod_cidr, destination=ranges.pod_cidr),
        _build_inbound_rule("pods-to-nodes", 130, source=ranges.pod_cidr, destination=nodes),
    ]


def _build_caller_rules(azure: Azure, rtp: network.PublicIPAddress) -> Iterator[network.SecurityRuleArgs]:
    """Yield the rules for the contract's flows to gateway, data plane and agents, and for load balancer probes.

    AKS's load balancers preserve the destination address of packets, which is the address of the load balancer.
    https://learn.microsoft.com/azure/aks/load-balancer-standard
    """
    cidr, agents = azure.network.cidr, azure.agents
    edge, nodes = calculate_infrastructure_ranges(cidr).edge, calculate_nodes_range(cidr)
    for number, flow in enumerate(CALLER_FLOWS + (AGENT_FLOWS if agents else ())):
        match flow.source, flow.destination:
            case Component.EDGE, Component.GATEWAY:
                to: pulumi.Input[str] = f"{calculate_gateway_address(cidr)}/32"
                yield _build_flow_rule(f"edge-to-gateway-{flow.port.number}", 200 + number, edge, to, flow.port)
            case Component.EDGE, Component.AGENT:
                yield _build_flow_rule(
                    "edge-to-agent", 200 + number, edge, f"{calculate_agent_address(cidr)}/32", flow.port
                )
            case Component.INTERNET, Component.VAD:
                to = rtp.ip_address.apply(str)
                yield _build_flow_rule("callers-to-rtp", 200 + number, "Internet", to, flow.port)
    for number, port in enumerate((GATEWAY_HEALTH, VAD_NODE_HEALTH, *((AGENT_NODE_HEALTH,) if agents else ()))):
        yield _build_flow_rule(f"load-balancer-to-{port.number}", 300 + number, "AzureLoadBalancer", nodes, port)


def _build_edge_rules(edge: str) -> list[network.SecurityRuleArgs]:
    """Return the rules for the callers' traffic, and for the management traffic of an application gateway.

    https://learn.microsoft.com/azure/application-gateway/configuration-infrastructure#network-security-groups
    """
    port = next(flow.port for flow in CALLER_FLOWS if flow.destination is Component.EDGE)
    return [
        _build_flow_rule("callers", 100, "Internet", edge, port),
        _build_inbound_rule("gateway-manager", 110, source="GatewayManager", destination="*", port="65200-65535"),
        _build_inbound_rule("load-balancer", 120, source="AzureLoadBalancer", destination="*"),
    ]


def _build_flow_rule(
    name: str, priority: int, source: str, destination: pulumi.Input[str], port: Port
) -> network.SecurityRuleArgs:
    return _build_inbound_rule(
        name,
        priority,
        source=source,
        destination=destination,
        port=str(port.number),
        protocol=network.SecurityRuleProtocol(port.protocol.capitalize()),
    )


def _build_inbound_rule(
    name: str,
    priority: int,
    *,
    source: str,
    destination: pulumi.Input[str],
    port: str = "*",
    protocol: network.SecurityRuleProtocol | None = None,
) -> network.SecurityRuleArgs:
    any_port = network.SecurityRuleProtocol.ASTERISK if port == "*" else network.SecurityRuleProtocol.TCP
    return network.SecurityRuleArgs(
        name=name,
        priority=priority,
        direction=network.SecurityRuleDirection.INBOUND,
        access=network.SecurityRuleAccess.ALLOW,
        protocol=protocol or any_port,
        source_address_prefix=source,
        source_port_range="*",
        destination_address_prefix=destination,
        destination_port_range=port,
    )


def _build_deny_inbound_rule() -> network.SecurityRuleArgs:
    """Return the rule that precedes Azure's default rules, which admit all peered networks on all ports."""
    return network.SecurityRuleArgs(
        name="nothing-else-in",
        priority=4096,
        direction=network.SecurityRuleDirection.INBOUND,
        access=network.SecurityRuleAccess.DENY,
        protocol=network.SecurityRuleProtocol.ASTERISK,
        source_address_prefix="*",
        source_port_range="*",
        destination_address_prefix="*",
        destination_port_range="*",
    )
