"""The `aws` section of a deployment file."""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, ValidationError, field_validator, model_validator

from voice_blueprint.base import Model
from voice_blueprint.file.errors import SettingError
from voice_blueprint.file.model.agents import AwsAgents
from voice_blueprint.file.model.base import (
    HostCount,
    check_unique_ids,
    find_first_duplicate_index,
    format_construct_id,
    parse_private_network,
)
from voice_blueprint.file.model.edge import Edge
from voice_blueprint.file.model.known import AwsRegion, InstanceTypeName, NodeTypeName
from voice_blueprint.file.model.load import MeasuredCapacity
from voice_blueprint.file.model.observability import LogRetentionDays, Observability
from voice_blueprint.file.model.scaling import ScalingRules
from voice_blueprint.file.model.serving import VllmOptions
from voice_blueprint.file.model.text import (
    AccountId,
    AwsZone,
    HubRepository,
    MachineImage,
    Name,
    ReservationId,
    Revision,
    SnapshotName,
    VpcEndpointName,
)
from voice_blueprint.file.source import Location


class Network(Model):
    """The VPC, with public, private and isolated subnets in every availability zone."""

    cidr: str = "10.40.0.0/16"
    """IPv4 range of the VPC, /16 to /24."""
    nat_gateways: int = Field(default=1, ge=0)
    """Number of NAT gateways, each in its own availability zone."""
    interface_endpoints: tuple[VpcEndpointName, ...] = ()
    """AWS services for which an interface VPC endpoint is created, such as ``ecr.dkr``. AWS charges for each endpoint
    per hour and zone."""
    flow_log_retention_days: LogRetentionDays = 30
    """Retention of the VPC flow logs, days."""

    @field_validator("cidr")
    @classmethod
    def _check_network(cls, value: str) -> str:
        network = parse_private_network(value)
        if not 16 <= network.prefixlen <= 24:  # noqa: PLR2004  the bounds are EC2's for a VPC, less what subnets need
            raise ValueError(f"{value} is a /{network.prefixlen}; a VPC here is a /16 to a /24")
        return value


class StateStore(Model):
    """ElastiCache for Valkey, which stores session state, the host registry and transcript streams."""

    node_type: NodeTypeName
    """ElastiCache node type of the catalogue, such as ``cache.r7g.large``."""
    engine_version: Literal["7.2", "8.0", "8.1"] = "8.1"
    """Version of Valkey. A newer version upgrades the store in place; a downgrade requires a restore from a
    snapshot."""
    replicas: int = Field(default=1, ge=0, le=5)
    """Replicas of the primary node. With at least one, the store survives the loss of a zone."""
    snapshot_retention_days: int = Field(default=1, ge=0, le=35)
    """Retention of daily snapshots, days. 0 disables them."""
    restore_from: SnapshotName | None = None
    """Snapshot from which the store is created. Keep the setting after a restore, because changing or removing it
    replaces the store, as ``voice restore`` shows. Automatic snapshots are not accepted, because ElastiCache deletes
    them with their store. ``voice restore --take --source-snapshot`` copies one under an accepted name."""

    @field_validator("restore_from")
    @classmethod
    def _check_retention(cls, value: str | None) -> str | None:
        if value and value.startswith("automatic."):
            raise ValueError(
                f"{value} is deleted with its store: "
                f"keep it with `voice restore FILE --take NAME --source-snapshot {value}`"
            )
        return value


class HugePages(Model):
    """Memory that DPDK reserves at boot."""

    size_mib: Literal[2, 32, 1024] = 2
    """Page size, MiB. Arm64 kernels with 4 KiB base pages support these sizes."""
    count: int = Field(gt=0)
    """Pages to reserve on each host."""


class EnaExpress(Model):
    """ENA Express: AWS's Scalable Reliable Datagram protocol between two network interfaces in one region."""

    enabled: bool = False
    """Whether TCP between hosts uses ENA Express. The instance type must support it."""
    udp: bool = False
    """Whether UDP between hosts also uses ENA Express. Both ends must enable it."""

    @model_validator(mode="after")
    def _check_udp(self) -> "EnaExpress":
        if self.udp and not self.enabled:
            raise SettingError(("udp",), "udp: true needs enabled: true")
        return self


class DataPathMode(StrEnum):
    """Packet path of the data plane."""

    AF_XDP = "af_xdp"
    """XDP on the primary interface, redirecting audio to AF_XDP sockets that DPDK polls."""
    VFIO = "vfio"
    """DPDK's ENA driver on a dedicated secondary interface. Requires a `machine_image` built by Image Builder."""


class DataPath(Model):
    """Packet path of a VAD host."""

    mode: DataPathMode = DataPathMode.AF_XDP
    mtu: int = Field(default=3498, ge=1280, le=9001)
    """MTU of the interface, bytes. Checks enforce the lower limits of XDP and ENA Express."""
    rx_queues: int = Field(default=4, gt=0)
    """Receive queues to poll. Each one uses a core."""
    rx_ring_size: int = Field(default=256, gt=0)
    """Descriptors in each receive ring."""


VolumeSize = Annotated[int, Field(ge=30, le=16_000)]
"""Size of a root volume, GiB. Image Builder's recipes accept no larger one.
https://docs.aws.amazon.com/imagebuilder/latest/APIReference/API_EbsInstanceBlockDeviceSpecification.html"""
VolumeThroughput = Annotated[int, Field(ge=125, le=2000)]
"""Throughput of a gp3 volume, MiB/s. 125 is included in its price; 2000 is the maximum.
https://docs.aws.amazon.com/ebs/latest/userguide/general-purpose.html"""


class VadFleet(Model):
    """Graviton4 hosts that receive RTP and split it into chunks of speech, in one Auto Scaling group per zone."""

    instance_type: InstanceTypeName
    """EC2 instance type of the catalogue, such as ``c8g.12xlarge``."""
    hosts_per_zone: HostCount
    huge_pages: HugePages
    ena_express: EnaExpress = EnaExpress()
    data_path: DataPath = DataPath()
    machine_image: MachineImage | None = None
    """Machine image: an AMI id, or an SSM parameter with its version, such as ``/voice/production/vad:3``. The default
    is AWS's latest image, which any deploy may update; ``voice images ami`` proposes one to pin."""
    root_volume_gib: VolumeSize = 40
    """Size of the root volume, which stores the container images, GiB."""
    root_volume_mib_per_s: VolumeThroughput = 125
    """Throughput of the root volume, MiB per second, which limits how fast images are unpacked at first boot. The
    volume has four IOPS per MiB/s, and at least the 3,000 that are included in its price."""
    drain_timeout_s: int = Field(default=600, ge=30, le=7200)
    """Maximum time for a terminating host to hand over its sessions, seconds."""
    warm_up_s: int = Field(default=120, ge=0, le=3600)
    """Time from launch until a host serves calls, seconds. Scaling excludes the host from metrics until then."""
    measured: MeasuredCapacity | None = None
    """Measured calls per host. The default is an assumption per polled core."""
    scaling: ScalingRules


class OnDemand(Model):
    """On-demand capacity, billed by the second and not guaranteed."""

    option: Literal["on-demand"] = "on-demand"


class Spot(Model):
    """Spare capacity, reclaimed with two minutes' notice."""

    option: Literal["spot"]


class CapacityReservation(Model):
    """An On-Demand Capacity Reservation (ODCR) that already exists."""

    option: Literal["capacity-reservation"]
    reservation_id: ReservationId
    """Id of the reservation, such as ``cr-0123456789abcdef0``."""


class CapacityBlock(Model):
    """A purchased Capacity Block for ML, in one zone and for a fixed term."""

    option: Literal["capacity-block"]
    reservation_id: ReservationId
    """Id of the block's reservation, such as ``cr-0123456789abcdef0``."""


PurchaseOption = Annotated[OnDemand | Spot | CapacityReservation | CapacityBlock, Field(discriminator="option")]


class WarmPool(Model):
    """Stopped hosts that have already booted and pulled their images. AWS charges only for their volumes."""

    size: int = Field(gt=0)
    """Hosts to keep in the pool, regardless of the number in service. A host that leaves the pool is replaced."""


class Rollout(Model):
    """Instance refresh that a deploy runs when images, user data or the machine image have changed."""

    surge_percent: int = Field(default=10, ge=1, le=100)
    """Percentage of the desired capacity to launch before the same number of old hosts is terminated, at least one
    host. Fleets on a reservation or Capacity Block have no spare capacity, so old hosts are terminated first."""
    checkpoint_percentages: tuple[Annotated[int, Field(ge=1, le=99)], ...] = (10, 50)
    """Checkpoints, as percentages of hosts replaced. The refresh pauses at each one, so that alarms and probes can
    detect a fault."""
    checkpoint_pause_s: int = Field(default=600, ge=0, le=172800)
    """Duration of the pause at each checkpoint, seconds."""
    bake_s: int = Field(default=600, ge=0, le=172800)
    """Time after the last host is replaced during which an alarm still triggers a rollback, seconds."""

    @field_validator("checkpoint_percentages")
    @classmethod
    def _check_ascending(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if list(value) != sorted(set(value)):
            raise ValueError(f"checkpoints must be in ascending order: {', '.join(map(str, sorted(set(value))))}")
        return value


class HostImages(Model):
    """An EC2 Image Builder pipeline for each fleet, so that hosts do not install or pull anything at boot.

    Start pipelines manually (docs/runbooks/procedures/patching.md). AWS charges for the build instance while a pipeline
    runs.
    """

    vfio: bool = False
    """Whether to install vfio-pci with write combining in the VAD fleet's image, as `mode: vfio` requires."""


class Engine(StrEnum):
    """Speech recognition engine of an ASR host."""

    WHISPER = "whisper"
    """Our engine: encoder and decoder workers on CTranslate2 or Neuron."""
    VLLM = "vllm"
    """vLLM on the loopback interface, for models that our engine does not support."""


STACK_SUFFIXES = ("network", "registry", "state", "vad", "asr", "host-images", "edge", "agents", "observability")
"""Suffixes of stack names, except those of ASR fleets."""
RESERVED_CONSTRUCT_IDS = ("file", "profile", "role")
"""Lower-case ids of other constructs in the same scope as those named after a fleet."""


class AsrFleet(Model):
    """Hosts that transcribe speech, in one Auto Scaling group."""

    name: Name
    """Name of the fleet, unique in the file. Names of hosts, metrics and alarms contain it."""
    instance_type: InstanceTypeName
    """EC2 instance type of the catalogue, with Neuron devices or GPUs, such as ``inf2.48xlarge``. Graviton types such
    as ``c8g.xlarge`` serve a small model on CPUs for a few calls."""
    hosts: HostCount
    engine: Engine = Engine.WHISPER
    vllm: VllmOptions | None = None
    """Model that vLLM serves. Required with `engine: vllm`, and not allowed otherwise."""
    model: HubRepository | None = None
    """Hugging Face repository of the Whisper model, for `engine: whisper`. GPUs and CPUs require CTranslate2's format,
    and Neuron requires one of OpenAI's repositories. The default is tiny.en on CPUs and large-v2 otherwise. With
    another model, VAD hosts send samples instead of log-mel features, because only the engine knows the model's number
    of mel bins."""
    revision: Revision | None = None
    """Commit of the model's repository. The default is the latest."""
    artifacts: bool = False
    """Whether hosts fetch weights and compiled programs from the deployment's bucket instead of downloading weights
    from a model hub and compiling programs. The fleet's job uploads them once for each image, model, revision and
    instance type (docs/runbooks/procedures/artifacts.md)."""
    measured: MeasuredCapacity | None = None
    """Measured calls per host. The default is the number that fits in its memory, or an assumption for its cores."""
    purchase: PurchaseOption = OnDemand()
    """Purchase option: On-Demand, spot, a reservation or a Capacity Block."""
    availability_zones: tuple[AwsZone, ...] | None = None
    """Availability zones of this fleet. The default is all zones of the deployment."""
    warm_pool: WarmPool | None = None
    machine_image: MachineImage | None = None
    """Machine image: an AMI id, or an SSM parameter with its version, such as ``/voice/production/inf2:3``. The default
    is AWS's latest image, which any deploy may update; ``voice images ami`` proposes one to pin."""
    root_volume_gib: VolumeSize = 200
    """Size of the root volume, which stores the container images, GiB."""
    root_volume_mib_per_s: VolumeThroughput = 125
    """Throughput of the root volume, MiB per second. At the default, a 25 GiB image is unpacked in three minutes. The
    volume has four IOPS per MiB/s, and at least the 3,000 that are included in its price."""
    drain_timeout_s: int = Field(default=900, ge=30, le=7200)
    """Maximum time for a terminating host to finish its sessions, seconds."""
    warm_up_s: int = Field(default=300, ge=0, le=3600)
    """Time from launch until a host serves calls, seconds. Scaling excludes the host from metrics until then."""
    scaling: ScalingRules

    @model_validator(mode="after")
    def _check_vllm_options(self) -> "AsrFleet":
        if (self.engine is Engine.VLLM) != (self.vllm is not None):
            raise ValueError("`engine: vllm` requires `vllm`, and other engines do not accept it")
        if self.vllm and self.model:
            raise ValueError("`model` is only for `engine: whisper`; vLLM's is `vllm.model`")
        if self.vllm and self.revision:
            raise ValueError("`revision` is only for `engine: whisper`; vLLM's is `vllm.revision`")
        return self


class OtherRegion(Model):
    """Another region with a copy of the section `aws`. Settings omitted here are inherited from the first region.

    Resource names end in the region, and callers connect to ``api.<region>.<name>`` and ``media.<region>.<name>``.
    Regions share only the DNS zone. A call stays in the region in which it was opened, and each region is sized for all
    callers.
    """

    region: AwsRegion
    """AWS region of the catalogue, different from the other regions."""
    availability_zones: tuple[AwsZone, ...] = Field(min_length=1)
    """Zones of that region."""
    network: Network | None = None
    """VPC of that region, if it differs. The VPCs are not connected, so their ranges may overlap."""
    state: StateStore | None = None
    """State store of that region, if it differs. `restore_from` is not inherited, since snapshots are regional."""
    vad: VadFleet | None = None
    """VAD fleet of that region, if its instance type or machine image differs."""
    asr: tuple[AsrFleet, ...] | None = None
    """All ASR fleets of that region, if instance types, reservations or machine images differ."""

    def overrides(self, location: Location) -> bool:
        """Return True if this region overrides a setting of the section `aws`."""
        return location[:1] == ("aws",) and any(getattr(self, str(name), None) is not None for name in location[1:2])


class Aws(Model):
    """Everything that is deployed to AWS."""

    region: AwsRegion
    """AWS region of the catalogue, such as ``us-east-1``."""
    availability_zones: tuple[AwsZone, ...] = Field(min_length=1)
    """Availability zones to use. They are listed explicitly so that `cdk synth` does not require AWS credentials."""
    account: AccountId | None = None
    """AWS account to deploy to. The CDK CLI rejects credentials of any other account. The default is the account of the
    credentials."""
    deletion_protection: bool = False
    """Whether stacks and load balancers are protected against deletion. Enable it after the first successful deploy. If
    the first deploy of a stack fails, the CDK must delete the stack before it can retry, and it cannot delete a
    protected stack."""
    network: Network = Network()
    state: StateStore
    host_images: HostImages | None = None
    rollout: Rollout = Rollout()
    vad: VadFleet
    asr: tuple[AsrFleet, ...]
    edge: Edge
    agents: AwsAgents | None = None
    """Agents that answer callers by speech. By default, callers receive only transcripts."""
    observability: Observability
    other_regions: tuple[OtherRegion, ...] = ()
    """Additional regions, in case one fails. A region at capacity refers callers to the others."""

    @model_validator(mode="after")
    def _check_other_regions(self) -> "Aws":
        named = [self.region, *(other.region for other in self.other_regions)]
        if duplicate := find_first_duplicate_index(named):
            location = ("other_regions", duplicate - 1, "region")
            raise SettingError(location, f"{named[duplicate]} is listed twice; use another region")
        if self.other_regions and self.edge.domain is None:
            raise SettingError(
                ("other_regions",), "other_regions need an `edge.domain`: callers reach a region by its name"
            )
        for index, other in enumerate(self.other_regions):
            try:
                self.build_region_section(index)
            except ValidationError as error:
                reason = error.errors()[0]["msg"].removeprefix("Value error, ")
                raise SettingError(("other_regions", index), f"in {other.region} {reason}") from None
        return self

    def build_region_section(self, index: int) -> "Aws":
        """Return the section with the overrides of another region."""
        other = self.other_regions[index]
        overrides: dict[str, object] = {"state": self.state.model_copy(update={"restore_from": None})}
        overrides |= {name: value for name in type(other).model_fields if (value := getattr(other, name)) is not None}
        if self.edge.domain:
            domain = self.edge.domain.model_copy(update={"name": f"{other.region}.{self.edge.domain.name}"})
            overrides["edge"] = self.edge.model_copy(update={"domain": domain})
        return type(self).model_validate({**dict(self), **overrides, "other_regions": ()})

    @model_validator(mode="after")
    def _check_unique_names(self) -> "Aws":
        zones = self.availability_zones
        if duplicate := find_first_duplicate_index(zones):
            raise SettingError(
                ("availability_zones", duplicate), f"{zones[duplicate]} is listed twice; list each zone once"
            )
        # Metrics and alarms contain these names. The VAD fleet has a group in each zone.
        tiers = ["vad", "gateway", "agent", *(f"vad-{zone.removeprefix(self.region)}" for zone in zones)]
        names = [*tiers, *(fleet.name for fleet in self.asr)]
        if duplicate := find_first_duplicate_index(names):
            raise SettingError(
                ("asr", duplicate - len(tiers), "name"),
                f"{names[duplicate]} is the name of an earlier fleet or of another tier; use another name",
            )
        fleets = [fleet.name for fleet in self.asr]
        check_unique_ids(("asr",), fleets, [format_construct_id(fleet) for fleet in fleets])
        rules = [
            (("vad", "scaling", index, "name"), f"vad-{rule.name}") for index, rule in enumerate(self.vad.scaling)
        ] + [
            (("asr", fleet_index, "scaling", index, "name"), f"{fleet.name}-{rule.name}")
            for fleet_index, fleet in enumerate(self.asr)
            for index, rule in enumerate(fleet.scaling)
        ]
        if duplicate := find_first_duplicate_index([alarm for _, alarm in rules]):
            location, alarm = rules[duplicate]
            raise SettingError(
                location, f"the alarm of an earlier rule has the same name, {alarm}; rename the rule or the fleet"
            )
        if self.network.nat_gateways > len(zones):
            raise SettingError(
                ("network", "nat_gateways"),
                f"nat_gateways {self.network.nat_gateways} is more than the {len(zones)} availability zones; lower it",
            )
        return self

    @model_validator(mode="after")
    def _check_fleet_names(self) -> "Aws":
        for index, fleet in enumerate(self.asr):
            location = ("asr", index, "name")
            if fleet.name.partition("-")[0] == "alert":
                raise SettingError(
                    location, f"{fleet.name} begins with alert, as do names of alerts' alarms; use another name"
                )
            if fleet.name in RESERVED_CONSTRUCT_IDS:
                raise SettingError(
                    location,
                    f"{fleet.name} is the id of another resource in a stack; use a name other than "
                    f"{', '.join(RESERVED_CONSTRUCT_IDS)}",
                )
            if fleet.name in STACK_SUFFIXES:
                raise SettingError(
                    location,
                    f"the stack asr-{fleet.name} of deployment x would have the name of a stack of deployment x-asr, "
                    "which a deploy would replace; use another name",
                )
        return self
