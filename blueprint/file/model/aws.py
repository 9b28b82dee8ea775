"""The AWS half of a deployment file."""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, ValidationError, field_validator, model_validator

from blueprint.base import Model
from blueprint.file.model.agents import AwsAgents
from blueprint.file.model.base import HostCount, Name, private_network
from blueprint.file.model.edge import Edge
from blueprint.file.model.load import Measured
from blueprint.file.model.observability import LogRetentionDays, Observability
from blueprint.file.model.scaling import ScalingRules
from blueprint.file.model.serving import Revision, VllmOptions
from blueprint.file.source import Location


class Network(Model):
    """The VPC: public, private and isolated subnets in every availability zone."""

    cidr: str = "10.40.0.0/16"
    """IPv4 range of the VPC, /16 to /24."""
    nat_gateways: int = Field(default=1, ge=0)
    """How many availability zones get a NAT gateway of their own."""
    interface_endpoints: tuple[str, ...] = ()
    """AWS services reached inside the VPC, such as ``ecr.dkr``; each costs an hourly price per zone."""
    flow_log_retention_days: LogRetentionDays = 30
    """How long the VPC's flow logs are kept, days."""

    @field_validator("cidr")
    @classmethod
    def _is_a_network(cls, value: str) -> str:
        network = private_network(value)
        if not 16 <= network.prefixlen <= 24:  # noqa: PLR2004  the bounds are EC2's for a VPC, less what subnets need
            raise ValueError(f"{value} is a /{network.prefixlen}; a VPC here is a /16 to a /24")
        return value


class StateStore(Model):
    """ElastiCache for Valkey: session state, host registry, transcript streams."""

    node_type: str
    """ElastiCache node type of the catalogue, such as ``cache.r7g.large``."""
    engine_version: Literal["7.2", "8.0", "8.1"] = "8.1"
    """Version of Valkey. A newer one is an upgrade in place; there is no way back but a snapshot."""
    replicas: int = Field(default=1, ge=0, le=5)
    """Replicas of the primary; one or more makes the store survive the loss of a zone."""
    snapshot_retention_days: int = Field(default=1, ge=0, le=35)
    """How long daily snapshots are kept, days; 0 takes none."""
    restore_from: Annotated[str, Field(pattern=r"^[A-Za-z]([.-]?[A-Za-z0-9])*$", max_length=255)] | None = None
    """Snapshot that the store is made from. A deploy with another one, or without the one that was there, replaces the
    store; ``voice restore`` shows what for. Keep it afterwards. An automatic snapshot goes with the store that it is
    of: ``voice restore --take --of`` copies it under a name that may stand here."""

    @field_validator("restore_from")
    @classmethod
    def _is_kept(cls, value: str | None) -> str | None:
        if value and value.startswith("automatic."):
            raise ValueError(f"{value} goes with its store: `voice restore FILE --take NAME --of {value}` keeps it")
        return value


class HugePages(Model):
    """Memory set aside for DPDK at boot."""

    size_mib: Literal[2, 32, 1024] = 2
    """Page size, MiB; the ones that arm64 kernels with 4 KiB base pages have."""
    count: int = Field(gt=0)
    """Pages that every host reserves when it boots."""


class EnaExpress(Model):
    """AWS's Scalable Reliable Datagram between two network interfaces of one region."""

    enabled: bool = False
    """Whether TCP between the hosts goes through it; the instance type has to support it."""
    udp: bool = False
    """UDP is a separate switch, on both ends."""

    @model_validator(mode="after")
    def _udp_needs_enabled(self) -> "EnaExpress":
        if self.udp and not self.enabled:
            raise ValueError("udp: true needs enabled: true")
        return self


MachineImage = Annotated[str, Field(pattern=r"^(ami-[0-9a-f]{8,17}|/[\w./-]+(:[1-9][0-9]*)?)$")]
"""An AMI's id, or an SSM parameter that holds one, with the parameter's version behind a colon."""


class DataPathMode(StrEnum):
    """How packets reach the data plane."""

    AF_XDP = "af_xdp"
    """XDP on the primary interface, redirecting audio to AF_XDP sockets that DPDK polls."""
    VFIO = "vfio"
    """DPDK's ENA driver on a secondary interface of its own; needs a `machine_image` that a pipeline has baked."""


class DataPath(Model):
    """The packet path of a VAD host."""

    mode: DataPathMode = DataPathMode.AF_XDP
    mtu: int = Field(default=3498, ge=1280, le=9001)
    """Largest packet of the interface, bytes. XDP and ENA Express have limits of their own, which checks hold."""
    rx_queues: int = Field(default=4, gt=0)
    """Receive queues that are polled, one core each."""
    rx_ring_size: int = Field(default=256, gt=0)
    """Descriptors in each receive ring."""


VolumeThroughput = Annotated[int, Field(ge=125, le=2000)]
"""What a gp3 volume reads or writes, MiB/s: 125 are part of its price, and 2000 the most.
https://docs.aws.amazon.com/ebs/latest/userguide/general-purpose.html"""


class VadFleet(Model):
    """Graviton4 hosts that turn RTP into chunks of speech; one Auto Scaling group per zone."""

    instance_type: str
    """EC2 instance type of the catalogue, such as ``c8g.12xlarge``."""
    hosts_per_zone: HostCount
    huge_pages: HugePages
    ena_express: EnaExpress = EnaExpress()
    data_path: DataPath = DataPath()
    machine_image: MachineImage | None = None
    """What a host boots: an AMI's id, or an SSM parameter and its version, such as ``/voice/production/vad:3``. By
    default AWS's newest, which changes under the fleet at any deploy; ``voice images ami`` proposes one to pin."""
    root_volume_gib: int = Field(default=40, ge=30)
    """Root volume of a host, GiB; it holds the images."""
    root_volume_mib_per_s: VolumeThroughput = 125
    """Throughput of the root volume, MiB a second; images are unpacked to it at a first boot. IOPS follow: four for
    each, at least the 3,000 that are part of the price."""
    drain_timeout_s: int = Field(default=600, ge=30, le=7200)
    """Longest that a terminating host may take to hand over its sessions, seconds."""
    warm_up_s: int = Field(default=120, ge=0, le=3600)
    """From launch to carrying load, seconds; until then scaling counts the host as on its way."""
    measured: Measured | None = None
    """Calls that a host carries; without it, an assumption for each polled core counts."""
    scaling: ScalingRules


class OnDemand(Model):
    """Pay by the second, if there is capacity."""

    option: Literal["on-demand"] = "on-demand"


class Spot(Model):
    """Spare capacity, taken back with two minutes' notice."""

    option: Literal["spot"]


class CapacityReservation(Model):
    """An On-Demand Capacity Reservation (ODCR) that already exists."""

    option: Literal["capacity-reservation"]
    reservation_id: Annotated[str, Field(pattern=r"^cr-[0-9a-f]{8,17}$")]
    """Id of the reservation, ``cr-`` and hexadecimal digits."""


class CapacityBlock(Model):
    """A Capacity Block for ML that was bought: one zone, a fixed term."""

    option: Literal["capacity-block"]
    reservation_id: Annotated[str, Field(pattern=r"^cr-[0-9a-f]{8,17}$")]
    """Id of the block's reservation, ``cr-`` and hexadecimal digits."""


Purchase = Annotated[OnDemand | Spot | CapacityReservation | CapacityBlock, Field(discriminator="option")]


class WarmPool(Model):
    """Hosts that have booted and pulled their images, then stopped; they cost their volumes only."""

    size: int = Field(gt=0)
    """Hosts that are kept ready, however many are in service; a host that leaves the pool is followed by another."""


class Rollout(Model):
    """How a deploy replaces hosts whose images, user data or machine image have changed: an instance refresh."""

    surge_percent: int = Field(default=10, ge=1, le=100)
    """Hosts that a group launches before as many old ones leave, percent of its desired number, at least one. Fleets of
    a reservation or Capacity Block have no room for more hosts: there as many leave first."""
    checkpoint_percentages: tuple[Annotated[int, Field(ge=1, le=99)], ...] = (10, 50)
    """Shares of a group's hosts after whose replacement the refresh pauses, for alarms and probes to tell; percent."""
    checkpoint_pause_s: int = Field(default=600, ge=0, le=172800)
    """How long it pauses there, seconds."""
    bake_s: int = Field(default=600, ge=0, le=172800)
    """How long the alarms watch on after the last host was replaced, seconds."""

    @field_validator("checkpoint_percentages")
    @classmethod
    def _ascends(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if list(value) != sorted(set(value)):
            raise ValueError(f"checkpoints ascend: {', '.join(map(str, sorted(set(value))))}")
        return value


class HostImages(Model):
    """A pipeline of EC2 Image Builder for each fleet: hosts of its images install and pull nothing when they boot.

    A pipeline runs when it is started (docs/runbooks/procedures/patching.md), and costs the machine that it builds on
    meanwhile.
    """

    vfio: bool = False
    """Whether the VAD fleet's image gets a vfio-pci with write combining, which `mode: vfio` needs."""


class Engine(StrEnum):
    """What turns chunks into text on an ASR host."""

    WHISPER = "whisper"
    """Our engine: encoder and decoder workers on CTranslate2 or Neuron."""
    VLLM = "vllm"
    """vLLM on the host's loopback, for models that our engine does not run."""


class AsrFleet(Model):
    """Hosts that recognise speech, behind one Auto Scaling group."""

    name: Name
    """Unique among the fleets; its hosts, metrics and alarms carry it."""
    instance_type: str
    """EC2 instance type of the catalogue: with Neuron devices or GPUs, such as ``inf2.48xlarge``, or of Graviton, such
    as ``c8g.xlarge``, whose CPUs carry a small model for few calls."""
    hosts: HostCount
    engine: Engine = Engine.WHISPER
    vllm: VllmOptions | None = None
    """What vLLM serves; for the engine ``vllm`` only."""
    model: Annotated[str, Field(pattern=r"^[A-Za-z0-9][\w.-]*/[\w.-]+$", max_length=96)] | None = None
    """Repository at Hugging Face of the Whisper model, for the engine ``whisper``: one in CTranslate2's format on GPUs
    and CPUs, one of OpenAI's on Neuron. By default large-v2, on CPUs tiny.en. With another one hosts of the VAD tier
    send samples instead of log-mel features, since only the engine knows how many mel bins it takes."""
    revision: Revision | None = None
    """Commit of that model's repository; absent, the newest is fetched."""
    artifacts: bool = False
    """Whether hosts fetch weights and compiled programs from the deployment's bucket, so that none asks a hub or
    compiles. The fleet's job leaves them there, once for each image, model, revision and instance type
    (docs/runbooks/procedures/artifacts.md)."""
    measured: Measured | None = None
    """Calls that a host carries; without it, the ceiling of its memory counts, or what its cores are assumed to do."""
    purchase: Purchase = OnDemand()
    """How the hosts are bought: On-Demand, spot, a reservation or a Capacity Block."""
    availability_zones: tuple[str, ...] | None = None
    """Zones of this fleet, where it cannot use all of the deployment's."""
    warm_pool: WarmPool | None = None
    machine_image: MachineImage | None = None
    """What a host boots: an AMI's id, or an SSM parameter and its version, such as ``/voice/production/inf2:3``. By
    default AWS's newest, which changes under the fleet at any deploy; ``voice images ami`` proposes one to pin."""
    root_volume_gib: int = Field(default=200, ge=30)
    """Root volume of a host, GiB; it holds the images."""
    root_volume_mib_per_s: VolumeThroughput = 125
    """Throughput of the root volume, MiB a second; an image of 25 GiB takes three minutes to unpack at the default.
    IOPS follow: four for each, at least the 3,000 that are part of the price."""
    drain_timeout_s: int = Field(default=900, ge=30, le=7200)
    """Longest that a terminating host may take to finish its sessions, seconds."""
    warm_up_s: int = Field(default=300, ge=0, le=3600)
    """From launch to carrying load, seconds; until then scaling counts the host as on its way."""
    scaling: ScalingRules

    @model_validator(mode="after")
    def _vllm_has_options(self) -> "AsrFleet":
        if (self.engine is Engine.VLLM) != (self.vllm is not None):
            raise ValueError("`vllm` names the model for `engine: vllm`, and belongs to no other engine")
        if self.vllm and self.model:
            raise ValueError("`model` belongs to `engine: whisper`; vLLM's is `vllm.model`")
        if self.vllm and self.revision:
            raise ValueError("`revision` belongs to `engine: whisper`; vLLM's is `vllm.revision`")
        return self


class OtherRegion(Model):
    """A further region with all of the section `aws` once more: what is not said here is as in the first.

    Its names end in the region, its hosts of callers are ``api.<region>.<name>`` and ``media.<region>.<name>``. Nothing
    is shared but the DNS zone: a call lives in the region that it was opened in, and each region has room for all.
    """

    region: str
    """AWS region of the catalogue, another one than the others."""
    availability_zones: tuple[str, ...] = Field(min_length=1)
    """Zones of that region."""
    network: Network | None = None
    """VPC there, where it differs. The networks are not joined, and may have the same range."""
    state: StateStore | None = None
    """State store there, where it differs; without it the store is new, as a snapshot is of its region too."""
    vad: VadFleet | None = None
    """VAD hosts there, where their type or machine image differs."""
    asr: tuple[AsrFleet, ...] | None = None
    """All fleets there, where types, reservations or machine images differ."""

    def says(self, place: Location) -> bool:
        """Whether a place of the section `aws` stands here, and not in the first region alone."""
        return place[:1] == ("aws",) and any(getattr(self, str(name), None) is not None for name in place[1:2])


class Aws(Model):
    """Everything that is deployed to AWS."""

    region: str
    """AWS region of the catalogue, such as ``us-east-1``."""
    availability_zones: tuple[str, ...] = Field(min_length=1)
    """Zones that everything is spread over. They are named here, so that a synth asks AWS nothing."""
    account: Annotated[str, Field(pattern=r"^[0-9]{12}$")] | None = None
    """When given, a deploy with credentials of another account is refused by the CDK CLI."""
    deletion_protection: bool = False
    """Whether stacks and load balancers refuse deletion. Switch it on and deploy again once everything is up: a stack
    that is protected before its first deploy has succeeded cannot be tried again, as the CDK deletes it first."""
    network: Network = Network()
    state: StateStore
    host_images: HostImages | None = None
    rollout: Rollout = Rollout()
    vad: VadFleet
    asr: tuple[AsrFleet, ...]
    edge: Edge
    agents: AwsAgents | None = None
    """Who answers callers by speech. Without it callers get transcripts."""
    observability: Observability
    other_regions: tuple[OtherRegion, ...] = ()
    """Further regions, for the loss of one. Callers who find one full are told of the others."""

    @model_validator(mode="after")
    def _other_regions(self) -> "Aws":
        named = [self.region, *(other.region for other in self.other_regions)]
        if len(set(named)) != len(named):
            raise ValueError(f"a region is named twice: {', '.join(named)}")
        if self.other_regions and self.edge.domain is None:
            raise ValueError("other_regions need an `edge.domain`: callers reach a region by its name")
        for index, other in enumerate(self.other_regions):
            try:
                self.in_other_region(index)
            except ValidationError as error:
                reason = error.errors()[0]["msg"].removeprefix("Value error, ")
                raise ValueError(f"in {other.region} {reason}") from None
        return self

    def in_other_region(self, index: int) -> "Aws":
        """Return the section as another region has it."""
        other = self.other_regions[index]
        own: dict[str, object] = {"state": self.state.model_copy(update={"restore_from": None})}
        own |= {name: value for name in type(other).model_fields if (value := getattr(other, name)) is not None}
        if self.edge.domain:
            domain = self.edge.domain.model_copy(update={"name": f"{other.region}.{self.edge.domain.name}"})
            own["edge"] = self.edge.model_copy(update={"domain": domain})
        return type(self).model_validate({**dict(self), **own, "other_regions": ()})

    @model_validator(mode="after")
    def _zones_and_names(self) -> "Aws":
        zones = self.availability_zones
        if len(set(zones)) != len(zones):
            raise ValueError(f"availability_zones names a zone twice: {', '.join(zones)}")
        names = [fleet.name for fleet in self.asr]
        if len(set(names)) != len(names) or "vad" in names:
            raise ValueError(f"fleet names must differ from each other and from 'vad': {', '.join(names)}")
        if self.network.nat_gateways > len(zones):
            raise ValueError(
                f"nat_gateways {self.network.nat_gateways} is more than the {len(zones)} availability zones"
            )
        return self
