"""Rule that open ports match the contract, and that only the two listeners are open to the internet."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from tests.contract.templates import Resource, Templates, origin, resources_by_type
from voice_blueprint.contract.network import Flow, Tier

NO_ADDRESS = "255.255.255.255/32"
"""CDK's representation of a group without egress: CloudFormation takes an empty list for "everything"."""


class Rule(NamedTuple):
    """One permission of a security group, as seen from that group."""

    direction: str
    source: str
    destination: str
    protocol: str
    first_port: int
    last_port: int


def violations(templates: Templates, flows: Collection[Flow]) -> list[str]:
    """Return rules without a flow, flows without rules, and other public access."""
    tiers = _tiers(templates)
    present = set(_rules(templates, tiers))
    wanted = {rule for flow in flows for rule in _rules_for_flow(flow)}
    return [
        *(f"no flow of the contract asks for: {_format_rule(rule)}" for rule in sorted(present - wanted)),
        *(f"the contract has a flow that nothing allows: {_format_rule(rule)}" for rule in sorted(wanted - present)),
        *_foreign_users(templates, tiers),
        *_unexpected_public_resources(templates, flows),
    ]


def _format_rule(rule: Rule) -> str:
    return f"{rule.direction} {rule.source} -> {rule.destination} {rule.protocol} {rule.first_port}-{rule.last_port}"


def _rules_for_flow(flow: Flow) -> Iterator[Rule]:
    port = (flow.port.protocol, flow.port.number, flow.port.number)
    source, destination = flow.source.value, flow.destination.value
    if flow.source is Tier.INTERNET:
        yield Rule("ingress", "0.0.0.0/0", destination, *port)
        return
    yield Rule("ingress", source, destination, *port)
    # AWS' APIs and S3 have public addresses if the VPC has no endpoint for them.
    yield Rule("egress", source, "0.0.0.0/0" if flow.destination is Tier.AWS else destination, *port)


def _tiers(templates: Templates) -> dict[tuple[str, str], str]:
    """Return the tier of each security group."""
    return {
        (group.tier, group.logical_id): group.properties["GroupDescription"]
        .removeprefix("voice-serve ")
        .removesuffix(" tier")
        for group in resources_by_type(templates, "EC2::SecurityGroup")
    }


def _rules(templates: Templates, tiers: Mapping[tuple[str, str], str]) -> Iterator[Rule]:
    def tier_for(stack: str, value: object) -> str:
        found = origin(templates, stack, value)
        return tiers.get(found, str(found)) if found else str(value)

    def rule(direction: str, stack: str, owner: str, entry: Mapping[str, Any]) -> Rule | None:
        group = entry.get("SourceSecurityGroupId") or entry.get("DestinationSecurityGroupId")
        cidr = entry.get("CidrIp") or entry.get("CidrIpv6")
        if cidr == NO_ADDRESS:
            return None
        other = tier_for(stack, group) if group else str(cidr or "an unknown peer")
        ends = (other, owner) if direction == "ingress" else (owner, other)
        ports = int(entry.get("FromPort", 0)), int(entry.get("ToPort", 65535))
        return Rule(direction, *ends, str(entry["IpProtocol"]), *ports)

    for direction in ("ingress", "egress"):
        key = f"SecurityGroup{direction.capitalize()}"
        found = [
            rule(direction, group.tier, tiers[group.tier, group.logical_id], entry)
            for group in resources_by_type(templates, "EC2::SecurityGroup")
            for entry in group.properties.get(key, [])
        ]
        found += [
            rule(direction, alone.tier, tier_for(alone.tier, alone.properties["GroupId"]), alone.properties)
            for alone in resources_by_type(templates, f"EC2::{key}")
        ]
        yield from (each for each in found if each is not None)


def _foreign_users(templates: Templates, tiers: Mapping[tuple[str, str], str]) -> Iterator[str]:
    """Yield other resources that use a tier's security group or none."""
    for resource, groups, tier in _groups_in_use(templates):
        worn = {tiers.get(found) if (found := origin(templates, resource.tier, group)) else None for group in groups}
        if worn != {tier.value}:
            yield f"{resource} is of the tier {tier} and wears the security groups {sorted(map(str, worn))}"


def _groups_in_use(templates: Templates) -> Iterator[tuple[Resource, list[Any], Tier]]:
    for template in resources_by_type(templates, "EC2::LaunchTemplate"):
        for interface in template.properties["LaunchTemplateData"]["NetworkInterfaces"]:
            yield template, interface.get("Groups", []), Tier(template.tier.partition("-")[0])
    for service in resources_by_type(templates, "ECS::Service"):
        network = service.properties["NetworkConfiguration"]["AwsvpcConfiguration"]
        yield service, network.get("SecurityGroups", []), Tier.AGENT if service.tier == "agents" else Tier.GATEWAY
    for group in resources_by_type(templates, "ElastiCache::ReplicationGroup"):
        yield group, group.properties.get("SecurityGroupIds", []), Tier.STATE
    for balancer in resources_by_type(templates, "ElasticLoadBalancingV2::LoadBalancer"):
        public = balancer.properties["Scheme"] == "internet-facing"
        door = Tier.AGENT_LOAD_BALANCER if balancer.tier == "agents" else Tier.PUBLIC_LOAD_BALANCER
        tier = door if public else Tier.API_LOAD_BALANCER
        yield balancer, balancer.properties.get("SecurityGroups", []), tier
    for endpoint in resources_by_type(templates, "EC2::VPCEndpoint"):
        if endpoint.properties["VpcEndpointType"] == "Interface":
            yield endpoint, endpoint.properties.get("SecurityGroupIds", []), Tier.AWS


def _unexpected_public_resources(templates: Templates, flows: Collection[Flow]) -> Iterator[str]:
    public = {flow.port.number for flow in flows if flow.source is Tier.INTERNET}
    ports = {flow.port.number for flow in flows}
    balancers = {
        (each.tier, each.logical_id): each.properties["Scheme"] == "internet-facing"
        for each in resources_by_type(templates, "ElasticLoadBalancingV2::LoadBalancer")
    }
    for listener in resources_by_type(templates, "ElasticLoadBalancingV2::Listener"):
        balancer = origin(templates, listener.tier, listener.properties["LoadBalancerArn"])
        allowed = public if balancer is None or balancers[balancer] else ports
        if listener.properties["Port"] not in allowed:
            yield f"{listener} listens on port {listener.properties['Port']}, which the contract does not know"
    for template in resources_by_type(templates, "EC2::LaunchTemplate"):
        for interface in template.properties["LaunchTemplateData"]["NetworkInterfaces"]:
            if interface.get("AssociatePublicIpAddress") is not False:
                yield f"{template}: hosts get a public address"
    for subnet in resources_by_type(templates, "EC2::Subnet"):
        if subnet.properties.get("MapPublicIpOnLaunch"):
            yield f"{subnet} gives public addresses"
    for service in resources_by_type(templates, "ECS::Service"):
        if service.properties["NetworkConfiguration"]["AwsvpcConfiguration"].get("AssignPublicIp") != "DISABLED":
            yield f"{service}: tasks get a public address"
    yield from _public_policies(templates)


def _public_policies(templates: Templates) -> Iterator[str]:
    """Yield resource policies that allow any principal without a condition."""
    for tier, template in templates.items():
        for logical_id, resource in template["Resources"].items():
            properties = resource.get("Properties", {})
            for name in ("PolicyDocument", "KeyPolicy", "AssumeRolePolicyDocument", "RepositoryPolicyText"):
                for statement in properties.get(name, {}).get("Statement", []):
                    anybody = statement.get("Principal") in ("*", {"AWS": "*"})
                    # An endpoint policy grants no access by itself, and is restricted by conditions or resources.
                    is_narrow = resource["Type"] == "AWS::EC2::VPCEndpoint" and statement["Resource"] != "*"
                    if anybody and statement["Effect"] == "Allow" and not statement.get("Condition") and not is_narrow:
                        yield f"{tier}/{logical_id}: its policy lets anybody do {statement['Action']}"
