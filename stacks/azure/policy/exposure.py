"""Rules on what pods and services open: load balancers, host access, images, network policies."""

import re
from collections.abc import Iterator

from blueprint.azure.contract import COMPONENT_LABEL, GPU_NAMESPACE, Component
from stacks.azure.policy.pods import Container, Pod, pods
from stacks.azure.policy.rules import Found, Stack, rule, stack_rule
from stacks.azure.policy.values import Value

REASON = "voice-serve/reason"
"""Annotation that says why an object does what it otherwise should not."""
PRIVILEGED: dict[Component, str] = {
    Component.DEVICE_PLUGIN: "registers at the kubelet's socket and hands out device nodes",
    Component.GPU_METRICS: "reads hardware counters and the kubelet's list of pods",
}
"""Components that may reach into their host, each with its reason; in their own namespace only."""
ENFORCED = "pod-security.kubernetes.io/enforce"
HOST_FLAGS = ("hostNetwork", "hostPID", "hostIPC")
PINNED = re.compile(r"(?P<registry>[a-z0-9-]+\.azurecr\.io)/[a-z0-9._/-]+@sha256:[0-9a-f]{64}")
SECRET_NAME = re.compile(r"(TOKEN|(SECRET|PASSWORD|API_?KEY|CREDENTIAL)S?)$", re.IGNORECASE)
"""Of several tokens a model's name says how many."""


@rule(
    "no-load-balancer-without-reason",
    "Services, ingresses and gateways that open the cluster say why.",
    remedy=f"use ClusterIP, or give the reason as the annotation {REASON}",
    source="https://learn.microsoft.com/azure/aks/load-balancer-standard",
)
def no_load_balancer(stack: Stack) -> Iterator[Found]:
    for service in stack.of("core/v1:Service"):
        kind = service.props.at("spec", "type").text
        reason = service.props.at("metadata", "annotations", REASON).text
        if kind in {"LoadBalancer", "NodePort"} and not reason:
            yield Found(service.urn, f"service {service.name} is a {kind} without a reason")
        if any(service.props.at("spec", "externalIPs")):
            yield Found(service.urn, f"service {service.name} claims external addresses")
    for ingress in stack.of("networking.k8s.io/v1:Ingress", ":Gateway"):
        if not ingress.props.at("metadata", "annotations", REASON).text:
            yield Found(ingress.urn, f"{ingress.name} opens the cluster without a reason")


@rule(
    "no-host-access",
    "No pod outside a short list is privileged, runs as root or mounts its host.",
    remedy="keep to the Pod Security level restricted",
    source="https://kubernetes.io/docs/concepts/security/pod-security-standards",
)
def no_host_access(stack: Stack) -> Iterator[Found]:
    for pod in pods(stack):
        allowed = {component.value for component in PRIVILEGED} if pod.namespace == GPU_NAMESPACE else set()
        if pod.labels.get(COMPONENT_LABEL, "") in allowed:
            continue
        for what in [*_host_access(pod), *(w for c in pod.containers for w in _escapes(pod, c))]:
            yield Found(pod.urn, f"{pod.name} {what}; only {', '.join(PRIVILEGED)} in {GPU_NAMESPACE} may")


@stack_rule(
    "images-are-pinned",
    "Every container runs an image of the own registry, by digest.",
    remedy="copy the image into the registry and write its digest into the deployment file",
    source="https://learn.microsoft.com/azure/container-registry/container-registry-image-lock",
)
def images_are_pinned(stack: Stack) -> Iterator[Found]:
    own = {reference.props.at("outputs", "registryLoginServer").text for reference in stack.of(":StackReference")}
    for pod in pods(stack):
        for container in pod.containers:
            # Known to the provider only while the registry is not made.
            if container.image.unknown:
                continue
            match = PINNED.fullmatch(container.image.text)
            if not match:
                yield Found(pod.urn, f"{pod.name}/{container.name} runs {container.image.text or 'no image'}")
            elif any(own) and match["registry"] not in own:
                yield Found(pod.urn, f"{pod.name}/{container.name} runs an image of {match['registry']}")


@stack_rule(
    "namespaces-refuse-by-default",
    "Every namespace with pods refuses traffic that no policy allows.",
    remedy="add a network policy that selects all pods and allows nothing, both ways",
    source="https://kubernetes.io/docs/concepts/services-networking/network-policies",
)
def namespaces_refuse(stack: Stack) -> Iterator[Found]:
    closed = set()
    for policy in stack.of("networking.k8s.io/v1:NetworkPolicy"):
        spec = policy.props["spec"]
        everything = not spec.at("podSelector", "matchLabels") and not any(spec.at("podSelector", "matchExpressions"))
        types = {kind.text for kind in spec["policyTypes"]}
        if everything and {"Ingress", "Egress"} <= types and not any(spec["ingress"]) and not any(spec["egress"]):
            closed.add(policy.props.at("metadata", "namespace").text)
    for pod in {pod.namespace: pod for pod in pods(stack)}.values():
        if pod.namespace not in closed:
            yield Found(pod.urn, f'namespace "{pod.namespace or "default"}" of {pod.name} refuses nothing by default')


@rule(
    "policies-name-their-peers",
    "Every network policy says from whom it lets traffic in; anybody may reach what the contract says alone.",
    remedy="name namespaces or pods under from",
    source="https://kubernetes.io/docs/concepts/services-networking/network-policies",
)
def policies_name_their_peers(stack: Stack) -> Iterator[Found]:
    called = {
        (flow.destination.value, flow.port.protocol.upper(), str(flow.port.number))
        for flow in stack.flows
        if flow.source is Component.INTERNET
    }
    for policy in stack.of("networking.k8s.io/v1:NetworkPolicy"):
        component = policy.props.at("spec", "podSelector", "matchLabels").texts().get(COMPONENT_LABEL, "")
        for entry in policy.props.at("spec", "ingress"):
            peers = list(entry["from"])
            opened = {(component, port["protocol"].text, port["port"].text) for port in entry["ports"]}
            to_callers = bool(peers and opened) and opened <= called
            if not to_callers and (not peers or any(_is_anybody(peer) for peer in peers)):
                yield Found(policy.urn, f"network policy {policy.name} lets anybody in")


@rule(
    "namespaces-are-restricted",
    "Every namespace enforces the Pod Security level restricted or baseline, but that of the GPU nodes' agents.",
    remedy=f"label it {ENFORCED}: restricted",
    source="https://kubernetes.io/docs/concepts/security/pod-security-admission",
)
def namespaces_are_restricted(stack: Stack) -> Iterator[Found]:
    for namespace in stack.of("core/v1:Namespace"):
        level = namespace.props.at("metadata", "labels", ENFORCED).text
        name = namespace.props.at("metadata", "name").text
        if level not in {"restricted", "baseline"} and name != GPU_NAMESPACE:
            yield Found(namespace.urn, f'namespace {name} enforces "{level}"; only {GPU_NAMESPACE} may be privileged')


@rule(
    "no-secrets-in-environment",
    "No secret stands in a pod's environment.",
    remedy="use valueFrom, or a volume of the key vault",
    source="https://learn.microsoft.com/azure/aks/csi-secrets-store-driver",
)
def no_secrets_in_environment(stack: Stack) -> Iterator[Found]:
    for pod in pods(stack):
        for container in pod.containers:
            for name, value in container.environment.items():
                if value and SECRET_NAME.search(name):
                    yield Found(pod.urn, f"{pod.name}/{container.name} has the secret {name} in its environment")


def _host_access(pod: Pod) -> Iterator[str]:
    yield from (f"sets {flag}" for flag in HOST_FLAGS if pod.spec[flag].on)
    for volume in pod.spec["volumes"]:
        if path := volume.at("hostPath", "path").text:
            yield f"mounts {path} of its host"
    for container in pod.containers:
        for port in container.value["ports"]:
            if port["hostPort"].number:
                yield f"takes port {port['hostPort'].text} of its host"


def _escapes(pod: Pod, container: Container) -> Iterator[str]:
    own, shared = container.value["securityContext"], pod.spec["securityContext"]
    if own["privileged"].on:
        yield f"runs {container.name} privileged"
    if own["allowPrivilegeEscalation"].raw is not False:
        yield f"lets {container.name} gain privileges"
    for capability in own.at("capabilities", "add"):
        yield f"adds {capability.text} to {container.name}"
    user = own["runAsUser"] if not own["runAsUser"].missing else shared["runAsUser"]
    if user.number == 0 or (user.missing and not (own["runAsNonRoot"] or shared["runAsNonRoot"])):
        yield f"runs {container.name} as root"


def _is_anybody(peer: Value) -> bool:
    if cidr := peer.at("ipBlock", "cidr").text:
        return cidr.endswith("/0")
    namespaces = peer["namespaceSelector"]
    selects_all = not namespaces.missing and not any(True for _ in namespaces.items())
    return selects_all and peer["podSelector"].missing
