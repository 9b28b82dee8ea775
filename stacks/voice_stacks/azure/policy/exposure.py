"""Rules on the exposure of pods and services: load balancers, host access, images, network policies."""

import re
from collections.abc import Iterator

from voice_blueprint.azure.contract import COMPONENT_LABEL, GPU_NAMESPACE, Component
from voice_blueprint.azure.ranges import are_effectively_public
from voice_stacks.azure.policy.pods import Container, PodTemplate, list_pods
from voice_stacks.azure.policy.rules import Resource, Stack, Violation, rule, stack_rule
from voice_stacks.azure.policy.values import Value

REASON_ANNOTATION = "voice-serve/reason"
"""Annotation with the reason for an otherwise forbidden setting."""
PRIVILEGE_REASON_BY_COMPONENT: dict[Component, str] = {
    Component.DEVICE_PLUGIN: "registers at the kubelet's socket and allocates device nodes",
    Component.GPU_METRICS: "reads hardware counters and the kubelet's list of pods",
}
"""Components that may access their host in their own namespace, with the reason."""
ENFORCE_LABEL = "pod-security.kubernetes.io/enforce"
EXTERNAL_COMPONENTS = {Component.INTERNET}
HOST_NAMESPACE_FIELDS = ("hostNetwork", "hostPID", "hostIPC")
PINNED_IMAGE_PATTERN = re.compile(r"(?P<registry>[a-z0-9-]+\.azurecr\.io)/[a-z0-9._/-]+@sha256:[0-9a-f]{64}")
SECRET_NAME_PATTERN = re.compile(r"(TOKEN|(SECRET|PASSWORD|API_?KEY|CREDENTIAL)S?)$", re.IGNORECASE)
"""Names of variables with secrets. The plural ``TOKENS`` does not match, since such a variable contains a number of
tokens."""


@rule(
    "no-load-balancer-without-reason",
    "Services, ingresses and gateways that expose the cluster must have a reason as an annotation.",
    remedy=f"use ClusterIP, or give the reason as the annotation {REASON_ANNOTATION}",
    source="https://learn.microsoft.com/azure/aks/load-balancer-standard",
)
def check_exposed_services_have_reason(stack: Stack) -> Iterator[Violation]:
    for service in stack.find_resources("core/v1:Service"):
        kind = service.props.get("spec", "type").text
        reason = service.props.get("metadata", "annotations", REASON_ANNOTATION).text
        if kind in {"LoadBalancer", "NodePort"} and not reason:
            yield Violation(service.urn, f"service {service.name} has the type {kind} without a reason")
        if any(service.props.get("spec", "externalIPs")):
            yield Violation(service.urn, f"service {service.name} has external addresses")
    for ingress in stack.find_resources("networking.k8s.io/v1:Ingress", ":Gateway"):
        if not ingress.props.get("metadata", "annotations", REASON_ANNOTATION).text:
            yield Violation(ingress.urn, f"{ingress.name} exposes the cluster without a reason")


@rule(
    "no-host-access",
    "Pods other than the listed agents must not be privileged, run as root or mount host paths.",
    remedy="comply with the Pod Security level restricted",
    source="https://kubernetes.io/docs/concepts/security/pod-security-standards",
)
def check_no_host_access(stack: Stack) -> Iterator[Violation]:
    for pod in list_pods(stack):
        allowed = (
            {component.value for component in PRIVILEGE_REASON_BY_COMPONENT}
            if pod.namespace == GPU_NAMESPACE
            else set()
        )
        if pod.labels.get(COMPONENT_LABEL, "") in allowed:
            continue
        for problem in [
            *_find_host_access_problems(pod),
            *(w for c in pod.containers for w in _find_privilege_problems(pod, c)),
        ]:
            yield Violation(
                pod.urn,
                f"{pod.name} {problem}; only {', '.join(PRIVILEGE_REASON_BY_COMPONENT)} in {GPU_NAMESPACE} may do so",
            )


@stack_rule(
    "images-are-pinned",
    "Every container must run an image of the deployment's registry, by digest.",
    remedy="copy the image to the registry, and set its digest in the deployment file",
    source="https://learn.microsoft.com/azure/container-registry/container-registry-image-lock",
)
def check_images_are_pinned(stack: Stack) -> Iterator[Violation]:
    registries = {
        reference.props.get("outputs", "registryLoginServer").text
        for reference in stack.find_resources(":StackReference")
    }
    for pod in list_pods(stack):
        for container in pod.containers:
            # The provider only returns the value after the registry has been created.
            if container.image.is_unknown:
                continue
            match = PINNED_IMAGE_PATTERN.fullmatch(container.image.text)
            if not match:
                yield Violation(pod.urn, f"{pod.name}/{container.name} runs {container.image.text or 'no image'}")
            elif any(registries) and match["registry"] not in registries:
                yield Violation(pod.urn, f"{pod.name}/{container.name} runs an image of {match['registry']}")


@stack_rule(
    "namespaces-refuse-by-default",
    "Every namespace with pods must deny traffic that no network policy allows.",
    remedy="add a network policy that selects all pods and allows no ingress or egress",
    source="https://kubernetes.io/docs/concepts/services-networking/network-policies",
)
def check_namespaces_deny_by_default(stack: Stack) -> Iterator[Violation]:
    closed = set()
    for policy in stack.find_resources("networking.k8s.io/v1:NetworkPolicy"):
        spec = policy.props["spec"]
        selects_all = not spec.get("podSelector", "matchLabels") and not any(
            spec.get("podSelector", "matchExpressions")
        )
        types = {kind.text for kind in spec["policyTypes"]}
        if selects_all and {"Ingress", "Egress"} <= types and not any(spec["ingress"]) and not any(spec["egress"]):
            closed.add(policy.props.get("metadata", "namespace").text)
    for pod in {pod.namespace: pod for pod in list_pods(stack)}.values():
        if pod.namespace not in closed:
            yield Violation(
                pod.urn, f'namespace "{pod.namespace or "default"}" of {pod.name} has no default-deny policy'
            )


@rule(
    "policies-name-their-peers",
    "Every network policy must restrict its peers in both directions, except for the contract's public flows.",
    remedy="select namespaces or pods under from and to",
    source="https://kubernetes.io/docs/concepts/services-networking/network-policies",
)
def check_policies_restrict_peers(stack: Stack) -> Iterator[Violation]:
    yield from _find_open_policy_violations(
        stack, "ingress", "from", "allows any source", _collect_public_ports(stack, inbound=True)
    )
    yield from _find_open_policy_violations(
        stack, "egress", "to", "allows any destination", _collect_public_ports(stack, inbound=False)
    )


OpenPort = tuple[str, str, str]
"""Component, protocol and port of an ingress, or a component with the protocol and port of its destination."""


def _collect_public_ports(stack: Stack, *, inbound: bool) -> set[OpenPort]:
    """Return the ports for the contract's public flows, including a public API server with an unknown address."""
    azure = stack.deployment.azure_section if stack.deployment else None
    external = {Component.INTERNET} if inbound or (azure and azure.is_private) else EXTERNAL_COMPONENTS
    return {
        ((flow.destination if inbound else flow.source).value, flow.port.protocol.upper(), str(flow.port.number))
        for flow in stack.flows
        if (flow.source if inbound else flow.destination) in external
    }


def _find_open_policy_violations(
    stack: Stack, direction: str, peers_key: str, problem: str, exceptions: set[OpenPort]
) -> Iterator[Violation]:
    """Yield a violation for each policy that allows all addresses, either directly or as the union of its ranges."""
    ranges: dict[str, list[tuple[Resource, str]]] = {}
    for policy in stack.find_resources("networking.k8s.io/v1:NetworkPolicy"):
        selector = policy.props.get("spec", "podSelector", "matchLabels").as_text_dict()
        component = selector.get(COMPONENT_LABEL, "")
        for entry in policy.props.get("spec", direction):
            peers = list(entry[peers_key])
            opened = {(component, port["protocol"].text, port["port"].text) for port in entry["ports"]}
            if peers and opened and opened <= exceptions:
                continue
            if not peers or any(_selects_all_pods(peer) for peer in peers):
                yield Violation(policy.urn, f"network policy {policy.name} {problem}")
            agent_pods = f"{policy.props.get('metadata', 'namespace').text}/{sorted(selector.items())}"
            blocks = (peer.get("ipBlock", "cidr").text for peer in peers)
            ranges.setdefault(agent_pods, []).extend((policy, block) for block in blocks if block)
    for result in ranges.values():
        if are_effectively_public(block for _, block in result):
            for policy in {policy.urn: policy for policy, _ in result}.values():
                yield Violation(
                    policy.urn, f"network policy {policy.name} {problem}: {', '.join(b for _, b in result)}"
                )


@rule(
    "namespaces-are-restricted",
    "Namespaces must enforce the Pod Security level restricted or baseline, except that of the GPU agents.",
    remedy=f"add the label {ENFORCE_LABEL}: restricted",
    source="https://kubernetes.io/docs/concepts/security/pod-security-admission",
)
def check_namespaces_are_restricted(stack: Stack) -> Iterator[Violation]:
    for namespace in stack.find_resources("core/v1:Namespace"):
        level = namespace.props.get("metadata", "labels", ENFORCE_LABEL).text
        name = namespace.props.get("metadata", "name").text
        if level not in {"restricted", "baseline"} and name != GPU_NAMESPACE:
            yield Violation(
                namespace.urn, f'namespace {name} enforces "{level}"; only {GPU_NAMESPACE} may be privileged'
            )


@rule(
    "no-secrets-in-environment",
    "A pod's environment must not contain secrets in plain text.",
    remedy="use valueFrom, or a volume of the key vault's CSI driver",
    source="https://learn.microsoft.com/azure/aks/csi-secrets-store-driver",
)
def check_no_secrets_in_environment(stack: Stack) -> Iterator[Violation]:
    for pod in list_pods(stack):
        for container in pod.containers:
            for name, value in container.environment.items():
                if value and SECRET_NAME_PATTERN.search(name):
                    yield Violation(pod.urn, f"{pod.name}/{container.name} has the secret {name} in its environment")


def _find_host_access_problems(pod: PodTemplate) -> Iterator[str]:
    yield from (f"sets {flag}" for flag in HOST_NAMESPACE_FIELDS if pod.spec[flag].is_enabled)
    for volume in pod.spec["volumes"]:
        if path := volume.get("hostPath", "path").text:
            yield f"mounts {path} of its host"
    for container in pod.containers:
        for port in container.spec["ports"]:
            if port["hostPort"].number:
                yield f"uses port {port['hostPort'].text} of its host"


def _find_privilege_problems(pod: PodTemplate, container: Container) -> Iterator[str]:
    container_context, pod_context = container.spec["securityContext"], pod.spec["securityContext"]
    if container_context["privileged"].is_enabled:
        yield f"runs {container.name} privileged"
    if container_context["allowPrivilegeEscalation"].raw is not False:
        yield f"allows {container.name} to escalate privileges"
    for capability in container_context.get("capabilities", "add"):
        yield f"adds the capability {capability.text} to {container.name}"
    user = container_context["runAsUser"] if not container_context["runAsUser"].is_missing else pod_context["runAsUser"]
    if user.number == 0 or (user.is_missing and not (container_context["runAsNonRoot"] or pod_context["runAsNonRoot"])):
        yield f"runs {container.name} as root"


def _selects_all_pods(peer: Value) -> bool:
    """Return True if a peer selects every pod in every namespace."""
    namespaces = peer["namespaceSelector"]
    selects_all = not namespaces.is_missing and not any(True for _ in namespaces.items())
    return selects_all and peer["podSelector"].is_missing
