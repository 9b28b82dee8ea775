"""What a host is told at first boot, as typed values. A value that a host would trip over is refused here."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from blueprint.contract.environment import (
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
from blueprint.contract.metrics import StartPhase
from blueprint.contract.network import ENA_EXPRESS_MTU, XDP_MTU, Tier

POLL_S = 5
"""How often a host looks at its containers and at its metadata."""

SET_ON_THE_HOST = frozenset(
    v.name for v in (HOST, HOST_ADDRESS, ZONE, INTERFACE, VALKEY_HOST_FILE, VALKEY_PASSWORD_FILE)
)
"""Variables that every container gets and whose values only the host knows."""

_NAME = re.compile(r"[a-z][a-z0-9-]*")
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*")


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ValueError(otherwise)


def _check_variables(of: str, environment: Mapping[str, str]) -> None:
    for name in environment:
        _require(_VARIABLE.fullmatch(name) is not None, f"{of}: {name!r} is no variable name")
    _require(
        VALKEY_PASSWORD.name not in environment,
        f"{of}: {VALKEY_PASSWORD.name} in user data can be read by every process of the host",
    )


@dataclass(frozen=True)
class HugePages:
    """Huge pages to reserve; a host that cannot abandons its launch.

    Attributes:
        size_mib: Size of one page; with 4 KiB base pages arm64 has 2, 32 and 1024 MiB.
        count: Pages, at most 80 % of the host's memory.
    """

    size_mib: int
    count: int


@dataclass(frozen=True)
class LifecycleHooks:
    """The hooks of the Auto Scaling group. Give both the default result ``ABANDON``.

    Attributes:
        launch: Name of the hook on ``EC2_INSTANCE_LAUNCHING``.
        terminate: Name of the hook on ``EC2_INSTANCE_TERMINATING``.
        heartbeat_s: Heartbeat timeout of both. No heartbeat is sent during the pull of one image.
        ready_budget_s: Time that the containers have, once started, to report ready.
        drain_budget_s: Time that they have to finish sessions in; a spot notice leaves them 100 s at most.
    """

    launch: str
    terminate: str
    heartbeat_s: int
    ready_budget_s: int
    drain_budget_s: int

    def __post_init__(self) -> None:
        _require(
            self.heartbeat_s >= 3 * POLL_S,
            f"heartbeat_s={self.heartbeat_s} is shorter than three polls of {POLL_S} s",
        )

    @property
    def heartbeat_every_s(self) -> int:
        """A third of the timeout, in whole polls, so that two may be lost."""
        return self.heartbeat_s // 3 // POLL_S * POLL_S


@dataclass(frozen=True)
class StateAccess:
    """How a host finds the state store, and is let in.

    Attributes:
        host_parameter: Name of the parameter in Systems Manager that has the store's endpoint.
        secret_arn: JSON secret in Secrets Manager of the tier's Valkey user.
        field: Field of the password in it.
    """

    host_parameter: str
    secret_arn: str
    field: str


@dataclass(frozen=True)
class AfXdp:
    """AF_XDP on the primary interface."""

    rx_queues: int
    rx_ring_size: int


@dataclass(frozen=True)
class Vfio:
    """DPDK's own driver on the interface with device number 1.

    Attributes:
        rx_queues: Receive queues that are polled.
        rx_ring_size: Descriptors in each.
        ip_target_group_arn: Target group of type ``ip`` that the host registers the interface's address with, since
            Auto Scaling registers primary interfaces only.
    """

    rx_queues: int
    rx_ring_size: int
    ip_target_group_arn: str | None = None


@dataclass(frozen=True)
class Mount:
    """A directory of the host in a container. A writable one is made, and owned by the container's user."""

    source: str
    target: str
    writable: bool = False


@dataclass(frozen=True)
class HealthPort:
    """The container is ready when this TCP port of the host answers."""

    number: int


@dataclass(frozen=True)
class HealthCommand:
    """The container is ready when this command, run inside it, succeeds."""

    command: str
    interval_s: int = POLL_S


@dataclass(frozen=True)
class Container:
    """A container of the host, on the host's network, with a read-only root and no capability by default.

    Attributes:
        name: Names the container, its systemd unit and its log stream.
        image_uri: In an ECR registry, by digest.
        environment: Its own variables, beside those of the host (``HostBoot.variables_of``).
        health: How it is seen to be ready.
        user_id: The user it runs as; its copy of the password belongs to that user.
        groups: Further groups of that user, for sockets and devices of others.
        capabilities: Linux capabilities to add, without ``CAP_``.
        devices: Further device files.
        mounts: Directories of the host.
        hardware: Gets what the data path or accelerator of the host takes: huge pages and locked memory, the VFIO
            group, the Neuron devices, the GPUs.
        shared_memory_mib: Size of ``/dev/shm``; Docker's default is 64.
        arguments: Arguments of the image's entry point.
        start_log: For the container whose start is what the host waits for: what its log says right before the seconds
            of a phase, by phase. Empty where the log says nothing, ``None`` for every other container.
    """

    name: str
    image_uri: str
    environment: Mapping[str, str]
    health: HealthPort | HealthCommand
    user_id: int = 0
    groups: tuple[int, ...] = ()
    capabilities: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    mounts: tuple[Mount, ...] = ()
    hardware: bool = False
    shared_memory_mib: int | None = None
    arguments: tuple[str, ...] = ()
    start_log: Mapping[StartPhase, str] | None = None

    def __post_init__(self) -> None:
        _require(_NAME.fullmatch(self.name) is not None, f"container name {self.name!r} is not like vad-dataplane")
        _require(
            "@sha256:" in self.image_uri or "${Token[" in self.image_uri,
            f"{self.name}: image {self.image_uri} is not by digest: a host would run what the tag means that day",
        )
        _check_variables(self.name, self.environment)
        for mount in self.mounts:
            _require(" " not in mount.source, f"{self.name}: mount {mount.source!r} has a space")
        for text in (self.start_log or {}).values():
            _require(not set(text) & set("|=\\"), f"{self.name}: start_log {text!r} has one of | = \\")


@dataclass(frozen=True)
class Artifacts:
    """What the job of a fleet has left for its hosts, or is to leave.

    Attributes:
        source: Where it lies, ``s3://bucket/name``.
        directory: Where a host has it, which its engine has as its cache.
        user_id: Whom it belongs to there.
    """

    source: str
    directory: str
    user_id: int


@dataclass(frozen=True)
class HostBoot:
    """All that one fleet's hosts are told.

    Attributes:
        deployment: Name of the deployment.
        fleet: Name of the fleet.
        tier: Its tier; first part of every log stream's name.
        region: Region of every AWS call.
        auto_scaling_group: The group's literal name. A reference would be a cycle: the group refers to the launch
            template, which holds this.
        hooks: Its lifecycle hooks.
        containers: What runs, telemetry last: it is stopped when the others have drained.
        log_group: CloudWatch log group of hosts and containers.
        state: Access to the state store.
        environment: Variables of every container, such as the port of the state store.
        mtu: MTU of the primary interface; ``None`` leaves EC2's 9001.
        huge_pages: Reserved at every boot.
        ena_express: Sets the host up for ENA Express and refuses to serve without it.
        data_path: How audio packets are received.
        instance_store_mount: Where the local NVMe disks are mounted, as RAID 0 when there are several.
        accelerator: What must be visible before containers start.
        artifacts: What is fetched before they do; ``None`` where engines fetch from a hub.
        signing_key: The key that has to have signed an image before it is pulled, as ``blueprint.signing.key_line``
            gives it; ``None`` pulls what the digests name.
    """

    deployment: str
    fleet: str
    tier: Tier
    region: str
    auto_scaling_group: str
    hooks: LifecycleHooks
    containers: tuple[Container, ...]
    log_group: str
    state: StateAccess
    environment: Mapping[str, str] = field(default_factory=dict)
    mtu: int | None = None
    huge_pages: HugePages | None = None
    ena_express: bool = False
    data_path: AfXdp | Vfio | None = None
    instance_store_mount: str | None = None
    accelerator: Literal["neuron", "gpu"] | None = None
    artifacts: Artifacts | None = None
    signing_key: str | None = None

    def __post_init__(self) -> None:
        names = [container.name for container in self.containers]
        _require(bool(names), "a host without containers serves nobody")
        _require(len(set(names)) == len(names), f"container names repeat: {', '.join(names)}")
        timed = [container.name for container in self.containers if container.start_log is not None]
        _require(len(timed) <= 1, f"phases are told of one container's start, not of {', '.join(timed)}")
        _require(
            not (self.data_path and self.accelerator),
            "a host has a packet data path or an accelerator, not both: containers ask for 'hardware' as one",
        )
        if isinstance(self.data_path, AfXdp):
            self._limit_mtu(XDP_MTU, "native XDP on ENA")
        if self.ena_express:
            self._limit_mtu(ENA_EXPRESS_MTU, "ENA Express")
        _check_variables(self.fleet, self.environment)
        self._check_taken(self.fleet, self.environment, SET_ON_THE_HOST | self._own_environment().keys())
        for container in self.containers:
            self._check_taken(container.name, container.environment, SET_ON_THE_HOST | self.shared_environment.keys())

    @staticmethod
    def _check_taken(of: str, environment: Mapping[str, str], taken: frozenset[str]) -> None:
        twice = sorted(environment.keys() & taken)
        _require(not twice, f"{of}: {', '.join(twice)} is set from HostBoot or by the host")

    def _limit_mtu(self, limit: int, what: str) -> None:
        mtu = self.mtu or 9001
        _require(mtu <= limit, f"{what} takes an MTU of {limit} at most, not {mtu}: set mtu")

    @property
    def starting(self) -> Container | None:
        """The container whose start is told by phases."""
        return next((container for container in self.containers if container.start_log is not None), None)

    @property
    def shared_environment(self) -> dict[str, str]:
        """Variables that every container gets from the values above."""
        return {**self._own_environment(), **self.environment}

    def _own_environment(self) -> dict[str, str]:
        own = {DEPLOYMENT.name: self.deployment, FLEET.name: self.fleet, REGION.name: self.region}
        if self.data_path:
            own[DATA_PATH.name] = "af_xdp" if isinstance(self.data_path, AfXdp) else "vfio"
            own[RX_QUEUES.name] = str(self.data_path.rx_queues)
            own[RX_RING_SIZE.name] = str(self.data_path.rx_ring_size)
        if self.huge_pages:
            own[HUGE_PAGE_SIZE_MIB.name] = str(self.huge_pages.size_mib)
        return own

    def variables_of(self, container: Container) -> frozenset[str]:
        """Names of all variables that a container will have."""
        return SET_ON_THE_HOST | self.shared_environment.keys() | container.environment.keys()


@dataclass(frozen=True)
class Bake:
    """What a host image is made of, beside AWS's own image.

    Attributes:
        images: Container images by digest, by name.
        huge_pages: Huge pages that the kernel takes at boot.
        vfio_drivers: Commit of amzn-drivers whose patch gives vfio-pci write combining; ``None`` leaves it out.
        signing_key: As of a host.
    """

    region: str
    images: Mapping[str, str]
    huge_pages: HugePages | None = None
    vfio_drivers: str | None = None
    signing_key: str | None = None


@dataclass(frozen=True)
class Preparation:
    """A job that has an engine fetch and compile its model, and leaves the result to the hosts of its fleet.

    Attributes:
        image: Name of the engine's image, and the image by digest.
        command: Arguments of its container, the program among them.
        mounted_at: Where the container has its cache.
        signing_key: As of a host.
    """

    region: str
    image: tuple[str, str]
    command: tuple[str, ...]
    environment: Mapping[str, str]
    artifacts: Artifacts
    mounted_at: str
    instance_store_mount: str | None = None
    accelerator: Literal["neuron", "gpu"] | None = None
    shared_memory_mib: int | None = None
    signing_key: str | None = None
