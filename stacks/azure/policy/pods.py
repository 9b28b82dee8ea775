"""Pods as the workloads of a stack describe them."""

from dataclasses import dataclass
from functools import cached_property, lru_cache

from blueprint.azure.contract import GPU_RESOURCE
from blueprint.azure.names import POOL_LABEL
from stacks.azure.policy.quantities import GIB, amount, gib
from stacks.azure.policy.rules import Resource, Stack
from stacks.azure.policy.values import Value

TEMPLATES = {
    "apps/v1:Deployment": ("spec", "template"),
    "apps/v1:StatefulSet": ("spec", "template"),
    "apps/v1:DaemonSet": ("spec", "template"),
    "apps/v1:ReplicaSet": ("spec", "template"),
    "batch/v1:Job": ("spec", "template"),
    "batch/v1:CronJob": ("spec", "jobTemplate", "spec", "template"),
    "core/v1:Pod": (),
}
"""Where the pod stands in each kind of workload."""
REPLICATED = ("apps/v1:Deployment", "apps/v1:StatefulSet")
SHARED_MEMORY = "/dev/shm"  # noqa: S108  a mount of a pod


@dataclass(frozen=True)
class Container:
    """One container of a pod."""

    value: Value

    @property
    def name(self) -> str:
        return self.value["name"].text

    @property
    def image(self) -> Value:
        return self.value["image"]

    @cached_property
    def argv(self) -> tuple[str, ...]:
        """Its command and arguments."""
        return tuple(part.text for key in ("command", "args") for part in self.value[key])

    @cached_property
    def environment(self) -> dict[str, str]:
        """Its variables, where they have a value of their own."""
        return {entry["name"].text: entry["value"].text for entry in self.value["env"]}

    @property
    def mounts(self) -> dict[str, str]:
        """Names of volumes by where they are mounted."""
        return {mount["mountPath"].text: mount["name"].text for mount in self.value["volumeMounts"]}

    @property
    def grace_s(self) -> float:
        """How long its preStop hook holds SIGTERM up."""
        hook = self.value.at("lifecycle", "preStop")
        return hook.at("sleep", "seconds").number or 0

    def option(self, flag: str) -> str:
        """Return the value of a flag of its command, or nothing."""
        argv = self.argv
        joined = next((argument.partition("=")[2] for argument in argv if argument.startswith(f"{flag}=")), "")
        behind = argv[argv.index(flag) + 1 : argv.index(flag) + 2] if flag in argv else ()
        return joined or next(iter(behind), "")

    def limit(self, resource: str) -> str:
        """Return its limit, or its request where it has none."""
        resources = self.value["resources"]
        return resources["limits"][resource].text or resources["requests"][resource].text

    @property
    def gpus(self) -> int:
        return int(amount(self.limit(GPU_RESOURCE)))

    @property
    def memory_gib(self) -> float:
        """Memory that it may take."""
        return gib(self.limit("memory"))

    @property
    def pinned_cpus(self) -> int | None:
        """CPUs that the static CPU manager pins: whole ones, of a container whose requests equal its limits."""
        resources = self.value["resources"]
        limits, requests = resources["limits"].texts(), resources["requests"].texts() or resources["limits"].texts()
        cpus = amount(limits.get("cpu", ""))
        guaranteed = all(amount(limits.get(kind, "")) == amount(requests.get(kind, "")) for kind in ("cpu", "memory"))
        return int(cpus) if guaranteed and cpus and cpus == int(cpus) else None


@dataclass(frozen=True)
class Pod:
    """The pods of one workload.

    Attributes:
        replicas: As the workload says; 1 where it says nothing.
    """

    resource: Resource
    template: Value

    @property
    def urn(self) -> str:
        return self.resource.urn

    @property
    def name(self) -> str:
        return self.resource.props.at("metadata", "name").text or self.resource.name

    @property
    def namespace(self) -> str:
        return self.resource.props.at("metadata", "namespace").text

    @property
    def spec(self) -> Value:
        """The pod's specification."""
        return self.template["spec"]

    @property
    def labels(self) -> dict[str, str]:
        return self.template.at("metadata", "labels").texts()

    @property
    def pool(self) -> str:
        """The pool whose nodes it selects; empty where it selects none."""
        return self.spec.at("nodeSelector", POOL_LABEL).text

    @cached_property
    def running(self) -> list[Container]:
        """Containers that run side by side: sidecars and main ones."""
        sidecars = [entry for entry in self.spec["initContainers"] if entry["restartPolicy"].text == "Always"]
        return [Container(entry) for entry in [*sidecars, *self.spec["containers"]]]

    @cached_property
    def starting(self) -> list[Container]:
        """Init containers that end before the others start."""
        entries = self.spec["initContainers"]
        return [Container(entry) for entry in entries if entry["restartPolicy"].text != "Always"]

    @property
    def containers(self) -> list[Container]:
        return [*self.starting, *self.running]

    @property
    def gpus(self) -> int:
        return sum(container.gpus for container in self.running)

    @property
    def memory_gib(self) -> float:
        """Memory of one pod; what it writes to shared memory counts as its containers'."""
        return sum(container.memory_gib for container in self.running)

    @property
    def cpus(self) -> float:
        requests = (container.value.at("resources", "requests", "cpu").text for container in self.running)
        return float(sum(amount(text) for text in requests))

    def volume(self, name: str) -> Value:
        return next((volume for volume in self.spec["volumes"] if volume["name"].text == name), Value())

    def shared_memory_gib(self, container: Container) -> float | None:
        """Return the size of a container's ``/dev/shm``; ``None`` where it has the runtime's 64 MiB."""
        source = self.volume(container.mounts.get(SHARED_MEMORY, ""))["emptyDir"]
        if source.missing or source["medium"].text != "Memory":
            return None
        # Without a limit it may fill the container's memory.
        return gib(source["sizeLimit"].text) or container.memory_gib


@lru_cache(maxsize=1)
def pods(stack: Stack) -> tuple[Pod, ...]:
    """Return the pods of a stack, or of one resource."""
    return tuple(
        Pod(resource, resource.props.at(*TEMPLATES[kind]))
        for resource in stack.resources
        if (kind := resource.type.removeprefix("kubernetes:")) != resource.type and kind in TEMPLATES
    )


def bytes_text(value: float) -> str:
    """Return GiB for people."""
    return f"{value * GIB / 2**20:.0f} MiB" if value < 1 else f"{value:.0f} GiB"
