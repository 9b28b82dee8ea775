"""From listeners, routes and security group rules to arrows."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from blueprint import contract
from ops.picture.boxes import Box, methods
from ops.picture.graph import Edge, Node, Path
from ops.picture.templates import Key, Templates

BROWSER = Node("browser", None, "Browser", ("WebSocket audio",))
NATIVE_CLIENT = Node("native-client", None, "Native client", ("RTP or SRTP audio",))

_PATHS = {
    contract.PUBLIC_TLS.purpose: Path.AUDIO,
    contract.RTP.purpose: Path.AUDIO,
    contract.GATEWAY_MEDIA.purpose: Path.AUDIO,
    contract.CHUNK.purpose: Path.AUDIO,
    contract.GATEWAY_HTTP.purpose: Path.CONTROL,
}
"""Rules of security groups carry the purpose that the contract gives to their port."""
_API = "Session API: opens, follows and closes sessions"
_PATHS[_API] = Path.CONTROL


@dataclass(frozen=True)
class Flow:
    """One port from one box to another."""

    source: str
    target: str
    protocol: str
    port: int
    purpose: str
    path: Path

    @property
    def line(self) -> str:
        """Protocol, port and the first words of its purpose."""
        return f"{self.protocol.upper()} {self.port} {re.split(r'[,:(]| from | with | over ', self.purpose)[0].strip()}"


def edges(templates: Templates, drawn: list[Box]) -> list[Edge]:
    """Return an arrow for each pair of boxes that talk."""
    found = dict.fromkeys([*_rules(templates, drawn), *_routes(templates, drawn), *_calls(drawn)])
    pairs: dict[tuple[str, str], list[Flow]] = {}
    for flow in found:
        pairs.setdefault((flow.source, flow.target), []).append(flow)
    return [_merged(flows) for flows in pairs.values()]


def _merged(flows: list[Flow]) -> Edge:
    order = sorted(flows, key=lambda flow: (list(Path).index(flow.path), flow.port))
    first = order[0]
    lines = dict.fromkeys(flow.line for flow in order)
    purpose = dict.fromkeys(f"{flow.protocol} {flow.port}: {flow.purpose}" for flow in order)
    return Edge(first.source, first.target, first.path, tuple(lines), "; ".join(purpose))


def _wearers(drawn: list[Box]) -> dict[Key, list[str]]:
    found: dict[Key, list[str]] = {}
    for box in drawn:
        for group in sorted(box.security_groups):
            found.setdefault(group, []).append(box.node.id)
    return found


def _standing_for(drawn: list[Box]) -> dict[Key, str]:
    return {key: box.node.id for box in drawn for key in box.resources}


def _rules(templates: Templates, drawn: list[Box]) -> Iterator[Flow]:
    """Yield what security groups let in, between boxes that wear them."""
    wearers = _wearers(drawn)
    health = _health_ports(templates)
    tracks = _transcript_tracks(templates)
    groups = templates.table("EC2::SecurityGroup")
    rules: list[tuple[Key, Key | None, Mapping[str, Any]]] = [
        (key, None, rule) for key, group in groups.items() for rule in group.get("SecurityGroupIngress", [])
    ]
    for alone in templates.of_type("EC2::SecurityGroupIngress"):
        target = templates.origin(alone.tier, alone.properties["GroupId"])
        source = templates.origin(alone.tier, alone.properties.get("SourceSecurityGroupId"))
        if target and source:
            rules.append((target, source, alone.properties))
    for target, source, rule in rules:
        protocol, port, purpose = rule["IpProtocol"], int(rule["FromPort"]), rule.get("Description", "")
        path = _PATHS.get(purpose, Path.SUPPORT)
        if source is None:
            senders = [(NATIVE_CLIENT if protocol == "udp" else BROWSER).id]
        else:
            senders = wearers.get(source, [])
        if source and purpose == contract.VALKEY.purpose:
            path, keys = tracks.get(_tier_name(groups[source]), (path, ""))
            purpose = f"{keys}, {purpose}" if keys else purpose
        if (protocol, port) in health:
            purpose = f"health, {purpose}"
        for receiver in wearers.get(target, []):
            yield from (Flow(sender, receiver, protocol, port, purpose, path) for sender in senders)


def _tier_name(group: Mapping[str, Any]) -> str:
    description: str = group["GroupDescription"]
    return description.removeprefix("voice-serve ").removesuffix(" tier")


def _health_ports(templates: Templates) -> set[tuple[str, int]]:
    """Return ports that load balancers check health on, where they are not those that carry traffic."""
    return {
        ("tcp", int(port))
        for group in templates.of_type("ElasticLoadBalancingV2::TargetGroup")
        if (port := group.properties.get("HealthCheckPort", "traffic-port")) != "traffic-port"
    }


def _transcript_tracks(templates: Templates) -> dict[str, tuple[Path, str]]:
    """Return which path each tier's traffic with the state store belongs to, by what its user may touch.

    Who writes transcripts ends the audio path; who only reads them starts the events'.
    """
    found: dict[str, tuple[Path, str]] = {}
    for user in templates.of_type("ElastiCache::User"):
        grants = user.properties.get("AccessString", "").split()
        if "~transcript:*" in grants:
            track = Path.AUDIO, "writes transcripts"
        elif "%R~transcript:*" in grants:
            track = Path.CONTROL, "reads transcripts"
        else:
            track = Path.SUPPORT, "sessions and hosts"
        found[user.properties["UserName"]] = track
    return found


def _routes(templates: Templates, drawn: list[Box]) -> Iterator[Flow]:
    """Yield what load balancers and the session API send on, where no security group rule says it already."""
    standing_for = _standing_for(drawn)
    said = {(flow.source, flow.target, flow.port) for flow in _rules(templates, drawn)}
    targets = _targets(templates, standing_for)
    for listener in templates.of_type("ElasticLoadBalancingV2::Listener"):
        balancer = standing_for.get(_key(templates, listener.tier, listener.properties["LoadBalancerArn"]))
        for action in listener.properties["DefaultActions"]:
            key = _key(templates, listener.tier, action.get("TargetGroupArn"))
            for protocol, port, target in targets.get(key, []):
                if balancer and (balancer, target, port) not in said:
                    yield Flow(balancer, target, protocol, port, "", Path.SUPPORT)
    links = templates.table("ApiGateway::VpcLink")
    for box in drawn:
        for api in box.resources:
            for method in methods(templates, api):
                link = _key(templates, method.tier, method.properties["Integration"].get("ConnectionId"))
                for arn in links.get(link, {}).get("TargetArns", []):
                    balancer = standing_for.get(_key(templates, link[0], arn))
                    if balancer:
                        yield Flow(box.node.id, balancer, "tcp", _integration_port(method.properties), "VPC link",
                                   Path.CONTROL)  # fmt: skip


def _key(templates: Templates, tier: str, value: object) -> Key:
    return templates.origin(tier, value) or ("", "")


def _targets(templates: Templates, standing_for: Mapping[Key, str]) -> dict[Key, list[tuple[str, int, str]]]:
    """Return protocol, port and box behind each target group."""
    found: dict[Key, list[tuple[str, int, str]]] = {}
    behind: list[tuple[Key, Key]] = []
    for group in templates.of_type("AutoScaling::AutoScalingGroup"):
        arns = templates.origins(group.tier, group.properties.get("TargetGroupARNs"))
        behind += [(arn, group.key) for arn in sorted(arns)]
    for service in templates.of_type("ECS::Service"):
        for entry in service.properties.get("LoadBalancers", []):
            behind.append((_key(templates, service.tier, entry["TargetGroupArn"]), service.key))
    properties = templates.table("ElasticLoadBalancingV2::TargetGroup")
    for arn, key in behind:
        if arn in properties and key in standing_for:
            group_properties = properties[arn]
            found.setdefault(arn, []).append(
                (group_properties["Protocol"].lower(), group_properties["Port"], standing_for[key])
            )
    return found


def _integration_port(method: Mapping[str, Any]) -> int:
    uri = method["Integration"].get("Uri", "")
    parts = uri["Fn::Join"][1] if isinstance(uri, dict) else [uri]
    ports = (re.search(r":(\d+)/", part) for part in parts if isinstance(part, str))
    return next((int(found[1]) for found in ports if found), 80)


def _calls(drawn: list[Box]) -> Iterator[Flow]:
    """Yield the calls that every caller makes to open and follow a session."""
    if any(box.node.id == "session-api" for box in drawn):
        for caller in (BROWSER, NATIVE_CLIENT):
            yield Flow(caller.id, "session-api", "https", 443, _API, Path.CONTROL)
