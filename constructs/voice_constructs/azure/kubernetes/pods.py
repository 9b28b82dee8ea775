"""Common parts of all pods: user, resources, writable volumes, probes."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict

import pulumi
import pulumi_kubernetes as k8s

from voice_blueprint.azure.contract import GPU_RESOURCE
from voice_blueprint.azure.names import Taint
from voice_blueprint.azure.rollout import ENGINE_STARTUP_TIMEOUT_S
from voice_blueprint.contract.images import UNPRIVILEGED_UID
from voice_blueprint.contract.network import Port
from voice_blueprint.engines.launch.base import Launcher
from voice_blueprint.engines.launch.router import REMOVAL_DELAY_S
from voice_constructs.azure.kubernetes.context import create_metadata
from voice_constructs.azure.kubernetes.storage import MODEL_CACHE_NAME

Container = k8s.core.v1.ContainerArgs
Mount = k8s.core.v1.VolumeMountArgs
Probe = k8s.core.v1.ProbeArgs
Volume = k8s.core.v1.VolumeArgs

PRE_STOP_S = 15
"""Time from the deletion of a pod to SIGTERM, during which the kube-proxy of each node removes the pod."""

ENGINE_PRE_STOP_S = REMOVAL_DELAY_S + 5
"""Time from the deletion of an engine's pod to SIGTERM, during which the router stops sending requests. After SIGTERM,
vLLM rejects new requests with HTTP 500."""

STOP_MARGIN_S = 60
"""Time from the end of an engine's own drain to SIGKILL, during which the engine saves caches and sidecars stop."""

TMP_GIB = 8

_MODELS_DIR = "/models"
_DIGEST_CHARS = 10


def create_pod_security_context() -> k8s.core.v1.PodSecurityContextArgs:
    """Return the pod security context that the level ``restricted`` requires."""
    return k8s.core.v1.PodSecurityContextArgs(
        run_as_non_root=True,
        run_as_user=UNPRIVILEGED_UID,
        run_as_group=UNPRIVILEGED_UID,
        fs_group=UNPRIVILEGED_UID,
        fs_group_change_policy="OnRootMismatch",
        seccomp_profile=k8s.core.v1.SeccompProfileArgs(type="RuntimeDefault"),
    )


def create_container_security_context() -> k8s.core.v1.SecurityContextArgs:
    """Return the security context for containers for the level ``restricted``, with a read-only root file system."""
    return k8s.core.v1.SecurityContextArgs(
        allow_privilege_escalation=False,
        read_only_root_filesystem=True,
        capabilities=k8s.core.v1.CapabilitiesArgs(drop=["ALL"]),
    )


@dataclass(frozen=True)
class ContainerResources:
    """Resources of one container. Requests equal limits, so that memory is not overcommitted.

    Attributes:
        cpus: CPUs. The kubelet's static CPU manager pins whole numbers; other containers share the rest.
        memory_gib: Memory, including shared memory that the container writes.
        gpus: Number of whole GPUs.
    """

    cpus: float
    memory_gib: float
    gpus: int = 0

    def to_requirements(self) -> k8s.core.v1.ResourceRequirementsArgs:
        """Return the Kubernetes resource requirements."""
        amounts = {"cpu": format_cpu_quantity(self.cpus), "memory": format_gib_quantity(self.memory_gib)}
        if self.gpus:
            amounts[GPU_RESOURCE] = str(self.gpus)
        return k8s.core.v1.ResourceRequirementsArgs(requests=amounts, limits=amounts)


def format_gib_quantity(gib: float) -> str:
    """Return a Kubernetes quantity, rounded up to whole MiB."""
    return f"{-int(-gib * 1024 // 1)}Mi"


def format_cpu_quantity(cpus: float) -> str:
    return str(int(cpus)) if cpus == int(cpus) else f"{round(cpus * 1000)}m"


@dataclass(frozen=True)
class ContainerSpec:
    """A container of a pod, which runs one process.

    Attributes:
        launcher: Command, environment and files of the process.
        ports: Named ports that other pods can reach; loopback ports are excluded.
        mounts: Mounts in addition to those of every container.
        extra_environment: Variables that depend on the pod and not on the engine.
        environment_sources: Variables whose value Kubernetes resolves from the pod or from a secret.
        pre_stop_s: Delay of SIGTERM.
        pre_stop_command: Program that delays SIGTERM until it exits.
    """

    name: str
    image: pulumi.Input[str]
    launcher: Launcher
    resources: ContainerResources
    ports: Mapping[str, Port]
    startup: Probe | None = None
    liveness: Probe | None = None
    readiness: Probe | None = None
    mounts: Sequence[Mount] = ()
    extra_environment: Mapping[str, pulumi.Input[str]] | None = None
    environment_sources: Mapping[str, k8s.core.v1.EnvVarSourceArgs] | None = None
    pre_stop_s: int = 0
    pre_stop_command: Sequence[str] = ()
    is_sidecar: bool = False

    def to_container_args(self, files: "ConfigFiles") -> Container:
        """Return the Kubernetes container."""
        return Container(
            name=self.name,
            image=self.image,
            command=list(self.launcher.build_command()),
            env=create_env_vars(
                {**self.launcher.build_environment(), **(self.extra_environment or {})}, self.environment_sources
            ),
            ports=[
                k8s.core.v1.ContainerPortArgs(name=name, container_port=port.number, protocol=port.protocol.upper())
                for name, port in self.ports.items()
            ],
            resources=self.resources.to_requirements(),
            security_context=create_container_security_context(),
            startup_probe=self.startup,
            liveness_probe=self.liveness,
            readiness_probe=self.readiness,
            lifecycle=self._build_lifecycle(),
            # A sidecar starts before the engines and stops after them, so that requests drain through it.
            restart_policy="Always" if self.is_sidecar else None,
            termination_message_policy="FallbackToLogsOnError",
            volume_mounts=[create_tmp_mount(), *self.mounts, *files.create_mounts(self.launcher)],
        )

    def _build_lifecycle(self) -> k8s.core.v1.LifecycleArgs | None:
        handler = k8s.core.v1.LifecycleHandlerArgs
        if self.pre_stop_command:
            command = k8s.core.v1.ExecActionArgs(command=list(self.pre_stop_command))
            return k8s.core.v1.LifecycleArgs(pre_stop=handler(exec_=command))
        if self.pre_stop_s:
            sleep = k8s.core.v1.SleepActionArgs(seconds=self.pre_stop_s)
            return k8s.core.v1.LifecycleArgs(pre_stop=handler(sleep=sleep))
        return None


def create_http_probe(port: Port, path: str, *, period_s: int, failures: int, timeout_s: int = 5) -> Probe:
    """Return a probe that sends ``GET`` requests."""
    return Probe(
        http_get=k8s.core.v1.HTTPGetActionArgs(path=path, port=port.number),
        period_seconds=period_s,
        failure_threshold=failures,
        timeout_seconds=timeout_s,
    )


def create_liveness_probe(port: Port, path: str) -> Probe:
    """Return the liveness probe for a program in a caller tier.

    An overloaded program responds late, and calls end anyway after a minute without a response. The kubelet stops
    probing when the pod is deleted (kubernetes/kubernetes, pkg/kubelet/prober/worker.go), so a drain is not
    interrupted.
    """
    return create_http_probe(port, path, period_s=10, failures=6)


class EngineProbes(TypedDict):
    """The probes of an engine."""

    startup: Probe
    liveness: Probe
    readiness: Probe


def create_startup_probe(port: Port) -> Probe:
    """Return the startup probe of vLLM, whose HTTP server responds once the model is loaded."""
    return create_http_probe(port, "/health", period_s=10, failures=ENGINE_STARTUP_TIMEOUT_S // 10)


@dataclass(frozen=True)
class ConfigFiles:
    """The files for a pod's processes, in one ConfigMap.

    The name of the ConfigMap depends on its content, so that a changed file replaces the pods.

    Attributes:
        name: Name of the workload.
        text_by_path: File contents by absolute path.
    """

    name: str
    text_by_path: Mapping[str, str]

    @classmethod
    def from_launchers(cls, name: str, launchers: Sequence[Launcher]) -> "ConfigFiles":
        """Collect the files of the launchers."""
        return cls(name, {path: text for launcher in launchers for path, text in launcher.render_files().items()})

    @property
    def config_map_name(self) -> str:
        content = "".join(f"{path}\0{text}\0" for path, text in sorted(self.text_by_path.items()))
        return f"{self.name}-{hashlib.sha256(content.encode()).hexdigest()[:_DIGEST_CHARS]}"

    def create_config_map(
        self, namespace: pulumi.Input[str], opts: pulumi.ResourceOptions
    ) -> k8s.core.v1.ConfigMap | None:
        if not self.text_by_path:
            return None
        return k8s.core.v1.ConfigMap(
            self.config_map_name,
            metadata=create_metadata(self.config_map_name, namespace),
            immutable=True,
            data={_build_config_map_key(path): text for path, text in self.text_by_path.items()},
            opts=opts,
        )

    def create_volumes(self) -> list[Volume]:
        """Return the volume of the files, or an empty list if there are no files."""
        source = k8s.core.v1.ConfigMapVolumeSourceArgs(name=self.config_map_name)
        return [Volume(name="files", config_map=source)] if self.text_by_path else []

    def create_mounts(self, launcher: Launcher) -> list[Mount]:
        """Return one mount for each file of a process."""
        return [
            Mount(name="files", mount_path=path, sub_path=_build_config_map_key(path), read_only=True)
            for path in launcher.render_files()
        ]


def _build_config_map_key(path: str) -> str:
    return path.strip("/").replace("/", ".")


def create_tolerations(taints: Iterable[Taint]) -> list[k8s.core.v1.TolerationArgs]:
    """Return the tolerations that allow pods to run on nodes with these taints."""
    return [
        k8s.core.v1.TolerationArgs(key=taint.key, operator="Equal", value=taint.value, effect=taint.effect)
        for taint in taints
    ]


def create_env_vars(
    values: Mapping[str, pulumi.Input[str]], sources: Mapping[str, k8s.core.v1.EnvVarSourceArgs] | None = None
) -> list[k8s.core.v1.EnvVarArgs]:
    """Return the variables for a container in sorted order, since a different order would replace the pods."""
    sources = sources or {}
    return [
        k8s.core.v1.EnvVarArgs(
            name=name, value=None if name in sources else values.get(name), value_from=sources.get(name)
        )
        for name in sorted({*values, *sources})
    ]


def create_pod_field_source(field: str) -> k8s.core.v1.EnvVarSourceArgs:
    """Return the source of a variable that contains a field of its pod, such as ``status.podIP``."""
    return k8s.core.v1.EnvVarSourceArgs(field_ref=k8s.core.v1.ObjectFieldSelectorArgs(field_path=field))


def create_tmp_mount() -> Mount:
    """Return the mount for the only writable directory in every container."""
    return Mount(name="tmp", mount_path="/tmp")  # noqa: S108  a volume of the pod


def create_tmp_volume() -> Volume:
    """Return the volume for ``create_tmp_mount``."""
    source = k8s.core.v1.EmptyDirVolumeSourceArgs(size_limit=format_gib_quantity(TMP_GIB))
    return Volume(name="tmp", empty_dir=source)


def create_shared_memory_mount() -> Mount:
    """Return the mount of /dev/shm.

    Without a volume, a container has 64 MiB of shared memory, with which NCCL fails and engines hang.
    """
    return Mount(name="shared-memory", mount_path="/dev/shm")  # noqa: S108  a volume of the pod


def create_shared_memory_volume(gib: float) -> Volume:
    """Return the volume for ``create_shared_memory_mount``. Its content counts as memory of the writing container."""
    source = k8s.core.v1.EmptyDirVolumeSourceArgs(medium="Memory", size_limit=format_gib_quantity(gib))
    return Volume(name="shared-memory", empty_dir=source)


def create_model_cache_mount() -> Mount:
    """Return the mount of weights and compile caches."""
    return Mount(name="models", mount_path=_MODELS_DIR)


def create_model_cache_volume() -> Volume:
    source = k8s.core.v1.PersistentVolumeClaimVolumeSourceArgs(claim_name=MODEL_CACHE_NAME)
    return Volume(name="models", persistent_volume_claim=source)
