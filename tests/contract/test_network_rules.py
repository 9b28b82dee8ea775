"""The rules on the network detect violations, each caused by a manual change."""

from collections.abc import Callable, Mapping

import pytest

from tests.contract import network_rules
from tests.contract.templates import Template, properties_by_type
from voice_blueprint.contract.network import FLOWS, Flow, Port, Tier

Mutable = dict[str, Template]


def test_a_port_open_to_the_internet_is_reported(templates: Mutable) -> None:
    groups = properties_by_type(templates, "EC2::SecurityGroup")
    front = next(group for group in groups if "public-load-balancer" in group["GroupDescription"])
    front["SecurityGroupIngress"].append({"CidrIp": "0.0.0.0/0", "FromPort": 22, "ToPort": 22, "IpProtocol": "tcp"})
    (problem,) = network_rules.violations(templates, FLOWS)
    assert problem == "no flow of the contract asks for: ingress 0.0.0.0/0 -> public-load-balancer tcp 22-22"


@pytest.mark.parametrize("peer", [{"CidrIp": "0.0.0.0/0"}, {"CidrIpv6": "::/0"}, {"CidrIp": "10.0.0.0/8"}])
def test_an_internal_tier_open_to_the_internet_is_reported(peer: Mapping[str, str], templates: Mutable) -> None:
    groups = properties_by_type(templates, "EC2::SecurityGroup")
    state = next(group for group in groups if "state" in group["GroupDescription"])
    state["SecurityGroupIngress"] = [{**peer, "FromPort": 6379, "ToPort": 6379, "IpProtocol": "tcp"}]
    assert len(network_rules.violations(templates, FLOWS)) == 1


def test_a_widened_port_range_is_reported(templates: Mutable) -> None:
    rule = next(rule for rule in properties_by_type(templates, "EC2::SecurityGroupIngress") if rule["FromPort"] == 5006)
    rule["ToPort"] = 5010
    assert len(network_rules.violations(templates, FLOWS)) == 2  # an additional rule and a missing rule


def test_unrestricted_egress_is_reported(templates: Mutable) -> None:
    groups = properties_by_type(templates, "EC2::SecurityGroup")
    vad = next(group for group in groups if group["GroupDescription"] == "voice-serve vad tier")
    vad["SecurityGroupEgress"] = [{"CidrIp": "0.0.0.0/0", "IpProtocol": "-1"}]
    assert len(network_rules.violations(templates, FLOWS)) == 2


def test_a_flow_without_a_rule_is_reported(templates: Mutable) -> None:
    flows = (*FLOWS, Flow(Tier.GATEWAY, Tier.ASR, Port(9000, "tcp", "made up")))
    assert len(network_rules.violations(templates, flows)) == 2


@pytest.mark.parametrize("flow", FLOWS, ids=lambda flow: f"{flow.source}-{flow.destination}-{flow.port.number}")
def test_a_rule_without_a_flow_is_reported(flow: Flow, templates: Mutable) -> None:
    fewer = [other for other in FLOWS if other != flow]
    assert network_rules.violations(templates, fewer)


def test_a_host_with_the_security_group_of_another_tier_is_reported(templates: Mutable) -> None:
    vad, asr = (
        properties_by_type({tier: templates[tier]}, "EC2::LaunchTemplate")[0]["LaunchTemplateData"][
            "NetworkInterfaces"
        ][0]
        for tier in ("vad", "asr-inf2")
    )
    vad["Groups"] = asr["Groups"]
    (problem,) = network_rules.violations(templates, FLOWS)
    assert "is of the tier vad and wears the security groups ['asr']" in problem


def test_an_additional_listener_is_reported(templates: Mutable) -> None:
    listener = next(
        each for each in properties_by_type(templates, "ElasticLoadBalancingV2::Listener") if each["Port"] == 443
    )
    listener["Port"] = 8443
    (problem,) = network_rules.violations(templates, FLOWS)
    assert "listens on port 8443" in problem


@pytest.mark.parametrize(
    "make_public",
    [
        lambda t: properties_by_type(t, "EC2::LaunchTemplate")[0]["LaunchTemplateData"]["NetworkInterfaces"][0].update(
            AssociatePublicIpAddress=True
        ),
        lambda t: properties_by_type(t, "EC2::Subnet")[0].update(MapPublicIpOnLaunch=True),
        lambda t: properties_by_type(t, "ECS::Service")[0]["NetworkConfiguration"]["AwsvpcConfiguration"].update(
            AssignPublicIp="ENABLED"
        ),
        lambda t: properties_by_type(t, "SNS::TopicPolicy")[0]["PolicyDocument"]["Statement"].append(
            {"Effect": "Allow", "Principal": "*", "Action": "sns:Publish", "Resource": "*"}
        ),
    ],
    ids=["host", "subnet", "task", "policy"],
)
def test_an_additional_public_resource_is_reported(make_public: Callable[[Mutable], None], templates: Mutable) -> None:
    make_public(templates)
    assert len(network_rules.violations(templates, FLOWS)) == 1
