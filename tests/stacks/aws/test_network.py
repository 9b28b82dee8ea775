"""The VPC and the tiers' security groups."""

from pathlib import Path

import pytest

from tests.nonempty import nonempty
from tests.synthesized import Stack, edited_sandbox, shipped
from voice_blueprint.contract.network import FLOWS, Tier


@pytest.fixture(scope="module")
def network() -> Stack:
    return shipped("production-us-east-1")["network"]


def test_each_zone_has_a_subnet_of_every_kind_and_its_own_nat(network: Stack) -> None:
    zones: dict[str, set[str]] = {}
    for subnet in network.properties("EC2::Subnet"):
        kind = next(tag["Value"] for tag in subnet["Tags"] if tag["Key"] == "aws-cdk:subnet-name")
        zones.setdefault(subnet["AvailabilityZone"], set()).add(kind)
    assert zones == {f"us-east-1{letter}": {"public", "private", "isolated"} for letter in "abc"}
    assert len(network.of_type("EC2::NatGateway")) == 3


def test_no_subnet_assigns_public_addresses(network: Stack) -> None:
    assert not any(subnet.get("MapPublicIpOnLaunch") for subnet in network.properties("EC2::Subnet"))


def test_isolated_subnets_have_no_route_to_the_internet(network: Stack) -> None:
    routes = [route["RouteTableId"]["Ref"] for route in network.properties("EC2::Route")]
    isolated = [name for name in network.of_type("EC2::RouteTable") if "isolated" in name]
    assert isolated
    assert not set(isolated) & set(routes)


def test_flow_logs_are_encrypted_with_the_configured_retention(network: Stack) -> None:
    group = network.only("Logs::LogGroup")
    assert group["RetentionInDays"] == 90
    assert group["KmsKeyId"]
    assert network.only("EC2::FlowLog")["TrafficType"] == "ALL"


def test_only_the_public_load_balancers_are_open_to_the_internet(network: Stack) -> None:
    open_groups = [
        group["GroupDescription"]
        for group in network.properties("EC2::SecurityGroup")
        if group.get("SecurityGroupIngress")
    ]
    doors = [Tier.PUBLIC_LOAD_BALANCER, Tier.AGENT_LOAD_BALANCER]
    assert open_groups == [f"voice-serve {tier} tier" for tier in doors]
    assert not any("CidrIp" in rule for rule in network.properties("EC2::SecurityGroupIngress"))


def test_every_flow_between_tiers_has_an_ingress_and_an_egress_rule(network: Stack) -> None:
    between = [flow for flow in FLOWS if flow.source is not Tier.INTERNET]
    assert len(network.of_type("EC2::SecurityGroupIngress")) == len(between)
    out = [flow for flow in between if flow.destination is not Tier.AWS]
    assert len(network.of_type("EC2::SecurityGroupEgress")) == len(out)


def test_no_security_group_has_unrestricted_egress(network: Stack) -> None:
    for group in nonempty(network.properties("EC2::SecurityGroup")):
        for rule in group.get("SecurityGroupEgress", []):
            # CDK's placeholder for no egress.
            assert rule["IpProtocol"] != "-1"
            assert (rule["CidrIp"], rule["FromPort"]) in {("255.255.255.255/32", 252), ("0.0.0.0/0", 443)}


def test_interface_endpoints_only_accept_https_from_host_tiers(network: Stack) -> None:
    endpoints = [e for e in network.properties("EC2::VPCEndpoint") if e["VpcEndpointType"] == "Interface"]
    assert len(endpoints) == 4
    (group,) = {str(endpoint["SecurityGroupIds"]) for endpoint in endpoints}
    assert "NetworkAws" in group
    assert all(endpoint["PrivateDnsEnabled"] for endpoint in endpoints)


def test_nat_gateways_follow_the_file(tmp_path: Path) -> None:
    every = ["autoscaling", "ec2", "ecr.api", "ecr.dkr", "elasticloadbalancing", "logs", "monitoring"]
    every += ["secretsmanager", "ssm", "ssmmessages"]
    edits = {"aws.network.nat_gateways": 0, "aws.network.interface_endpoints": every}
    network = edited_sandbox(edits, tmp_path)["network"]
    assert not network.of_type("EC2::NatGateway")


def test_endpoints_only_allow_requests_of_the_account(network: Stack) -> None:
    endpoints = network.properties("EC2::VPCEndpoint")
    account = {"Ref": "AWS::AccountId"}
    assert {endpoint["VpcEndpointType"] for endpoint in endpoints} == {"Gateway", "Interface"}
    for endpoint in endpoints:
        own, *others = endpoint["PolicyDocument"]["Statement"]
        assert own["Condition"]["StringEquals"]["aws:PrincipalAccount"] == account
        if endpoint["VpcEndpointType"] == "Gateway":
            assert own["Condition"]["StringEquals"]["aws:ResourceAccount"] == account
            (public,) = others
            assert public["Action"] == "s3:GetObject"
            buckets = [str(resource) for resource in public["Resource"]]
            assert "starport-layer-bucket/*" in buckets[0]
            # Without them, the build of a host image fails at its first download.
            for bucket in ("toe", "managed-resources"):
                assert any(f":s3:::ec2imagebuilder-{bucket}-us-east-1-prod/*" in found for found in buckets), bucket
        else:
            assert not others
