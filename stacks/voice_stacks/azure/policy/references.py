"""Rules on references: the named resource must exist in its namespace, with the referenced key or port."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from voice_blueprint.azure.names import ClusterOutput
from voice_stacks.azure.policy.pods import Container, PodTemplate, list_pods
from voice_stacks.azure.policy.rules import Resource, Stack, Violation, stack_rule
from voice_stacks.azure.policy.values import Value
from voice_stacks.azure.policy.wiring import find_listening_ports
from voice_stacks.azure.policy.workload_identities import get_cluster_outputs

SYSTEM_NAMESPACES = ("kube-system", "default")
LOOPBACK_HOSTS = ("127.0.0.1", "localhost")
URL_PATTERN = re.compile(r"https?://[^\s\"'<>,;{}]+")
FILE_PATH_PATTERN = re.compile(r"/(?:etc|opt)/voice/[\w./-]+")
"""Paths of files that only a volume can provide, since images contain no files there."""
OBJECT_DOCS_URL = "https://kubernetes.io/docs/concepts/configuration"


@dataclass(frozen=True)
class Reference:
    """A reference from one resource to another.

    Attributes:
        namespace: Namespace of the target; ``None`` for a cluster-scoped kind.
        key: Key in the target's data; empty for the whole resource.
    """

    urn: str
    owner: str
    kind: str
    namespace: str | None
    name: Value
    key: str = ""


@stack_rule(
    "names-resolve",
    "Objects and keys that resources refer to must exist: storage classes, config maps, secrets, accounts.",
    remedy="create it in the same stack, or correct the name",
    source=OBJECT_DOCS_URL,
)
def check_object_references_exist(stack: Stack) -> Iterator[Violation]:
    for each in (*_find_pod_references(stack), *_find_resource_references(stack)):
        if not each.name.text:
            continue
        target = _find_target(stack, each)
        if target is None:
            location = f" in {each.namespace}" if each.namespace else ""
            yield Violation(
                each.urn, f"{each.owner} requires {each.kind} {each.name.text}, which does not exist{location}"
            )
        elif each.key and each.key not in _collect_data_keys(target):
            yield Violation(
                each.urn, f"{each.owner} requires {each.key} of {each.kind} {each.name.text}, which has no such key"
            )


def _find_pod_references(stack: Stack) -> Iterator[Reference]:
    for pod in list_pods(stack):
        for pull in pod.spec["imagePullSecrets"]:
            yield _create_reference(pod, "Secret", pull["name"])
        for volume in pod.spec["volumes"]:
            yield from _find_volume_references(pod, volume)
        for container in pod.containers:
            yield from _find_container_references(pod, container)


def _create_reference(pod: PodTemplate, kind: str, name: Value, key: str = "") -> Reference:
    return Reference(pod.urn, pod.name, kind, pod.namespace, name, key)


def _find_volume_references(pod: PodTemplate, volume: Value) -> Iterator[Reference]:
    yield _create_reference(pod, "Secret", volume.get("secret", "secretName"))
    claim = volume.get("ephemeral", "volumeClaimTemplate", "spec")
    yield Reference(pod.urn, pod.name, "StorageClass", None, claim["storageClassName"])
    for item in volume.get("configMap", "items"):
        yield _create_reference(pod, "ConfigMap", volume.get("configMap", "name"), item["key"].text)
    for source in volume.get("projected", "sources"):
        yield _create_reference(pod, "ConfigMap", source.get("configMap", "name"))
        yield _create_reference(pod, "Secret", source.get("secret", "name"))


def _find_container_references(pod: PodTemplate, container: Container) -> Iterator[Reference]:
    for variable in container.spec["env"]:
        for field, kind in (("secretKeyRef", "Secret"), ("configMapKeyRef", "ConfigMap")):
            source = variable.get("valueFrom", field)
            yield _create_reference(pod, kind, source["name"], source["key"].text)
    for source in container.spec["envFrom"]:
        yield _create_reference(pod, "ConfigMap", source.get("configMapRef", "name"))
        yield _create_reference(pod, "Secret", source.get("secretRef", "name"))
    for mount in container.spec["volumeMounts"]:
        if mount["subPath"].text:
            name = pod.get_volume(mount["name"].text).get("configMap", "name")
            yield _create_reference(pod, "ConfigMap", name, mount["subPath"].text)


def _find_resource_references(stack: Stack) -> Iterator[Reference]:
    for resource in stack.resources:
        if not resource.type.startswith("kubernetes:"):
            continue
        name, namespace = resource.name, resource.props.get("metadata", "namespace")
        if namespace.text and namespace.text not in SYSTEM_NAMESPACES:
            yield Reference(resource.urn, name, "Namespace", None, namespace)
        spec, inside = resource.props["spec"], namespace.text
        if resource.type.endswith(":PersistentVolumeClaim"):
            yield Reference(resource.urn, name, "StorageClass", None, spec["storageClassName"])
        if resource.type.endswith(":ScaledObject"):
            for trigger in spec["triggers"]:
                login = trigger["authenticationRef"]
                kind = login["kind"].text or "TriggerAuthentication"
                yield Reference(resource.urn, name, kind, inside, login["name"])
        if resource.type.endswith(":RoleBinding"):
            yield Reference(
                resource.urn,
                name,
                resource.props.get("roleRef", "kind").text,
                inside,
                resource.props.get("roleRef", "name"),
            )
            for subject in resource.props["subjects"]:
                yield Reference(
                    resource.urn, name, subject["kind"].text, subject["namespace"].text or inside, subject["name"]
                )


def _find_target(stack: Stack, reference: Reference) -> Resource | None:
    for resource in stack.find_resources(f":{reference.kind}"):
        metadata = resource.props["metadata"]
        same_namespace = reference.namespace in {None, metadata["namespace"].text}
        if same_namespace and (metadata["name"].text or resource.name) == reference.name.text:
            return resource
    if reference.kind == "Secret":
        # The CSI driver creates the secret while a pod mounts its SecretProviderClass.
        for resource in stack.find_resources(":SecretProviderClass"):
            secret_names = {each["secretName"].text for each in resource.props.get("spec", "secretObjects")}
            if (
                reference.name.text in secret_names
                and resource.props.get("metadata", "namespace").text == reference.namespace
            ):
                return resource
    return None


def _collect_data_keys(resource: Resource) -> set[str]:
    if resource.type.endswith(":SecretProviderClass"):
        objects = resource.props.get("spec", "secretObjects")
        return {entry["key"].text for each in objects for entry in each["data"]}
    return {key for part in ("data", "binaryData") for key, _ in resource.props[part].items()}


@stack_rule(
    "secrets-are-brought",
    "A pod must mount the SecretProviderClass whose secret it reads, and the class must fetch that secret.",
    remedy="mount the class as a CSI volume, and list the object under parameters.objects",
    source="https://secrets-store-csi-driver.sigs.k8s.io/topics/sync-as-kubernetes-secret",
)
def check_secrets_are_mounted(stack: Stack) -> Iterator[Violation]:
    classes = {r.props.get("metadata", "name").text: r for r in stack.find_resources(":SecretProviderClass")}
    for resource in classes.values():
        fetched = resource.props.get("spec", "parameters", "objects").text
        for each in resource.props.get("spec", "secretObjects"):
            for entry in each["data"]:
                if fetched and entry["objectName"].text not in fetched:
                    yield Violation(
                        resource.urn, f"{resource.name} syncs {entry['objectName'].text}, which it never fetches"
                    )
        vault, vault_name = (
            get_cluster_outputs(stack)[ClusterOutput.VAULT_NAME],
            resource.props.get("spec", "parameters", "keyvaultName"),
        )
        if vault.text and vault_name.text and vault_name.text != vault.text:
            yield Violation(
                resource.urn, f"{resource.name} reads vault {vault_name.text}; the deployment has {vault.text}"
            )
    for pod in list_pods(stack):
        yield from _find_unfetched_file_violations(pod, classes)
        mounted = {v.get("csi", "volumeAttributes", "secretProviderClass").text for v in pod.spec["volumes"]}
        synced_secrets = {each["secretName"].text for name in mounted & set(classes)
                   for each in classes[name].props.get("spec", "secretObjects")}  # fmt: skip
        synced = {each["secretName"].text for r in classes.values() for each in r.props.get("spec", "secretObjects")}
        for container in pod.containers:
            for variable in container.spec["env"]:
                name = variable.get("valueFrom", "secretKeyRef", "name").text
                if name in synced - synced_secrets:
                    yield Violation(
                        pod.urn,
                        f"{pod.name}/{container.name} reads secret {name}; the pod does not mount its "
                        "SecretProviderClass",
                    )


def _find_unfetched_file_violations(pod: PodTemplate, classes: Mapping[str, Resource]) -> Iterator[Violation]:
    """Yield a violation for each file that a container reads but that the volume's SecretProviderClass omits."""
    for container in pod.containers:
        for path in container.environment.values():
            folder, _, file = path.rpartition("/")
            volume = pod.get_volume(container.volume_by_mount_path.get(folder, ""))
            resource = classes.get(volume.get("csi", "volumeAttributes", "secretProviderClass").text)
            fetched = resource.props.get("spec", "parameters", "objects").text if resource else ""
            if fetched and not re.search(rf"objectName: {re.escape(file)}\s", fetched):
                yield Violation(
                    pod.urn,
                    f"{pod.name}/{container.name} reads {path}, which {resource and resource.name} never fetches",
                )


@stack_rule(
    "files-are-mounted",
    "Files in a container's arguments and variables must be on a volume; a config map must contain them.",
    remedy="mount the config map, with the last part of the path as a key",
    source="https://kubernetes.io/docs/tasks/configure-pod-container/configure-pod-configmap",
)
def check_files_are_mounted(stack: Stack) -> Iterator[Violation]:
    for pod in list_pods(stack):
        for container in pod.containers:
            paths = {path for part in container.argv for path in FILE_PATH_PATTERN.findall(part)}
            paths |= {v for k, v in container.environment.items() if k.endswith("_FILE") and v.startswith("/")}
            for path in sorted(paths):
                label = f"{pod.name}/{container.name} reads {path}"
                containing_mounts = [
                    m for m in container.volume_by_mount_path if path == m or path.startswith(f"{m.rstrip('/')}/")
                ]
                if not containing_mounts:
                    yield Violation(pod.urn, f"{label}, which is not on a volume")
                    continue
                mount = max(containing_mounts, key=len)
                name = pod.get_volume(container.volume_by_mount_path[mount]).get("configMap", "name").text
                files = {key for r in stack.find_resources(":ConfigMap") if r.props.get("metadata", "name").text == name
                         for key in _collect_data_keys(r)}  # fmt: skip
                if files and path != mount and path.removeprefix(mount).strip("/") not in files:
                    yield Violation(pod.urn, f"{label}; config map {name} contains {', '.join(sorted(files))}")


@stack_rule(
    "urls-lead-to-services",
    "A cluster URL in a container's configuration must refer to an existing service, or a port of its own pod.",
    remedy="use the name, namespace and port of a service",
    source="https://kubernetes.io/docs/concepts/services-networking/dns-pod-service",
)
def check_urls_match_services(stack: Stack) -> Iterator[Violation]:
    namespaces = {pod.namespace for pod in list_pods(stack)}
    for pod in list_pods(stack):
        ports = set().union(*map(find_listening_ports, pod.containers)) if pod.containers else set()
        for container in pod.containers:
            for url in _find_urls(container):
                parts, label = urlsplit(url), f"{pod.name}/{container.name} uses {url}"
                port = str(parts.port or (443 if parts.scheme == "https" else 80))
                host, _, namespace = (parts.hostname or "").partition(".")
                namespace = namespace.partition(".")[0]
                if parts.hostname in LOOPBACK_HOSTS:
                    if ports and port not in ports:
                        yield Violation(pod.urn, f"{label}; no container of its pod listens on port {port}")
                elif not namespace or namespace in namespaces:
                    yield from _find_service_violations(stack, pod, label, (host, namespace or pod.namespace, port))


def _find_urls(container: Container) -> Iterator[str]:
    for text in (*container.argv, *container.environment.values()):
        yield from URL_PATTERN.findall(text)


def _find_service_violations(
    stack: Stack, pod: PodTemplate, label: str, expected: tuple[str, str, str]
) -> Iterator[Violation]:
    host, namespace, port = expected
    results = [
        r
        for r in stack.find_resources("core/v1:Service")
        if (r.props.get("metadata", "name").text, r.props.get("metadata", "namespace").text) == (host, namespace)
    ]
    if not results:
        yield Violation(pod.urn, f"{label}; there is no service {host} in {namespace}")
    elif port not in {each["port"].text for each in results[0].props.get("spec", "ports")}:
        yield Violation(pod.urn, f"{label}; service {host} has no port {port}")
