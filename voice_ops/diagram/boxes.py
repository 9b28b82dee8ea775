"""Converts the resources in the templates to the boxes in a diagram."""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from voice_blueprint import catalog
from voice_blueprint.contract.environment import JWT_ISSUER
from voice_blueprint.hosts import PLACEHOLDER_DIGEST
from voice_ops.diagram.graph import Node
from voice_ops.diagram.templates import Resource, ResourceKey, TemplateSet

ZERO_SIZE_MARK = "*"
"""Mark for a fleet or service that is kept at 0 hosts or tasks because its image has no digest."""


@dataclass(frozen=True)
class Box:
    """A box, and the resources and security groups that it represents."""

    node: Node
    resources: frozenset[ResourceKey]
    security_groups: frozenset[ResourceKey] = frozenset()


def create_boxes(templates: TemplateSet) -> list[Box]:
    """Return the boxes for all resources in the deployment, without the callers."""
    return [
        *_create_api_boxes(templates),
        *_create_load_balancer_boxes(templates),
        *_create_service_boxes(templates),
        *_create_fleet_boxes(templates),
        *_create_store_boxes(templates),
        *_create_aws_api_boxes(templates),
        *_create_registry_boxes(templates),
        *_create_observability_boxes(templates),
    ]


def format_route(templates: TemplateSet, method: Resource) -> str:
    """Return the route of a REST API's method, such as ``POST /v1/sessions``."""
    resources = templates.collect_properties_by_key("ApiGateway::Resource")
    parts: list[str] = []
    at = templates.resolve_reference(method.tier, method.properties["ResourceId"])
    while at in resources:
        parts.insert(0, resources[at]["PathPart"])
        at = templates.resolve_reference(at[0], resources[at]["ParentId"])
    streams = method.properties["Integration"].get("ResponseTransferMode") == "STREAM"
    return f"{method.properties['HttpMethod']} /{'/'.join(parts)}" + (" (streams)" if streams else "")


def list_api_methods(templates: TemplateSet, api: ResourceKey) -> list[Resource]:
    result = templates.iter_resources_by_type("ApiGateway::Method")
    return [
        method for method in result if templates.resolve_reference(method.tier, method.properties["RestApiId"]) == api
    ]


def _create_api_boxes(templates: TemplateSet) -> Iterator[Box]:
    for api in templates.iter_resources_by_type("ApiGateway::RestApi"):
        calls = list_api_methods(templates, api.key)
        hosts = [
            templates.collect_properties_by_key("ApiGateway::DomainName")[domain]["DomainName"]
            for mapping in templates.iter_resources_by_type("ApiGateway::BasePathMapping")
            if templates.resolve_reference(mapping.tier, mapping.properties["RestApiId"]) == api.key
            and (domain := templates.resolve_reference(mapping.tier, mapping.properties["DomainName"]))
        ]
        edge_protections = [
            "WAF"
            for association in templates.iter_resources_by_type("WAFv2::WebACLAssociation", api.tier)
            if json.dumps({"Ref": api.key[1]}) in json.dumps(association.properties["ResourceArn"])
        ]
        lines = (
            *hosts,
            *(format_route(templates, call) for call in calls),
            f"authenticates by: {', '.join([_describe_authentication(templates, calls), *edge_protections])}",
        )
        yield Box(Node("session-api", api.tier, "Session API (API Gateway)", lines), frozenset({api.key}))


def _describe_authentication(templates: TemplateSet, calls: list[Resource]) -> str:
    """Return a description of how callers authenticate, either at API Gateway or at the gateway service."""
    if any(call.properties.get("ApiKeyRequired") for call in calls):
        return "API key"
    # The routes of a session do not count, since they require the session's token, which the gateway verifies.
    if kinds := {call.properties.get("AuthorizationType", "NONE") for call in calls} - {"NONE"}:
        return ", ".join(sorted(kind.removeprefix("AWS_") for kind in kinds))
    issuers = [
        variable["Value"]
        for task in templates.collect_properties_by_key("ECS::TaskDefinition").values()
        for container in task["ContainerDefinitions"]
        for variable in container.get("Environment", [])
        if variable["Name"] == JWT_ISSUER.name
    ]
    return "JWT, which the gateway checks" if any(issuers) else "nothing"


def _create_load_balancer_boxes(templates: TemplateSet) -> Iterator[Box]:
    for balancer in templates.iter_resources_by_type("ElasticLoadBalancingV2::LoadBalancer"):
        public = balancer.properties["Scheme"] == "internet-facing"
        listeners = [
            f"{listener.properties['Protocol']} {listener.properties['Port']}"
            for listener in templates.iter_resources_by_type("ElasticLoadBalancingV2::Listener")
            if templates.resolve_reference(listener.tier, listener.properties["LoadBalancerArn"]) == balancer.key
        ]
        hosts = [
            record.properties["Name"]
            for record in templates.iter_resources_by_type("Route53::RecordSet")
            if templates.resolve_reference(record.tier, record.properties.get("AliasTarget", {}).get("DNSName"))
            == balancer.key
        ]
        yield Box(
            Node(
                ("agent-" if balancer.tier == "agents" else "public-" if public else "api-") + "load-balancer",
                balancer.tier,
                "Public load balancer (NLB)" if public else "Internal load balancer (NLB)",
                (*hosts, f"listens on {', '.join(listeners)}"),
            ),
            frozenset({balancer.key}),
            templates.resolve_references(balancer.tier, balancer.properties.get("SecurityGroups")),
        )


def _create_service_boxes(templates: TemplateSet) -> Iterator[Box]:
    tasks = templates.collect_properties_by_key("ECS::TaskDefinition")
    for service in templates.iter_resources_by_type("ECS::Service"):
        task = tasks.get(
            templates.resolve_reference(service.tier, service.properties["TaskDefinition"]) or service.key, {}
        )
        bounds = [
            f"{target.properties['MinCapacity']}-{target.properties['MaxCapacity']} tasks"
            for target in templates.iter_resources_by_type("ApplicationAutoScaling::ScalableTarget", service.tier)
            if json.dumps({"Fn::GetAtt": [service.key[1], "Name"]}) in json.dumps(target.properties["ResourceId"])
        ]
        network = service.properties["NetworkConfiguration"]["AwsvpcConfiguration"]
        architecture = task.get("RuntimePlatform", {}).get("CpuArchitecture", "x86_64").lower()
        size = f"{int(task.get('Cpu', 0)) / 1024:g} vCPU, {int(task.get('Memory', 0)) / 1024:g} GiB"
        lines = (f"Fargate {architecture}, {size}", *(_mark_zero_size(each, task) for each in bounds))
        groups = templates.resolve_references(service.tier, network.get("SecurityGroups"))
        node, title = ("agents", "Agents") if service.tier == "agents" else ("gateway", "Gateway service")
        yield Box(Node(node, service.tier, title, lines), frozenset({service.key}), groups)


def _mark_zero_size(bounds: str, properties: Mapping[str, Any]) -> str:
    """Return the size, marked if the launch template or task definition refers to an image without a digest."""
    return f"{bounds} {ZERO_SIZE_MARK}" if PLACEHOLDER_DIGEST in json.dumps(properties) else bounds


def _create_fleet_boxes(templates: TemplateSet) -> Iterator[Box]:
    """Yield a box for each fleet. Groups that differ only in their zone belong to one fleet."""
    launches = templates.collect_properties_by_key("EC2::LaunchTemplate")
    fleets: defaultdict[tuple[str, ...], list[Resource]] = defaultdict(list)
    for group in templates.iter_resources_by_type("AutoScaling::AutoScalingGroup"):
        is_one_zone = len(group.properties["VPCZoneIdentifier"]) == 1
        kind = _find_launch_template_data(templates, launches, group)["InstanceType"]
        size = (group.properties["MinSize"], group.properties["MaxSize"])
        fleets[group.tier, kind, *size, "" if is_one_zone else group.key[1]].append(group)
    for (tier, kind, low, high, _), groups in fleets.items():
        launch = _find_launch_template_data(templates, launches, groups[0])
        name = _find_common_words([_get_group_name(group) for group in groups])
        row = catalog.instance_types().get(kind)
        chip = row.accelerator if row else None
        each = "hosts in each zone" if len(groups) > 1 else "hosts"
        lines = (
            *((f"{chip.count} x {chip.model}",) if chip else ()),
            _mark_zero_size(f"{low}-{high} {each}", launch),
        )
        title = f"{name}: {kind}" + (f" x {len(groups)} zones" if len(groups) > 1 else "")
        interfaces = launch.get("NetworkInterfaces", [])
        group_keys = [templates.resolve_references(tier, interface.get("Groups")) for interface in interfaces]
        # A fleet's own stack, such as asr-inf2, is part of its tier.
        node = Node(name, tier.partition("-")[0], title, lines)
        yield Box(node, frozenset(group.key for group in groups), frozenset().union(*group_keys))


def _find_launch_template_data(
    templates: TemplateSet, launches: Mapping[ResourceKey, Mapping[str, Any]], group: Resource
) -> Mapping[str, Any]:
    origin = templates.resolve_reference(group.tier, group.properties["LaunchTemplate"]["LaunchTemplateId"])
    data: Mapping[str, Any] = launches[origin or group.key]["LaunchTemplateData"]
    return data


def _find_common_words(names: list[str]) -> str:
    """Return the words that names have in common, such as ``vad`` for ``vad-a`` and ``vad-b``."""
    words = zip(*(name.split("-") for name in names), strict=False)
    return "-".join(words_at[0] for words_at in words if len(set(words_at)) == 1)


def _get_group_name(group: Resource) -> str:
    tags = {tag["Key"]: tag["Value"] for tag in group.properties.get("Tags", [])}
    name: str = group.properties["AutoScalingGroupName"]
    return name.removeprefix(f"{tags.get('voice-serve:deployment', '')}-")


def _create_store_boxes(templates: TemplateSet) -> Iterator[Box]:
    for group in templates.iter_resources_by_type("ElastiCache::ReplicationGroup"):
        desired = group.properties
        nodes = desired["NumNodeGroups"] * (desired["ReplicasPerNodeGroup"] + 1)
        lines = (
            f"{nodes} x {desired['CacheNodeType']}" + (", several zones" if desired.get("MultiAZEnabled") else ""),
            "TLS, a user per tier",
            "sessions, hosts, transcripts",
        )
        title = f"{desired['Engine'].capitalize()} {desired['EngineVersion']} (ElastiCache)"
        groups = templates.resolve_references(group.tier, desired.get("SecurityGroupIds"))
        yield Box(Node("valkey", group.tier, title, lines), frozenset({group.key}), groups)


def _create_aws_api_boxes(templates: TemplateSet) -> Iterator[Box]:
    endpoints = [
        e
        for e in templates.iter_resources_by_type("EC2::VPCEndpoint")
        if e.properties["VpcEndpointType"] == "Interface"
    ]
    gateways = list(templates.iter_resources_by_type("EC2::NatGateway"))
    if not endpoints and not gateways:
        return
    services = [endpoint.properties["ServiceName"].split(".", 3)[3] for endpoint in endpoints]
    lines = (
        *((f"VPC endpoints: {', '.join(services)}",) if services else ()),
        f"{len(gateways)} NAT gateway(s) for the rest",
    )
    group_keys = [
        templates.resolve_references(endpoint.tier, endpoint.properties.get("SecurityGroupIds"))
        for endpoint in endpoints
    ]
    keys = frozenset(resource.key for resource in (*endpoints, *gateways))
    tier = (endpoints or gateways)[0].tier
    yield Box(Node("aws-apis", tier, "AWS APIs", lines), keys, frozenset().union(*group_keys))


def _create_registry_boxes(templates: TemplateSet) -> Iterator[Box]:
    results = list(templates.iter_resources_by_type("ECR::Repository"))
    if results:
        names = [each.properties["RepositoryName"].rpartition("/")[2] for each in results]
        pairs = [", ".join(names[at : at + 2]) for at in range(0, len(names), 2)]
        keys = frozenset(each.key for each in results)
        yield Box(Node("registry", results[0].tier, f"ECR: {len(results)} image repositories", tuple(pairs)), keys)


def _create_observability_boxes(templates: TemplateSet) -> Iterator[Box]:
    for topic in templates.iter_resources_by_type("SNS::Topic"):
        tier = topic.tier
        alarms = [
            *templates.iter_resources_by_type("CloudWatch::Alarm", tier),
            *templates.iter_resources_by_type("CloudWatch::CompositeAlarm", tier),
        ]
        dashboards = list(templates.iter_resources_by_type("CloudWatch::Dashboard", tier))
        budgets = [
            budget.properties["Budget"]["BudgetLimit"]
            for budget in templates.iter_resources_by_type("Budgets::Budget", tier)
        ]
        channels = sorted(
            {each.properties["Protocol"] for each in templates.iter_resources_by_type("SNS::Subscription", tier)}
        )
        lines = (
            f"{len(alarms)} alarms, {len(dashboards)} dashboards",
            *(f"budget {float(limit['Amount']):,.0f} {limit['Unit']} a month" for limit in budgets),
            f"tells operators by SNS{''.join(f', {channel}' for channel in channels)}",
        )
        yield Box(Node("observability", tier, "CloudWatch", lines), frozenset({topic.key}))
