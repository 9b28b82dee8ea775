"""Rules that compare the router's configuration with services, engines and clients."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from voice_blueprint.azure.contract import COMPONENT_LABEL, Component
from voice_blueprint.engines.launch.router import CONFIG_FILE, RESPONSE_TIMEOUT_S
from voice_stacks.azure.policy.cluster import collect_max_replicas_by_workload
from voice_stacks.azure.policy.drains import calculate_drain_times_s
from voice_stacks.azure.policy.engines import list_engines
from voice_stacks.azure.policy.pods import Container, PodTemplate, list_pods, read_mounted_file
from voice_stacks.azure.policy.rules import Resource, Stack, Violation, stack_rule
from voice_stacks.azure.policy.wiring import find_listening_ports

_BACKEND_PATTERN = re.compile(r"^backend (\S+)$", re.MULTILINE)
_USED_BACKEND_PATTERN = re.compile(r"^\s+use_backend (\S+)", re.MULTILINE)
_BOUND_PORT_PATTERN = re.compile(r"^\s+bind \S*?:(\d+)", re.MULTILINE)
_HARD_STOP_PATTERN = re.compile(r"^\s+hard-stop-after (\d+)s", re.MULTILINE)
_IDLE_TIMEOUT_PATTERN = re.compile(r"^\s+timeout (server|tunnel) (\d+)s", re.MULTILINE)
_SERVER_TEMPLATE_PATTERN = re.compile(
    r"^\s+server-template \S+ (?:1-)?(\d+) ([\w-]+)\.([\w-]+)\S*?:(\d+)", re.MULTILINE
)
HAPROXY_DOCS_URL = "https://docs.haproxy.org/3.2/configuration.html"


@dataclass(frozen=True)
class ServerTemplate:
    """Servers of one backend, whose addresses are those of a Kubernetes service.

    Attributes:
        slot_count: Maximum number of servers.
    """

    backend: str
    slot_count: int
    service: str
    namespace: str
    port: str


@dataclass(frozen=True)
class Router:
    """A container with the router's configuration."""

    pod: PodTemplate
    container: Container
    configuration: str

    @property
    def configuration_by_backend(self) -> dict[str, str]:
        """Configuration text for each backend, by name."""
        parts = _BACKEND_PATTERN.split(self.configuration)
        return dict(zip(parts[1::2], parts[2::2], strict=True))

    @property
    def server_templates(self) -> Iterator[ServerTemplate]:
        for backend, text in self.configuration_by_backend.items():
            for slots, service, namespace, port in _SERVER_TEMPLATE_PATTERN.findall(text):
                yield ServerTemplate(backend, int(slots), service, namespace, port)


def find_routers(stack: Stack) -> Iterator[Router]:
    """Yield each pod that runs HAProxy, with its parsed configuration."""
    for pod in list_pods(stack):
        for container in pod.running_containers:
            if text := read_mounted_file(stack, pod, container, CONFIG_FILE):
                yield Router(pod, container, text)


@stack_rule(
    "routers-find-engines",
    "The router must have a backend per model with a headless service, and a slot for each of its pods.",
    remedy="render the configuration from the services of the deployment file",
    source=HAPROXY_DOCS_URL,
)
def check_routers_find_engines(stack: Stack) -> Iterator[Violation]:
    for router in find_routers(stack):
        urn, name = router.pod.urn, router.pod.name
        for backend in sorted(
            set(_USED_BACKEND_PATTERN.findall(router.configuration)) - set(router.configuration_by_backend)
        ):
            yield Violation(urn, f"{name} routes to backend {backend}, which does not exist")
        for port in sorted(
            set(_BOUND_PORT_PATTERN.findall(router.configuration)) - find_listening_ports(router.container)
        ):
            yield Violation(urn, f"{name} listens on port {port}, which its pod does not declare")
        routed_pods: set[str] = set()
        for route in router.server_templates:
            backend_pods, problem = _find_backend_pods(stack, route)
            routed_pods |= {pod.urn for pod in backend_pods}
            for violation in filter(None, (problem, *_find_route_problems(stack, route, backend_pods))):
                yield Violation(urn, f"{name}: backend {route.backend} {violation}")
        for pod in list_pods(stack):
            if pod.labels.get(COMPONENT_LABEL) == Component.ENGINE and pod.urn not in routed_pods:
                yield Violation(urn, f"{name} routes no requests to {pod.name}")


def _find_backend_pods(stack: Stack, route: ServerTemplate) -> tuple[list[PodTemplate], str]:
    """Return the pods behind a route's service, and a problem with the service or an empty string."""
    desired = (route.service, route.namespace)
    service = next(
        (each for each in stack.find_resources("core/v1:Service") if _get_qualified_name(each) == desired), None
    )
    if service is None:
        return [], f"uses service {route.service} in {route.namespace}, which does not exist"
    spec = service.props["spec"]
    labels = spec["selector"].as_text_dict()
    backend_pods = [
        pod for pod in list_pods(stack) if pod.namespace == route.namespace and labels.items() <= pod.labels.items()
    ]
    if spec["clusterIP"].text != "None":
        return backend_pods, f"uses service {route.service}, which is not headless: all pods have the same address"
    return backend_pods, ""


def _get_qualified_name(service: Resource) -> tuple[str, str]:
    return service.props.get("metadata", "name").text, service.props.get("metadata", "namespace").text


def _find_route_problems(stack: Stack, route: ServerTemplate, backend_pods: list[PodTemplate]) -> Iterator[str]:
    max_replicas = collect_max_replicas_by_workload(stack)
    desired = sum(max_replicas.get((pod.namespace, pod.name), 1) for pod in backend_pods)
    if route.slot_count < desired:
        yield f"has {route.slot_count} slots for {desired} pods of {route.service}"
    for pod in backend_pods:
        if route.port not in set().union(*map(find_listening_ports, pod.running_containers)):
            yield f"connects to {pod.name} on port {route.port}, on which it does not listen"
    for engine in list_engines(stack):
        served = engine.flags.get("--served-model-name", engine.repository)
        if engine.pod.urn in {pod.urn for pod in backend_pods} and served != route.backend:
            yield f"routes to {engine.name}, which serves {served}"


@stack_rule(
    "routers-outlive-engines",
    "The router must run for as long as engines drain, and its timeouts must exceed the longest response.",
    remedy="raise hard-stop-after and terminationGracePeriodSeconds above the engines' drain, and the timeouts",
    source=HAPROXY_DOCS_URL,
)
def check_routers_outlive_engines(stack: Stack) -> Iterator[Violation]:
    longest = max((calculate_drain_times_s(engine)[1] for engine in list_engines(stack)), default=0.0)
    for router in find_routers(stack):
        urn, name = router.pod.urn, router.pod.name
        grace = router.pod.spec["terminationGracePeriodSeconds"].number
        ends = [
            30 if grace is None else grace,
            *(float(text) for text in _HARD_STOP_PATTERN.findall(router.configuration)),
        ]
        if min(ends) < longest:
            yield Violation(urn, f"{name} stops after {min(ends):g} s; engines drain for {longest:g} s")
        for kind, text in _IDLE_TIMEOUT_PATTERN.findall(router.configuration):
            if int(text) < RESPONSE_TIMEOUT_S:
                yield Violation(
                    urn, f"{name}: timeout {kind} {text} s; a complete response may take {RESPONSE_TIMEOUT_S} s"
                )
