"""What every pod is made of: who it runs as, what it may take, where it may write, how it is asked for its health."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict

import pulumi
import pulumi_kubernetes as k8s

from blueprint.azure.contract import GPU_RESOURCE
from blueprint.azure.names import Taint
from blueprint.azure.rollout import START_TIMEOUT_S
from blueprint.contract.images import UNPRIVILEGED_USER
from blueprint.contract.network import Port
from blueprint.engines.launch.base import Launcher
from voice_constructs.azure.kubernetes.context import metadata
from voice_constructs.azure.kubernetes.storage import MODEL_CACHE

Container = k8s.core.v1.ContainerArgs
Mount = k8s.core.v1.VolumeMountArgs
Probe = k8s.core.v1.ProbeArgs
Volume = k8s.core.v1.VolumeArgs

PRE_STOP_S = 15
"""A stopping engine takes requests for so long: until the router's watch has seen that its pod goes."""

STOP_MARGIN_S = 60
"""Between the end of an engine's own drain and SIGKILL: it saves its caches, and the containers beside it stop."""

TMP_GIB = 8

_MODELS = "/models"
_DIGEST_CHARS = 10


def pod_security() -> k8s.core.v1.PodSecurityContextArgs:
    """Return what the level ``restricted`` asks of a pod."""
    return k8s.core.v1.PodSecurityContextArgs(
        run_as_non_root=True,
        run_as_user=UNPRIVILEGED_USER,
        run_as_group=UNPRIVILEGED_USER,
        fs_group=UNPRIVILEGED_USER,
        fs_group_change_policy="OnRootMismatch",
        seccomp_profile=k8s.core.v1.SeccompProfileArgs(type="RuntimeDefault"),
    )


def container_security() -> k8s.core.v1.SecurityContextArgs:
    """Return what the level ``restricted`` asks of a container, and a root that cannot be written."""
    return k8s.core.v1.SecurityContextArgs(
        allow_privilege_escalation=False,
        read_only_root_filesystem=True,
        capabilities=k8s.core.v1.CapabilitiesArgs(drop=["ALL"]),
    )


@dataclass(frozen=True)
class Share:
    """What one container takes of its node. Requests equal limits, so that memory is never promised twice.

    Attributes:
        cpus: Whole numbers are pinned by the kubelet's static CPU manager, others share what is left.
        memory_gib: With what it writes to shared memory.
        gpus: Whole GPUs.
    """

    cpus: float
    memory_gib: float
    gpus: int = 0

    def requirements(self) -> k8s.core.v1.ResourceRequirementsArgs:
        """Return it as Kubernetes wants it."""
        amounts = {"cpu": quantity_of_cpus(self.cpus), "memory": quantity_of_gib(self.memory_gib)}
        if self.gpus:
            amounts[GPU_RESOURCE] = str(self.gpus)
        return k8s.core.v1.ResourceRequirementsArgs(requests=amounts, limits=amounts)


def quantity_of_gib(gib: float) -> str:
    """Return an amount of bytes, rounded up to whole MiB."""
    return f"{-int(-gib * 1024 // 1)}Mi"


def quantity_of_cpus(cpus: float) -> str:
    return str(int(cpus)) if cpus == int(cpus) else f"{round(cpus * 1000)}m"


@dataclass(frozen=True)
class LaunchedContainer:
    """One process of a pod.

    Attributes:
        launcher: Its command, environment and files.
        ports: Ports that other pods reach, by name; what listens on the loopback alone is not among them.
        mounts: Beside the ones that every container has.
        extra_environment: What follows from the pod and not from the engine.
        sources: Variables whose value Kubernetes looks up: of the pod, or in a secret.
    """

    name: str
    image: pulumi.Input[str]
    launcher: Launcher
    share: Share
    ports: Mapping[str, Port]
    startup: Probe | None = None
    liveness: Probe | None = None
    readiness: Probe | None = None
    mounts: Sequence[Mount] = ()
    extra_environment: Mapping[str, pulumi.Input[str]] | None = None
    sources: Mapping[str, k8s.core.v1.EnvVarSourceArgs] | None = None
    pre_stop_s: int = 0
    sidecar: bool = False

    def args(self, files: "ConfigFiles") -> Container:
        """Return it as Kubernetes wants it."""
        stop = k8s.core.v1.LifecycleHandlerArgs(sleep=k8s.core.v1.SleepActionArgs(seconds=self.pre_stop_s))
        return Container(
            name=self.name,
            image=self.image,
            command=list(self.launcher.command()),
            env=environment({**self.launcher.environment(), **(self.extra_environment or {})}, self.sources),
            ports=[
                k8s.core.v1.ContainerPortArgs(name=name, container_port=port.number, protocol=port.protocol.upper())
                for name, port in self.ports.items()
            ],
            resources=self.share.requirements(),
            security_context=container_security(),
            startup_probe=self.startup,
            liveness_probe=self.liveness,
            readiness_probe=self.readiness,
            lifecycle=k8s.core.v1.LifecycleArgs(pre_stop=stop) if self.pre_stop_s else None,
            # A sidecar starts before the engines and is stopped after them: requests drain through it.
            restart_policy="Always" if self.sidecar else None,
            termination_message_policy="FallbackToLogsOnError",
            volume_mounts=[tmp_mount(), *self.mounts, *files.mounts(self.launcher)],
        )


def http_probe(port: Port, path: str, *, period_s: int, failures: int, timeout_s: int = 5) -> Probe:
    """Return a probe that asks a pod over HTTP."""
    return Probe(
        http_get=k8s.core.v1.HTTPGetActionArgs(path=path, port=port.number),
        period_seconds=period_s,
        failure_threshold=failures,
        timeout_seconds=timeout_s,
    )


class EngineProbes(TypedDict):
    """The probes of an engine."""

    startup: Probe
    liveness: Probe
    readiness: Probe


def engine_probes(port: Port) -> EngineProbes:
    """Return the probes of vLLM, which starts slowly and then answers fast or not at all."""
    return {
        "startup": http_probe(port, "/health", period_s=10, failures=START_TIMEOUT_S // 10),
        "liveness": http_probe(port, "/health", period_s=10, failures=6),
        "readiness": http_probe(port, "/health", period_s=5, failures=2),
    }


@dataclass(frozen=True)
class ConfigFiles:
    """The files of a pod's processes, in one ConfigMap whose name changes with them: pods are replaced, not surprised.

    Attributes:
        name: Of the workload.
        texts: Text by absolute path.
    """

    name: str
    texts: Mapping[str, str]

    @classmethod
    def of(cls, name: str, launchers: Sequence[Launcher]) -> "ConfigFiles":
        """Collect what launchers need."""
        return cls(name, {path: text for launcher in launchers for path, text in launcher.files().items()})

    @property
    def config_map_name(self) -> str:
        content = "".join(f"{path}\0{text}\0" for path, text in sorted(self.texts.items()))
        return f"{self.name}-{hashlib.sha256(content.encode()).hexdigest()[:_DIGEST_CHARS]}"

    def config_map(self, namespace: pulumi.Input[str], opts: pulumi.ResourceOptions) -> k8s.core.v1.ConfigMap | None:
        if not self.texts:
            return None
        return k8s.core.v1.ConfigMap(
            self.config_map_name,
            metadata=metadata(self.config_map_name, namespace),
            immutable=True,
            data={_key(path): text for path, text in self.texts.items()},
            opts=opts,
        )

    def volumes(self) -> list[Volume]:
        """Return the pod's volume; none without files."""
        source = k8s.core.v1.ConfigMapVolumeSourceArgs(name=self.config_map_name)
        return [Volume(name="files", config_map=source)] if self.texts else []

    def mounts(self, launcher: Launcher) -> list[Mount]:
        """Return the mounts of one process: its own files, each at its path."""
        return [Mount(name="files", mount_path=path, sub_path=_key(path), read_only=True) for path in launcher.files()]


def _key(path: str) -> str:
    return path.strip("/").replace("/", ".")


def tolerations(taints: Iterable[Taint]) -> list[k8s.core.v1.TolerationArgs]:
    """Return what lets a pod onto nodes with these taints, and onto no others."""
    return [
        k8s.core.v1.TolerationArgs(key=taint.key, operator="Equal", value=taint.value, effect=taint.effect)
        for taint in taints
    ]


def environment(
    values: Mapping[str, pulumi.Input[str]], sources: Mapping[str, k8s.core.v1.EnvVarSourceArgs] | None = None
) -> list[k8s.core.v1.EnvVarArgs]:
    """Return variables, sorted, so that no pod is replaced for their order."""
    sources = sources or {}
    return [
        k8s.core.v1.EnvVarArgs(
            name=name, value=None if name in sources else values.get(name), value_from=sources.get(name)
        )
        for name in sorted({*values, *sources})
    ]


def of_pod(field: str) -> k8s.core.v1.EnvVarSourceArgs:
    """Return a variable's source: a field of the pod itself, such as ``status.podIP``."""
    return k8s.core.v1.EnvVarSourceArgs(field_ref=k8s.core.v1.ObjectFieldSelectorArgs(field_path=field))


def tmp_mount() -> Mount:
    """Return the one place that every container may write to."""
    return Mount(name="tmp", mount_path="/tmp")  # noqa: S108  a volume of the pod


def tmp_volume() -> Volume:
    """Return the volume behind ``tmp_mount``."""
    source = k8s.core.v1.EmptyDirVolumeSourceArgs(size_limit=quantity_of_gib(TMP_GIB))
    return Volume(name="tmp", empty_dir=source)


def shared_memory_mount() -> Mount:
    """Return /dev/shm. Without a volume a container has 64 MiB, on which NCCL fails and engines hang."""
    return Mount(name="shared-memory", mount_path="/dev/shm")  # noqa: S108  a volume of the pod


def shared_memory_volume(gib: float) -> Volume:
    """Return the volume behind it. What is written counts as memory of the container that wrote it."""
    source = k8s.core.v1.EmptyDirVolumeSourceArgs(medium="Memory", size_limit=quantity_of_gib(gib))
    return Volume(name="shared-memory", empty_dir=source)


def model_cache_mount() -> Mount:
    """Return weights and compile caches."""
    return Mount(name="models", mount_path=_MODELS)


def model_cache_volume() -> Volume:
    source = k8s.core.v1.PersistentVolumeClaimVolumeSourceArgs(claim_name=MODEL_CACHE)
    return Volume(name="models", persistent_volume_claim=source)
