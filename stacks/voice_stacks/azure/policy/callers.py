"""Rules on the path of calls: the edge, load balancers, tiers, engines and state store must be consistent."""

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

from voice_blueprint.azure.contract import (
    AGENT_NODE_HEALTH,
    COMPONENT_LABEL,
    GATEWAY_HEALTH,
    REDIS,
    VAD_NODE_HEALTH,
    Component,
)
from voice_blueprint.azure.ranges import calculate_agent_address, calculate_gateway_address
from voice_blueprint.contract.environment import IDLE_TIMEOUT_S
from voice_blueprint.contract.network import AGENT_HTTP, GATEWAY_HTTP, GATEWAY_MEDIA
from voice_blueprint.contract.session_api import HEALTH_PATH
from voice_blueprint.file.model.azure import Azure
from voice_stacks.azure.policy.engines import list_engines
from voice_stacks.azure.policy.pods import PodTemplate, list_pods
from voice_stacks.azure.policy.rules import Resource, Stack, Violation, rule, stack_rule
from voice_stacks.azure.policy.values import Value

PORT_BY_HOST_LABEL = {"api": GATEWAY_HTTP, "media": GATEWAY_MEDIA, "agent": AGENT_HTTP}
"""Ports by the first label of their host names."""
HEALTH_PORT_BY_COMPONENT = {
    Component.GATEWAY.value: GATEWAY_HEALTH,
    Component.AGENT.value: AGENT_NODE_HEALTH,
    Component.VAD.value: VAD_NODE_HEALTH,
}
ADDRESS_ANNOTATION = "service.beta.kubernetes.io/azure-load-balancer-ipv4"
NO_EVICTION_POLICY = "NoEviction"
SINGLE_ENDPOINT_POLICIES = {"NoCluster", "EnterpriseCluster"}
"""Clustering policies with which one connection reaches every key. Scripts that use several keys require this."""
EDGE_DOCS_URL = "https://learn.microsoft.com/azure/application-gateway/configuration-http-settings"
AKS_LOAD_BALANCER_DOCS_URL = "https://learn.microsoft.com/azure/aks/load-balancer-standard"


@stack_rule(
    "load-balancers-show-senders",
    "A load balancer must keep source addresses if its tier filters or identifies callers by address.",
    remedy="set externalTrafficPolicy to Local, and healthCheckNodePort to the tier's port in the contract",
    source=AKS_LOAD_BALANCER_DOCS_URL,
)
def check_source_addresses_are_kept(stack: Stack) -> Iterator[Violation]:
    for service in stack.find_resources("core/v1:Service"):
        spec = service.props["spec"]
        if spec["type"].text not in {"LoadBalancer", "NodePort"}:
            continue
        selector, policy = spec["selector"].as_text_dict(), spec["externalTrafficPolicy"].text or "Cluster"
        for pod in (p for p in list_pods(stack) if selector and selector.items() <= p.labels.items()):
            udp = any(port["protocol"].text == "UDP" for port in spec["ports"])
            if policy != "Local" and (udp or _admits_address_ranges(stack, pod)):
                reason = (
                    ("only accepts packets from configured addresses")
                    if udp
                    else "identifies callers by their addresses"
                )
                yield Violation(
                    service.urn, f"service {service.name} has externalTrafficPolicy {policy}; {pod.name} {reason}"
                )
            desired = HEALTH_PORT_BY_COMPONENT.get(pod.labels.get(COMPONENT_LABEL, ""))
            if policy == "Local" and desired and spec["healthCheckNodePort"].number != desired.number:
                yield Violation(
                    service.urn,
                    f"service {service.name} has health check node port {spec['healthCheckNodePort'].text or 'any'}; "
                    f"the network only allows {desired.number} for the load balancer",
                )


def _admits_address_ranges(stack: Stack, pod: PodTemplate) -> bool:
    return any(
        peer.get("ipBlock", "cidr").text
        for policy in stack.find_resources("networking.k8s.io/v1:NetworkPolicy")
        if policy.props.get("spec", "podSelector", "matchLabels").as_text_dict().items() <= pod.labels.items()
        for entry in policy.props.get("spec", "ingress")
        for peer in entry["from"]
    )


@stack_rule(
    "balancers-have-their-ports",
    "The load balancer of a tier must have every port of the contract's flows from the edge and the internet.",
    remedy="use the ports of voice_blueprint.azure.contract",
    source=AKS_LOAD_BALANCER_DOCS_URL,
)
def check_load_balancers_have_ports(stack: Stack) -> Iterator[Violation]:
    for flow in stack.flows:
        if flow.source not in {Component.EDGE, Component.INTERNET}:
            continue
        for service in stack.find_resources("core/v1:Service"):
            if service.props.get("spec", "selector").as_text_dict().get(COMPONENT_LABEL) != flow.destination:
                continue
            ports = {
                (each["port"].number, each["protocol"].text or "TCP") for each in service.props.get("spec", "ports")
            }
            if (flow.port.number, flow.port.protocol.upper()) not in ports:
                yield Violation(
                    service.urn, f"service {service.name} has no port {flow.port.number}, which callers use"
                )


@rule(
    "state-store-keeps-sessions",
    "The state store must not evict keys, must have a single endpoint, and must use the contract's port.",
    remedy=f"set evictionPolicy to {NO_EVICTION_POLICY}, clusteringPolicy to NoCluster and port to {REDIS.number}",
    source="https://learn.microsoft.com/azure/redis/architecture; voice_blueprint/contract/state.py",
)
def check_state_store_keeps_sessions(stack: Stack) -> Iterator[Violation]:
    for database in stack.find_resources("redisenterprise:Database"):
        props, urn = database.props, database.urn
        if props["evictionPolicy"].text != NO_EVICTION_POLICY:
            configured = props["evictionPolicy"].text or "Azure's default, VolatileLRU"
            yield Violation(
                urn, f"{database.name} has {configured}: a full store would evict sessions of active callers"
            )
        if props["clusteringPolicy"].text not in SINGLE_ENDPOINT_POLICIES:
            yield Violation(
                urn, f"{database.name} has clusteringPolicy {props['clusteringPolicy'].text or 'OSSCluster'}"
            )
        if props["port"].number != REDIS.number:
            yield Violation(
                urn, f"{database.name} listens on {props['port'].text or 'any port'}; tiers connect to {REDIS.number}"
            )
    for store in stack.find_resources(":RedisEnterprise"):
        if store.props["highAvailability"].text not in {"", "Enabled"}:
            yield Violation(store.urn, f"{store.name} has no replica: its data is lost if its machine fails")


@stack_rule(
    "timeouts-nest",
    "The request timeout of the edge must exceed the idle timeout of its tier, which must equal the file's.",
    remedy="set both from idle_timeout_s of the deployment file",
    source=EDGE_DOCS_URL,
)
def check_edge_exceeds_idle_timeouts(stack: Stack) -> Iterator[Violation]:
    silent = _collect_idle_timeouts_s(stack)
    for edge in stack.find_resources(":ApplicationGateway"):
        for settings in edge.props["backendHttpSettingsCollection"]:
            port, waits = int(settings["port"].number or 0), settings["requestTimeout"].number or 20
            if waits <= silent.get(port, 0):
                yield Violation(
                    edge.urn,
                    f"{edge.name}, {settings['name'].text}: it times out after {waits:g} s; port {port} may be "
                    f"silent for {silent[port]} s",
                )
        for probe in edge.props["probes"]:
            if (probe["timeout"].number or 30) > (probe["interval"].number or 30):
                yield Violation(edge.urn, f"probe {probe['name'].text} has a timeout that is longer than its interval")
    for pod in list_pods(stack):
        port = (GATEWAY_HTTP if pod.labels.get(COMPONENT_LABEL) == Component.GATEWAY else AGENT_HTTP).number
        for container in pod.running_containers:
            configured = container.environment.get(IDLE_TIMEOUT_S.name, "")
            if configured.isdecimal() and port in silent and int(configured) > silent[port]:
                yield Violation(
                    pod.urn, f"{pod.name} has an idle timeout of {configured} s; the edge expects {silent[port]} s"
                )


def _collect_idle_timeouts_s(stack: Stack) -> dict[int, int]:
    """Return the idle timeouts of the tiers in seconds, by port."""
    azure = stack.azure
    if azure is None or azure.callers is None:
        return {}
    gateway_s = azure.callers.edge.idle_timeout_s
    agents = {AGENT_HTTP.number: azure.agents.idle_timeout_s} if azure.agents else {}
    return {GATEWAY_HTTP.number: gateway_s, GATEWAY_MEDIA.number: gateway_s, **agents}


@rule(
    "edge-parts-exist",
    "References within an application gateway must resolve, and each host name must reach its own port.",
    remedy="refer to a part of the same gateway",
    source="https://learn.microsoft.com/azure/application-gateway/application-gateway-components",
)
def check_edge_references_resolve(stack: Stack) -> Iterator[Violation]:
    azure = stack.azure
    for edge in stack.find_resources(":ApplicationGateway"):
        parts = {key: {item["name"].text: item for item in value} for key, value in edge.props.items()}
        for path, value in edge.props.iter_nested():
            kind, name = _parse_child_id(value.text) if path.endswith("id") else ("", "")
            if kind and name not in parts.get(kind, {}):
                yield Violation(edge.urn, f"{edge.name}: {path} refers to {kind}/{name}, which does not exist")
        for route in edge.props["requestRoutingRules"]:
            yield from _find_route_violations(edge, route, parts, azure)
        for probe in edge.props["probes"]:
            if probe["path"].text != HEALTH_PATH:
                yield Violation(
                    edge.urn,
                    f"{edge.name}, probe {probe['name'].text} requests {probe['path'].text}, not {HEALTH_PATH}",
                )


def _parse_child_id(identity: str) -> tuple[str, str]:
    match = re.search(r"/applicationGateways/[^/]+/(\w+)/([^/]+)$", identity)
    return (match[1], match[2]) if match else ("", "")


def _find_route_violations(
    edge: Resource, route: Value, parts: dict[str, dict[str, Value]], azure: Azure | None
) -> Iterator[Violation]:
    def part(key: str) -> Value:
        kind, name = _parse_child_id(route.get(key, "id").text)
        return parts.get(kind, {}).get(name, Value())

    host = part("httpListener")["hostName"].text.partition(".")[0]
    port, desired = part("backendHttpSettings")["port"].number, PORT_BY_HOST_LABEL.get(host)
    if desired and port is not None and port != desired.number:
        yield Violation(edge.urn, f"{edge.name}: {host}. is routed to port {port:g}, not {desired.number}")
    if desired and azure:
        cidr = azure.network.cidr
        address = calculate_agent_address(cidr) if desired is AGENT_HTTP else calculate_gateway_address(cidr)
        pool = {each["ipAddress"].text for each in part("backendAddressPool")["backendAddresses"]}
        if pool and address not in pool:
            yield Violation(
                edge.urn,
                f"{edge.name}: {host}. is routed to {', '.join(pool)}; the load balancer has the address {address}",
            )


@stack_rule(
    "balancers-have-their-address",
    "Load balancers of gateway and agents must have the addresses that the edge routes to.",
    remedy="use blueprint.azure.ranges",
    source=AKS_LOAD_BALANCER_DOCS_URL,
)
def check_load_balancers_have_address(stack: Stack) -> Iterator[Violation]:
    azure = stack.azure
    for service in stack.find_resources("core/v1:Service") if azure else ():
        component = service.props.get("spec", "selector").as_text_dict().get(COMPONENT_LABEL)
        desired = {
            Component.GATEWAY.value: calculate_gateway_address,
            Component.AGENT.value: calculate_agent_address,
        }.get(component or "")
        configured = service.props.get("metadata", "annotations", ADDRESS_ANNOTATION)
        if azure and desired and not configured.is_unknown and configured.text != desired(azure.network.cidr):
            yield Violation(
                service.urn,
                f"service {service.name} has the address {configured.text or 'any'}, not {desired(azure.network.cidr)}",
            )


@stack_rule(
    "clients-find-their-model",
    "Every model that a client requests from the router must be served by an engine of the right kind.",
    remedy="serve the model by its name in the catalogue, which the deployment file and clients use",
    source="https://docs.vllm.ai/en/stable/serving/openai_compatible_server.html",
)
def check_requested_models_are_served(stack: Stack) -> Iterator[Violation]:
    served: dict[str, bool] = {}
    for engine in list_engines(stack):
        name = engine.flags.get("--served-model-name") or engine.repository
        served[name] = engine.is_omni
        if engine.model and name != engine.model.name:
            yield Violation(
                engine.pod.urn, f"{engine.name} serves {name}; the file and clients use the name {engine.model.name}"
            )
    hosts = {r.props.get("metadata", "name").text for r in stack.find_resources("core/v1:Service")}
    for pod in list_pods(stack):
        for container in pod.running_containers:
            for variable, url in container.environment.items():
                model = container.environment.get(f"{variable.removesuffix('_URL')}_MODEL", "")
                host = (urlsplit(url).hostname or "").partition(".")[0]
                if not variable.endswith("_URL") or not model or host not in hosts or not served:
                    continue
                label = f"{pod.name}/{container.name} requests {model} at {url}"
                if model not in served:
                    yield Violation(pod.urn, f"{label}; the served models are {', '.join(sorted(served))}")
                elif (first := urlsplit(url).path.split("/")[1:2]) and first[0] and first[0] != model:
                    yield Violation(pod.urn, f"{label}, with the path of {first[0]}")
                elif served[model] != ("SPEECH" in variable):
                    yield Violation(pod.urn, f"{label}, which is a {'speech' if served[model] else 'text'} model")
