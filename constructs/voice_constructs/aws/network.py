"""The VPC and one security group per tier."""

from dataclasses import dataclass
from functools import cache

from aws_cdk import RemovalPolicy
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_logs as logs
from constructs import Construct

from voice_blueprint.aws.network import calculate_subnet_prefix_length
from voice_blueprint.contract.network import FLOWS, Flow, Port, Tier
from voice_blueprint.file.model.aws import Network
from voice_constructs.aws.acknowledge import acknowledge
from voice_constructs.aws.encryption import EncryptionKey
from voice_constructs.aws.endpoint_policies import (
    INTERFACE_SERVICES,
    create_own_buckets_statement,
    create_own_requests_statement,
    create_public_buckets_statement,
)
from voice_constructs.aws.logs import create_log_group


@dataclass(frozen=True)
class VoiceNetworkProps:
    """Properties of ``VoiceNetwork``.

    Attributes:
        zones: Availability zones by name, so that a synth does not query AWS.
        region: Region in the key policy of the flow logs.
        removal_policy: Removal policy of the flow logs and their key.
    """

    network: Network
    zones: tuple[str, ...]
    region: str
    removal_policy: RemovalPolicy


class VoiceNetwork(Construct):
    """A VPC with public, private and isolated subnets, endpoints, flow logs and the tiers' security groups.

    Attributes:
        vpc: The VPC.
        flow_log_group: Log group with the records of all flows, both accepted and rejected.
        security_groups: Security group of each tier, including the interface endpoints (``Tier.AWS``);
            ``voice_blueprint.contract.FLOWS`` defines the permitted traffic.
    """

    def __init__(self, scope: Construct, id_: str, *, props: VoiceNetworkProps) -> None:
        super().__init__(scope, id_)
        self.vpc = self._build_vpc(props)
        self.flow_log_group = self._build_flow_logs(props)
        self.security_groups = self._build_security_groups()
        self._build_endpoints(props)

    @property
    def nat_gateways(self) -> tuple[str, ...]:
        """Ids of the NAT gateways."""
        children = [subnet.node.try_find_child("NATGateway") for subnet in self.vpc.public_subnets]
        return tuple(child.ref for child in children if isinstance(child, ec2.CfnNatGateway))

    def select_private_subnets(self, zones: tuple[str, ...] | None = None) -> ec2.SubnetSelection:
        """Select the private subnets, optionally only those in some zones."""
        return ec2.SubnetSelection(
            subnet_type=ec2.SubnetType.PRIVATE_WITH_EGRESS,
            availability_zones=list(zones) if zones else None,
        )

    def _build_vpc(self, props: VoiceNetworkProps) -> ec2.Vpc:
        mask = calculate_subnet_prefix_length(props.network.cidr, len(props.zones))
        tiers = {
            "public": ec2.SubnetType.PUBLIC,
            "private": ec2.SubnetType.PRIVATE_WITH_EGRESS,
            "isolated": ec2.SubnetType.PRIVATE_ISOLATED,
        }
        return ec2.Vpc(
            self,
            "Vpc",
            ip_addresses=ec2.IpAddresses.cidr(props.network.cidr),
            availability_zones=list(props.zones),
            nat_gateways=props.network.nat_gateways,
            subnet_configuration=[
                ec2.SubnetConfiguration(
                    name=name,
                    subnet_type=subnet_type,
                    cidr_mask=mask,
                    map_public_ip_on_launch=False if subnet_type is ec2.SubnetType.PUBLIC else None,
                )
                for name, subnet_type in tiers.items()
            ],
            # Emptying the default security group requires a Lambda-backed custom resource, and nothing uses the group.
            restrict_default_security_group=False,
        )

    def _build_flow_logs(self, props: VoiceNetworkProps) -> logs.LogGroup:
        key = EncryptionKey(self, "LogKey", purpose="VPC flow logs", removal_policy=props.removal_policy)
        key.allow_logs(props.region)
        group = create_log_group(
            self,
            "FlowLogs",
            key=key,
            retention_days=props.network.flow_log_retention_days,
            removal_policy=props.removal_policy,
        )
        self.vpc.add_flow_log("FlowLog", destination=ec2.FlowLogDestination.to_cloud_watch_logs(group))
        return group

    def _build_security_groups(self) -> dict[Tier, ec2.SecurityGroup]:
        groups: dict[Tier, ec2.SecurityGroup] = {
            tier: ec2.SecurityGroup(
                self,
                "".join(word.capitalize() for word in tier.split("-")),
                vpc=self.vpc,
                description=f"voice-serve {tier} tier",
                allow_all_outbound=False,
            )
            for tier in Tier
            if tier is not Tier.INTERNET
        }
        for flow in FLOWS:
            _allow_flow(groups, flow)
        # These are the only public entry points.
        for tier in (Tier.PUBLIC_LOAD_BALANCER, Tier.AGENT_LOAD_BALANCER):
            acknowledge(groups[tier], "AwsSolutions-EC23", "Callers connect to the public listeners")
        return groups

    def _build_endpoints(self, props: VoiceNetworkProps) -> None:
        buckets = self.vpc.add_gateway_endpoint("S3", service=ec2.GatewayVpcEndpointAwsService.S3)
        buckets.add_to_policy(create_own_buckets_statement())
        buckets.add_to_policy(create_public_buckets_statement(props.region))
        for service in props.network.interface_endpoints:
            endpoint = self.vpc.add_interface_endpoint(
                "Endpoint" + "".join(part.capitalize() for part in service.replace("-", ".").split(".")),
                service=ec2.InterfaceVpcEndpointAwsService(service),
                subnets=self.select_private_subnets(),
                security_groups=[self.security_groups[Tier.AWS]],
                open=False,
            )
            if service in INTERFACE_SERVICES:
                endpoint.add_to_policy(create_own_requests_statement())


@cache
def _to_ec2_port(port: Port) -> ec2.Port:
    return ec2.Port.tcp(port.number) if port.protocol == "tcp" else ec2.Port.udp(port.number)


def _allow_flow(groups: dict[Tier, ec2.SecurityGroup], flow: Flow) -> None:
    port = _to_ec2_port(flow.port)
    if flow.source is Tier.INTERNET:
        groups[flow.destination].add_ingress_rule(ec2.Peer.any_ipv4(), port, flow.port.purpose)
        return
    groups[flow.destination].add_ingress_rule(groups[flow.source], port, flow.port.purpose)
    # AWS APIs without an interface endpoint, and S3 through its gateway endpoint, have public addresses.
    peer = ec2.Peer.any_ipv4() if flow.destination is Tier.AWS else groups[flow.destination]
    groups[flow.source].add_egress_rule(peer, port, flow.port.purpose)
