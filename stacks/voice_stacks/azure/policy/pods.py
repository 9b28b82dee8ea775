"""Pods as described by the workloads of a stack."""

from dataclasses import dataclass
from functools import cached_property, lru_cache

from voice_blueprint.azure.contract import COMPONENT_LABEL, GPU_RESOURCE, SINGLE_POD_COMPONENTS
from voice_blueprint.azure.names import POOL_LABEL
from voice_stacks.azure.policy.quantities import BYTES_PER_GIB, parse_gib, parse_quantity_or_zero
from voice_stacks.azure.policy.rules import Resource, Stack
from voice_stacks.azure.policy.values import Value

POD_TEMPLATE_PATH_BY_TYPE = {
    "apps/v1:Deployment": ("spec", "template"),
    "apps/v1:StatefulSet": ("spec", "template"),
    "apps/v1:DaemonSet": ("spec", "template"),
    "apps/v1:ReplicaSet": ("spec", "template"),
    "batch/v1:Job": ("spec", "template"),
    "batch/v1:CronJob": ("spec", "jobTemplate", "spec", "template"),
    "core/v1:Pod": (),
}
"""Path of the pod template in each kind of workload."""
REPLICATED_TYPES = ("apps/v1:Deployment", "apps/v1:StatefulSet")
SHARED_MEMORY_DIR = "/dev/shm"  # noqa: S108  a mount of a pod


@dataclass(frozen=True)
class Container:
    """A container in a pod."""

    spec: Value

    @property
    def name(self) -> str:
        return self.spec["name"].text

    @property
    def image(self) -> Value:
        return self.spec["image"]

    @cached_property
    def argv(self) -> tuple[str, ...]:
        """Command and arguments of the container."""
        return tuple(part.text for key in ("command", "args") for part in self.spec[key])

    @cached_property
    def environment(self) -> dict[str, str]:
        """Environment variables in the container that have literal values."""
        return {entry["name"].text: entry["value"].text for entry in self.spec["env"]}

    @property
    def volume_by_mount_path(self) -> dict[str, str]:
        """Names of volumes by their mount paths."""
        return {mount["mountPath"].text: mount["name"].text for mount in self.spec["volumeMounts"]}

    @property
    def pre_stop_delay_s(self) -> float:
        """Time in seconds for which the preStop hook delays SIGTERM."""
        hook = self.spec.get("lifecycle", "preStop")
        return hook.get("sleep", "seconds").number or 0

    def get_option(self, flag: str) -> str:
        """Return the value of a flag in the command, or an empty string."""
        argv = self.argv
        inline_value = next((argument.partition("=")[2] for argument in argv if argument.startswith(f"{flag}=")), "")
        value_tokens = argv[argv.index(flag) + 1 : argv.index(flag) + 2] if flag in argv else ()
        return inline_value or next(iter(value_tokens), "")

    def get_limit(self, resource: str) -> str:
        """Return the limit of a resource, or its request if there is no limit."""
        resources = self.spec["resources"]
        return resources["limits"][resource].text or resources["requests"][resource].text

    @property
    def gpu_count(self) -> int:
        return int(parse_quantity_or_zero(self.get_limit(GPU_RESOURCE)))

    @property
    def memory_gib(self) -> float:
        """Memory limit in GiB."""
        return parse_gib(self.get_limit("memory"))

    @property
    def pinned_cpu_count(self) -> int | None:
        """CPUs that the static CPU manager pins: whole CPUs of a container whose requests equal its limits."""
        resources = self.spec["resources"]
        limits, requests = (
            resources["limits"].as_text_dict(),
            resources["requests"].as_text_dict() or resources["limits"].as_text_dict(),
        )
        cpus = parse_quantity_or_zero(limits.get("cpu", ""))
        guaranteed = all(
            parse_quantity_or_zero(limits.get(kind, "")) == parse_quantity_or_zero(requests.get(kind, ""))
            for kind in ("cpu", "memory")
        )
        return int(cpus) if guaranteed and cpus and cpus == int(cpus) else None


@dataclass(frozen=True)
class PodTemplate:
    """The pods of a workload.

    Attributes:
        resource: The workload.
        template: Pod template of the workload.
    """

    resource: Resource
    template: Value

    @property
    def urn(self) -> str:
        return self.resource.urn

    @property
    def name(self) -> str:
        return self.resource.props.get("metadata", "name").text or self.resource.name

    @property
    def namespace(self) -> str:
        return self.resource.props.get("metadata", "namespace").text

    @property
    def spec(self) -> Value:
        """The pod specification."""
        return self.template["spec"]

    @property
    def labels(self) -> dict[str, str]:
        return self.template.get("metadata", "labels").as_text_dict()

    @property
    def is_single(self) -> bool:
        """Whether its component must not run in several pods."""
        return self.labels.get(COMPONENT_LABEL) in SINGLE_POD_COMPONENTS

    @property
    def pool(self) -> str:
        """Name of the selected pool, or an empty string."""
        return self.spec.get("nodeSelector", POOL_LABEL).text

    @cached_property
    def running_containers(self) -> list[Container]:
        """Containers that run at the same time: sidecars and main containers."""
        sidecars = [entry for entry in self.spec["initContainers"] if entry["restartPolicy"].text == "Always"]
        return [Container(entry) for entry in [*sidecars, *self.spec["containers"]]]

    @cached_property
    def init_containers(self) -> list[Container]:
        """Init containers that exit before the others start."""
        entries = self.spec["initContainers"]
        return [Container(entry) for entry in entries if entry["restartPolicy"].text != "Always"]

    @property
    def containers(self) -> list[Container]:
        return [*self.init_containers, *self.running_containers]

    @property
    def gpu_count(self) -> int:
        return sum(container.gpu_count for container in self.running_containers)

    @property
    def memory_gib(self) -> float:
        """Memory of one pod in GiB. Shared memory counts towards the containers' memory."""
        return sum(container.memory_gib for container in self.running_containers)

    @property
    def requested_cpus(self) -> float:
        requests = (container.spec.get("resources", "requests", "cpu").text for container in self.running_containers)
        return float(sum(parse_quantity_or_zero(text) for text in requests))

    def get_volume(self, name: str) -> Value:
        return next((volume for volume in self.spec["volumes"] if volume["name"].text == name), Value())

    def calculate_shared_memory_gib(self, container: Container) -> float | None:
        """Return the size of a container's ``/dev/shm``; ``None`` for the runtime's default of 64 MiB."""
        source = self.get_volume(container.volume_by_mount_path.get(SHARED_MEMORY_DIR, ""))["emptyDir"]
        if source.is_missing or source["medium"].text != "Memory":
            return None
        # Without a limit, shared memory may fill the container's memory.
        return parse_gib(source["sizeLimit"].text) or container.memory_gib


@lru_cache(maxsize=1)
def list_pods(stack: Stack) -> tuple[PodTemplate, ...]:
    """Return the pods in a stack or in one resource."""
    return tuple(
        PodTemplate(resource, resource.props.get(*POD_TEMPLATE_PATH_BY_TYPE[kind]))
        for resource in stack.resources
        if (kind := resource.type.removeprefix("kubernetes:")) != resource.type and kind in POD_TEMPLATE_PATH_BY_TYPE
    )


def read_mounted_file(stack: Stack, pod: PodTemplate, container: Container, path: str) -> str:
    """Return the content of a file that a ConfigMap mounts in a container, or an empty string."""
    mount = next((each for each in container.spec["volumeMounts"] if each["mountPath"].text == path), Value())
    source = pod.get_volume(mount["name"].text).get("configMap", "name").text
    files = (
        each.props for each in stack.find_resources(":ConfigMap") if each.props.get("metadata", "name").text == source
    )
    return next(files, Value()).get("data", mount["subPath"].text).text


def format_gib(value: float) -> str:
    """Format an amount in GiB as MiB or GiB."""
    return f"{value * BYTES_PER_GIB / 2**20:.0f} MiB" if value < 1 else f"{value:.0f} GiB"


def tolerates_taint(pod: PodTemplate, taint: str) -> bool:
    """Return True if a pod tolerates ``key=value:effect``."""
    rest, _, effect = taint.rpartition(":")
    key, _, value = rest.partition("=")
    for toleration in pod.spec["tolerations"]:
        exists = toleration["operator"].text == "Exists"
        if toleration["effect"].text not in {"", effect}:
            continue
        if toleration["key"].text in ({key, ""} if exists else {key}) and (exists or toleration["value"].text == value):
            return True
    return False
