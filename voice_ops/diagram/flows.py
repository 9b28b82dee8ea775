"""Converts listeners, routes and security group rules to edges."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from voice_blueprint.contract.network import AGENT_HTTP, CHUNK, GATEWAY_HTTP, GATEWAY_MEDIA, PUBLIC_TLS, RTP, VALKEY
from voice_ops.diagram.boxes import Box
from voice_ops.diagram.graph import Edge, Node, TrafficType
from voice_ops.diagram.templates import ResourceKey, TemplateSet

BROWSER = Node("browser", None, "Browser", ("WebSocket audio",))
NATIVE_CLIENT = Node("native-client", None, "Native client", ("RTP or SRTP audio",))

_TRAFFIC_TYPE_BY_PURPOSE = {
    PUBLIC_TLS.purpose: TrafficType.AUDIO,
    RTP.purpose: TrafficType.AUDIO,
    GATEWAY_MEDIA.purpose: TrafficType.AUDIO,
    AGENT_HTTP.purpose: TrafficType.AUDIO,
    CHUNK.purpose: TrafficType.AUDIO,
    GATEWAY_HTTP.purpose: TrafficType.CONTROL,
}
"""Path by the description of a security group rule. The description is the purpose of the port in the contract."""
_API_PURPOSE = "Session API, opens, follows and closes sessions"
_LOAD_BALANCER_TYPE = "ElasticLoadBalancingV2::LoadBalancer"


@dataclass(frozen=True)
class Flow:
    """Traffic from one box to a port of another."""

    source: str
    target: str
    protocol: str
    port: int
    purpose: str
    traffic_type: TrafficType

    @property
    def label(self) -> str:
        """Protocol, port and abbreviated purpose."""
        return f"{self.protocol.upper()} {self.port} {re.split(r'[,(]| from | over ', self.purpose)[0].strip()}"


def create_edges(templates: TemplateSet, box_list: list[Box]) -> list[Edge]:
    """Return one edge for each pair of connected boxes."""
    result = dict.fromkeys(
        [
            *_find_permitted_flows(templates, box_list),
            *_find_vpc_link_flows(templates, box_list),
            *_create_caller_flows(box_list),
        ]
    )
    pairs: dict[tuple[str, str], list[Flow]] = {}
    for flow in result:
        pairs.setdefault((flow.source, flow.target), []).append(flow)
    return [_merge_flows(flows) for flows in pairs.values()]


def _merge_flows(flows: list[Flow]) -> Edge:
    order = sorted(flows, key=lambda flow: (list(TrafficType).index(flow.traffic_type), flow.port))
    first = order[0]
    lines = dict.fromkeys(flow.label for flow in order)
    purpose = dict.fromkeys(f"{flow.protocol} {flow.port}: {flow.purpose}" for flow in order)
    return Edge(first.source, first.target, first.traffic_type, tuple(lines), "; ".join(purpose))


def _find_permitted_flows(templates: TemplateSet, box_list: list[Box]) -> Iterator[Flow]:
    """Yield the flows that security groups allow, limited to the listeners and target groups of load balancers."""
    balancers = {
        box.node.id
        for box in box_list
        if box.resources & templates.collect_properties_by_key(_LOAD_BALANCER_TYPE).keys()
    }
    forward_rules = set(_find_listener_targets(templates, box_list))
    listening_ports = {(balancer, port) for balancer, port, _ in forward_rules}
    reachable_targets = {(balancer, target) for balancer, _, target in forward_rules}
    for flow in _find_rule_flows(templates, box_list):
        if flow.target in balancers and (flow.target, flow.port) not in listening_ports:
            continue
        if flow.source in balancers and (flow.source, flow.target) not in reachable_targets:
            continue
        yield flow


def _find_rule_flows(templates: TemplateSet, box_list: list[Box]) -> Iterator[Flow]:
    nodes_by_group: dict[ResourceKey, list[str]] = {}
    for box in box_list:
        for group in box.security_groups:
            nodes_by_group.setdefault(group, []).append(box.node.id)
    groups = templates.collect_properties_by_key("EC2::SecurityGroup")
    health = _find_health_ports(templates)
    store_traffic = _find_store_traffic(templates)
    for source, target, rule in _iter_ingress_rules(templates):
        protocol, port, purpose = rule["IpProtocol"], int(rule["FromPort"]), rule.get("Description", "")
        traffic_type = _TRAFFIC_TYPE_BY_PURPOSE.get(purpose, TrafficType.SUPPORT)
        if source is None:
            senders = [(NATIVE_CLIENT if protocol == "udp" else BROWSER).id]
        else:
            senders = nodes_by_group.get(source, [])
            if purpose == VALKEY.purpose:
                tier = groups[source]["GroupDescription"].removeprefix("voice-serve ").removesuffix(" tier")
                traffic_type, purpose_text = store_traffic.get(tier, (traffic_type, "state"))
                purpose = f"{purpose_text}, {purpose}"
        if (protocol, port) in health:
            purpose = f"health, {purpose}"
        for receiver in nodes_by_group.get(target, []):
            yield from (Flow(sender, receiver, protocol, port, purpose, traffic_type) for sender in senders)


def _iter_ingress_rules(templates: TemplateSet) -> Iterator[tuple[ResourceKey | None, ResourceKey, Mapping[str, Any]]]:
    """Yield the source, destination and properties of each ingress rule. The source ``None`` is the internet."""
    for target, group in templates.collect_properties_by_key("EC2::SecurityGroup").items():
        for rule in group.get("SecurityGroupIngress", []):
            yield templates.resolve_reference(target[0], rule.get("SourceSecurityGroupId")), target, rule
    for alone in templates.iter_resources_by_type("EC2::SecurityGroupIngress"):
        target_key = templates.resolve_reference(alone.tier, alone.properties["GroupId"])
        if target_key:
            source = templates.resolve_reference(alone.tier, alone.properties.get("SourceSecurityGroupId"))
            yield source, target_key, alone.properties


def _find_health_ports(templates: TemplateSet) -> set[tuple[str, int]]:
    """Return the protocols and ports of health checks that do not use the traffic port."""
    return {
        ("tcp", int(port))
        for group in templates.iter_resources_by_type("ElasticLoadBalancingV2::TargetGroup")
        if (port := group.properties.get("HealthCheckPort", "traffic-port")) != "traffic-port"
    }


def _find_store_traffic(templates: TemplateSet) -> dict[str, tuple[TrafficType, str]]:
    """Return the path and purpose of each tier's traffic with the state store, from the permissions of its user.

    The audio path ends at a tier that writes transcripts. The control path starts at a tier that only reads them.
    """
    results: dict[str, tuple[TrafficType, str]] = {}
    for user in templates.iter_resources_by_type("ElastiCache::User"):
        grants = user.properties.get("AccessString", "").split()
        if "~transcript:*" in grants:
            purpose_text = TrafficType.AUDIO, "writes transcripts"
        elif "%R~transcript:*" in grants:
            purpose_text = TrafficType.CONTROL, "reads transcripts"
        else:
            purpose_text = TrafficType.SUPPORT, "sessions and hosts"
        results[user.properties["UserName"]] = purpose_text
    return results


def _find_listener_targets(templates: TemplateSet, box_list: list[Box]) -> Iterator[tuple[str, int, str]]:
    """Yield the load balancer, port and target box of each listener."""
    box_by_resource = {key: box.node.id for box in box_list for key in box.resources}
    downstream: dict[ResourceKey | None, set[str]] = {}
    for group in templates.iter_resources_by_type("AutoScaling::AutoScalingGroup"):
        for arn in templates.resolve_references(group.tier, group.properties.get("TargetGroupARNs")):
            downstream.setdefault(arn, set()).add(box_by_resource[group.key])
    for service in templates.iter_resources_by_type("ECS::Service"):
        for entry in service.properties.get("LoadBalancers", []):
            targets = templates.resolve_reference(service.tier, entry["TargetGroupArn"])
            downstream.setdefault(targets, set()).add(box_by_resource[service.key])
    for listener in templates.iter_resources_by_type("ElasticLoadBalancingV2::Listener"):
        balancer = templates.resolve_reference(listener.tier, listener.properties["LoadBalancerArn"])
        for action in listener.properties["DefaultActions"]:
            targets = templates.resolve_reference(listener.tier, action.get("TargetGroupArn"))
            for box in sorted(downstream.get(targets, ())):
                if balancer and targets:
                    yield box_by_resource[balancer], int(listener.properties["Port"]), box


def _find_vpc_link_flows(templates: TemplateSet, box_list: list[Box]) -> Iterator[Flow]:
    """Yield the flows from REST APIs through VPC links to load balancers."""
    box_by_resource = {key: box.node.id for box in box_list for key in box.resources}
    links = templates.collect_properties_by_key("ApiGateway::VpcLink")
    for method in templates.iter_resources_by_type("ApiGateway::Method"):
        api = templates.resolve_reference(method.tier, method.properties["RestApiId"])
        link = templates.resolve_reference(method.tier, method.properties["Integration"].get("ConnectionId"))
        if api is None or link not in links:
            continue
        for balancer in sorted(templates.resolve_references(link[0], links[link]["TargetArns"])):
            port = _parse_integration_port(method.properties)
            yield Flow(box_by_resource[api], box_by_resource[balancer], "tcp", port, "VPC link", TrafficType.CONTROL)


def _parse_integration_port(method: Mapping[str, Any]) -> int:
    uri = method["Integration"].get("Uri", "")
    parts = uri["Fn::Join"][1] if isinstance(uri, dict) else [uri]
    ports = (re.search(r":(\d+)/", part) for part in parts if isinstance(part, str))
    return next((int(result[1]) for result in ports if result), 80)


def _create_caller_flows(box_list: list[Box]) -> Iterator[Flow]:
    """Yield the requests with which callers open and follow a session."""
    if any(box.node.id == "session-api" for box in box_list):
        for caller in (BROWSER, NATIVE_CLIENT):
            yield Flow(caller.id, "session-api", "https", 443, _API_PURPOSE, TrafficType.CONTROL)
