"""Typed values for user data, which are validated before a host receives them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from voice_blueprint.contract.environment import (
    DATA_PATH,
    DEPLOYMENT,
    FLEET,
    HOST,
    HOST_ADDRESS,
    HUGE_PAGE_SIZE_MIB,
    INTERFACE,
    REGION,
    RX_QUEUES,
    RX_RING_SIZE,
    VALKEY_HOST_FILE,
    VALKEY_PASSWORD,
    VALKEY_PASSWORD_FILE,
    ZONE,
)
from voice_blueprint.contract.metrics import StartPhase
from voice_blueprint.contract.network import ENA_EXPRESS_MTU, XDP_MTU, Tier

POLL_INTERVAL_S = 5
"""Interval at which a host checks its containers and its metadata."""

HOST_VARIABLES = frozenset(
    v.name for v in (HOST, HOST_ADDRESS, ZONE, INTERFACE, VALKEY_HOST_FILE, VALKEY_PASSWORD_FILE)
)
"""Variables for every container that are only known on the host."""

_NAME_PATTERN = re.compile(r"[a-z][a-z0-9-]*")
_VARIABLE_PATTERN = re.compile(r"[A-Z][A-Z0-9_]*")


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)


def _validate_environment(owner: str, environment: Mapping[str, str]) -> None:
    for name in environment:
        _require(_VARIABLE_PATTERN.fullmatch(name) is not None, f"{owner}: {name!r} is not a valid variable name")
    _require(
        VALKEY_PASSWORD.name not in environment,
        f"{owner}: {VALKEY_PASSWORD.name} is a secret, and every process of the host can read user data",
    )


@dataclass(frozen=True)
class HugePages:
    """Huge pages to reserve; a host that cannot reserve them abandons its launch.

    Attributes:
        size_mib: Page size; with 4 KiB base pages, arm64 supports 2, 32 and 1024 MiB.
        count: Number of pages; together, at most 80 % of the host's memory.
    """

    size_mib: int
    count: int


@dataclass(frozen=True)
class LifecycleHooks:
    """The lifecycle hooks of the Auto Scaling group. The default result of both hooks must be ``ABANDON``.

    Attributes:
        launch_hook_name: Name of the hook on ``EC2_INSTANCE_LAUNCHING``.
        terminate_hook_name: Name of the hook on ``EC2_INSTANCE_TERMINATING``.
        heartbeat_timeout_s: Heartbeat timeout of both hooks. No heartbeat is sent while an image is pulled.
        ready_budget_s: Maximum time from the start of the containers until they are ready.
        drain_budget_s: Maximum time to finish sessions; after a spot notice, at most 100 s.
    """

    launch_hook_name: str
    terminate_hook_name: str
    heartbeat_timeout_s: int
    ready_budget_s: int
    drain_budget_s: int

    def __post_init__(self) -> None:
        _require(
            self.heartbeat_timeout_s >= 3 * POLL_INTERVAL_S,
            f"heartbeat_s={self.heartbeat_timeout_s} is shorter than three polls of {POLL_INTERVAL_S} s",
        )

    @property
    def heartbeat_interval_s(self) -> int:
        """A third of the heartbeat timeout, rounded down to whole polls, so that two heartbeats may be lost."""
        return self.heartbeat_timeout_s // 3 // POLL_INTERVAL_S * POLL_INTERVAL_S


@dataclass(frozen=True)
class StateStoreConnection:
    """Address and credentials of the state store for a host.

    Attributes:
        host_parameter: Name of the Systems Manager parameter with the store's endpoint.
        secret_arn: ARN of the JSON secret in Secrets Manager with the password of the tier's Valkey user.
        password_field: Field of the secret that contains the password.
    """

    host_parameter: str
    secret_arn: str
    password_field: str


@dataclass(frozen=True)
class AfXdpDataPath:
    """AF_XDP on the primary interface."""

    rx_queues: int
    rx_ring_size: int


@dataclass(frozen=True)
class VfioDataPath:
    """DPDK's own driver on the interface with device number 1.

    Attributes:
        rx_queues: Number of polled receive queues.
        rx_ring_size: Descriptors per queue.
        ip_target_group_arn: Target group of type ``ip`` in which the host registers the interface's address, since Auto
            Scaling only registers primary interfaces.
    """

    rx_queues: int
    rx_ring_size: int
    ip_target_group_arn: str | None = None


@dataclass(frozen=True)
class Mount:
    """A host directory mounted into a container. The host creates a writable directory for the container's user."""

    source: str
    target: str
    is_writable: bool = False


@dataclass(frozen=True)
class PortReadinessCheck:
    """Readiness check for a container: a TCP port on the host must accept connections.

    Attributes:
        path: Path that must respond with HTTP 200; empty if a connection is sufficient.
    """

    number: int
    path: str = ""


@dataclass(frozen=True)
class CommandReadinessCheck:
    """Readiness check for a container: a command that runs inside the container must succeed."""

    command: str
    interval_s: int = POLL_INTERVAL_S


@dataclass(frozen=True)
class Container:
    """A container in the host's network, with a read-only root file system and by default no capabilities.

    Attributes:
        name: Name of the container, its systemd unit and its log stream.
        image_uri: Image in an ECR registry, by digest.
        environment: Variables in addition to those of the host (``HostUserDataConfig.variables_for``).
        health: Readiness check.
        user_id: User of the container, which owns the container's copy of the password.
        supplementary_group_ids: Additional groups of that user, for sockets and devices of other users.
        capabilities: Linux capabilities to add, without ``CAP_``.
        devices: Additional device files.
        mounts: Mounted host directories.
        uses_hardware: Whether the container receives the resources of the data path or accelerator: huge pages and
            locked memory, the VFIO group, Neuron devices, or GPUs.
        shared_memory_mib: Size of ``/dev/shm``; Docker's default is 64.
        arguments: Arguments of the image's entry point.
        start_log_prefix_by_phase: Log text that precedes the seconds of each start-up phase, for the container that
            determines the host's start-up time. Empty if that container logs no phases; ``None`` for all other
            containers.
    """

    name: str
    image_uri: str
    environment: Mapping[str, str]
    health: PortReadinessCheck | CommandReadinessCheck
    user_id: int = 0
    supplementary_group_ids: tuple[int, ...] = ()
    capabilities: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    mounts: tuple[Mount, ...] = ()
    uses_hardware: bool = False
    shared_memory_mib: int | None = None
    arguments: tuple[str, ...] = ()
    start_log_prefix_by_phase: Mapping[StartPhase, str] | None = None

    def __post_init__(self) -> None:
        _require(
            _NAME_PATTERN.fullmatch(self.name) is not None,
            f"container name {self.name!r} must be lower-case words with hyphens, such as vad-dataplane",
        )
        _require(
            "@sha256:" in self.image_uri or "${Token[" in self.image_uri,
            f"{self.name}: image {self.image_uri} has no digest: hosts would run different images if its tag moves",
        )
        _validate_environment(self.name, self.environment)
        for mount in self.mounts:
            _require(" " not in mount.source, f"{self.name}: mount {mount.source!r} has a space")
        for text in (self.start_log_prefix_by_phase or {}).values():
            _require(not set(text) & set("|=\\"), f"{self.name}: start_log_prefix_by_phase {text!r} has one of | = \\")


@dataclass(frozen=True)
class Artifacts:
    """Artifacts that a fleet's job uploads for the fleet's hosts.

    Attributes:
        source: Location, ``s3://bucket/name``.
        directory: Directory on the host, which is the cache of its engine.
        user_id: Owner of the files.
    """

    source: str
    directory: str
    user_id: int


@dataclass(frozen=True)
class HostUserDataConfig:
    """All values of one fleet's user data.

    Attributes:
        deployment: Name of the deployment.
        fleet: Name of the fleet.
        tier: Tier; the first part of every log stream's name.
        region: Region of all AWS calls.
        auto_scaling_group: Literal name of the group. A reference would be circular, since the group refers to the
            launch template, which contains this value.
        hooks: Lifecycle hooks of the group.
        containers: Containers. Telemetry is last, since it is stopped after the other containers have drained.
        log_group: CloudWatch log group of hosts and containers.
        state: Access to the state store.
        environment: Variables of every container, such as the port of the state store.
        mtu: MTU of the primary interface; ``None`` for EC2's default of 9001.
        huge_pages: Huge pages reserved at every boot.
        ena_express: Whether the host is configured for ENA Express, and abandons its launch without it.
        data_path: Receive path of audio packets.
        instance_store_mount: Mount path of the local NVMe disks, as RAID 0 if there are several.
        accelerator: Devices that must be visible before containers start.
        artifacts: Artifacts to download before containers start; ``None`` if engines download from a hub.
        signing_key: Key that must have signed an image before it is pulled, as returned by
            ``voice_blueprint.signing.extract_pem_body``; ``None`` disables verification.
    """

    deployment: str
    fleet: str
    tier: Tier
    region: str
    auto_scaling_group: str
    hooks: LifecycleHooks
    containers: tuple[Container, ...]
    log_group: str
    state: StateStoreConnection
    environment: Mapping[str, str] = field(default_factory=dict)
    mtu: int | None = None
    huge_pages: HugePages | None = None
    ena_express: bool = False
    data_path: AfXdpDataPath | VfioDataPath | None = None
    instance_store_mount: str | None = None
    accelerator: Literal["neuron", "gpu"] | None = None
    artifacts: Artifacts | None = None
    signing_key: str | None = None

    def __post_init__(self) -> None:
        names = [container.name for container in self.containers]
        _require(bool(names), "a host requires at least one container")
        _require(len(set(names)) == len(names), f"container names repeat: {', '.join(names)}")
        timed = [container.name for container in self.containers if container.start_log_prefix_by_phase is not None]
        _require(len(timed) <= 1, f"only one container can report start-up phases, not {', '.join(timed)}")
        _require(
            not (self.data_path and self.accelerator),
            "a host has either a packet data path or an accelerator, since 'hardware' of a container refers to one "
            "of them",
        )
        if isinstance(self.data_path, AfXdpDataPath):
            self._check_mtu(XDP_MTU, "native XDP on ENA")
        if self.ena_express:
            self._check_mtu(ENA_EXPRESS_MTU, "ENA Express")
        _validate_environment(self.fleet, self.environment)
        self._reject_reserved_variables(
            self.fleet, self.environment, HOST_VARIABLES | self._build_own_environment().keys()
        )
        for container in self.containers:
            self._reject_reserved_variables(
                container.name, container.environment, HOST_VARIABLES | self.shared_environment.keys()
            )

    @staticmethod
    def _reject_reserved_variables(owner: str, environment: Mapping[str, str], reserved: frozenset[str]) -> None:
        overridden = sorted(environment.keys() & reserved)
        _require(not overridden, f"{owner}: {', '.join(overridden)} is set by HostUserDataConfig or by the host")

    def _check_mtu(self, limit: int, name: str) -> None:
        mtu = self.mtu or 9001
        _require(mtu <= limit, f"{name} supports an MTU of at most {limit}, not {mtu}: set mtu")

    @property
    def timed_container(self) -> Container | None:
        """The container whose start-up phases are measured."""
        return next(
            (container for container in self.containers if container.start_log_prefix_by_phase is not None), None
        )

    @property
    def shared_environment(self) -> dict[str, str]:
        """Variables for every container, derived from the values above."""
        return {**self._build_own_environment(), **self.environment}

    def _build_own_environment(self) -> dict[str, str]:
        own = {DEPLOYMENT.name: self.deployment, FLEET.name: self.fleet, REGION.name: self.region}
        if self.data_path:
            own[DATA_PATH.name] = "af_xdp" if isinstance(self.data_path, AfXdpDataPath) else "vfio"
            own[RX_QUEUES.name] = str(self.data_path.rx_queues)
            own[RX_RING_SIZE.name] = str(self.data_path.rx_ring_size)
        if self.huge_pages:
            own[HUGE_PAGE_SIZE_MIB.name] = str(self.huge_pages.size_mib)
        return own

    def list_variable_names(self, container: Container) -> frozenset[str]:
        """Return the names of all variables that a container receives: the host's, the shared ones and its own."""
        return HOST_VARIABLES | self.shared_environment.keys() | container.environment.keys()


@dataclass(frozen=True)
class HostImageConfig:
    """Values for building a host image on AWS's base image.

    Attributes:
        images: Container image URIs with digests, by name.
        huge_pages: Huge pages that the kernel reserves at boot.
        vfio_drivers: Commit of amzn-drivers whose patch adds write combining to vfio-pci, or ``None``.
        signing_key: As in ``HostUserDataConfig``.
    """

    region: str
    images: Mapping[str, str]
    huge_pages: HugePages | None = None
    vfio_drivers: str | None = None
    signing_key: str | None = None


@dataclass(frozen=True)
class PreparationJob:
    """A job in which an engine downloads and compiles its model, for the hosts of its fleet.

    Attributes:
        image: Name of the engine's image, and the URI of the image with its digest.
        command: Arguments of the engine's container, including the program.
        cache_mount_path: Path of the cache in the container.
        signing_key: As in ``HostUserDataConfig``.
    """

    region: str
    image: tuple[str, str]
    command: tuple[str, ...]
    environment: Mapping[str, str]
    artifacts: Artifacts
    cache_mount_path: str
    instance_store_mount: str | None = None
    accelerator: Literal["neuron", "gpu"] | None = None
    shared_memory_mib: int | None = None
    signing_key: str | None = None
