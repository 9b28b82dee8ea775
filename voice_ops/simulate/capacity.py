"""Inputs of the simulation for each fleet: capacity, boot time by phase, price, and their sources."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from voice_blueprint import catalog
from voice_blueprint.aws import names
from voice_blueprint.aws.edge import AGENT_DRAIN_TIMEOUT_S, AGENT_MEMORY_GIB, AGENT_VCPU
from voice_blueprint.capacity.bounds import (
    CallBound,
    calculate_asr_host_call_bounds,
    calculate_gateway_task_call_bounds,
    calculate_vad_host_call_bounds,
    find_limiting_bound,
)
from voice_blueprint.capacity.cpu_pods import build_cpu_pods_by_tier
from voice_blueprint.capacity.tiers import (
    TierCapacity,
    build_agent_bound,
    build_agent_capacity,
    build_azure_caller_capacities,
    build_caller_tier_capacities,
)
from voice_blueprint.catalog import InstanceType
from voice_blueprint.contract.images import Image
from voice_blueprint.contract.metrics import StartPhase
from voice_blueprint.contract.network import Tier
from voice_blueprint.day import resolve_design_load
from voice_blueprint.engines.launch.coldstart import PHASE_BUDGETS_BY_IMAGE
from voice_blueprint.engines.sizing.result import DoesNotFitError
from voice_blueprint.engines.sizing.service import TRANSCRIPTION_TASKS, PoolSizing, size_services
from voice_blueprint.environment import GATEWAY_DRAIN_TIMEOUT_S
from voice_blueprint.file.model.aws import AsrFleet, Aws, DataPath
from voice_blueprint.file.model.azure import Azure
from voice_blueprint.file.model.deployment import Deployment
from voice_blueprint.file.model.edge import TaskCount
from voice_blueprint.file.model.scaling import ScalingRules
from voice_blueprint.hosts import VAD_IMAGES, list_asr_images
from voice_blueprint.observability.aws.rollouts import can_surge
from voice_ops.cost.prices import load_price_book

LAUNCH_TIME_S = 60.0
"""Time from a launch to user data. ASSUMED: EC2 publishes no figure."""
RESTART_TIME_S = 30.0
"""Time from the start of a stopped warm pool host to user data. ASSUMED."""

_DEFAULT_PULL_BUDGET = next(row for row in PHASE_BUDGETS_BY_IMAGE[Image.ASR_VLLM] if row.phase is StartPhase.PULL)

TASK_START_S = 60.0
"""Time from the request for a Fargate task to its first successful health check. ASSUMED: AWS publishes no figure."""

NODE_START_S = 300.0
"""Time from a pending pod to a node that accepts the pod. ASSUMED. Together with an engine's cold start, this time is
the 15 to 25 minutes that scaling assumes."""

FleetKind = Literal["gateway", "agent", "vad", "asr", "neuron", "gpu", "cpu"]
"""Kind of fleet. Cluster pods of the kind ``asr`` call a transcription service. Hosts of the other ASR kinds transcribe
audio themselves."""
TRANSCRIBING_KINDS: tuple[FleetKind, ...] = ("neuron", "gpu", "cpu")
"""Kinds of fleets that recognize speech, in the order in which their hosts are filled."""
PEAK_FRACTION = 0.8
"""Default peak as a share of the maximum calls for the fleets in the file."""


@dataclass(frozen=True)
class BootPhase:
    """A phase of a boot.

    Attributes:
        cold_s: Duration for a new host, s.
        warm_s: Duration for a host from the warm pool, s.
    """

    name: str
    cold_s: float
    warm_s: float
    source: str


@dataclass(frozen=True)
class BootTiming:
    """Time from launch to accepting calls, by phase."""

    phases: tuple[BootPhase, ...]

    @property
    def cold_s(self) -> float:
        """Total time for a new host."""
        return sum(phase.cold_s for phase in self.phases)

    @property
    def warm_s(self) -> float:
        """Total time for a host from the warm pool."""
        return sum(phase.warm_s for phase in self.phases)

    @property
    def preparation_s(self) -> float:
        """Total time of the boot phases that a host in the warm pool has completed."""
        return self.cold_s - self.warm_s


@dataclass(frozen=True)
class GroupPlan:
    """An Auto Scaling group."""

    name: str
    zones: tuple[str, ...]
    min_hosts: int
    max_hosts: int


@dataclass(frozen=True)
class FleetPlan:
    """A fleet.

    Attributes:
        kind: Role in a call's path.
        instance_type: Type for quotas; ``None`` for tasks.
        slots: Maximum calls per host.
        slots_source: Source of that number.
        usd_per_hour: On-Demand list price of a host; ``None`` if unknown.
        warm_hosts: Hosts of its warm pool.
        data_path: Receive queues and rings of a VAD host.
        can_surge: Whether hosts can be launched above the maximum during a rollout.
        scales_by_queue: Whether KEDA scales the fleet by running and waiting requests, instead of the file's rules.
        call_share: Share of calls that use the fleet; for agents, the share of conversations.
    """

    name: str
    kind: FleetKind
    instance_type: InstanceType | None
    groups: tuple[GroupPlan, ...]
    slots: int
    slots_source: str
    boot: BootTiming
    warm_up_s: float
    drain_timeout_s: float
    usd_per_hour: float | None
    is_spot: bool
    rules: ScalingRules
    warm_hosts: int = 0
    data_path: DataPath | None = None
    can_surge: bool = True
    scales_by_queue: bool = False
    call_share: float = 1.0

    @property
    def max_hosts(self) -> int:
        """Maximum number of hosts in all groups."""
        return sum(group.max_hosts for group in self.groups)


def create_fleet_plans(deployment: Deployment, boot_s: Mapping[str, tuple[float, float]]) -> tuple[FleetPlan, ...]:
    """Return the inputs of the simulation for each fleet.

    On AWS, the fleets are VAD, the ASR fleets in file order, the gateway service and the agents. On Azure, the fleets
    of replicas precede those of pods.

    Args:
        boot_s: Measured cold and warm boot times by fleet, seconds.

    Raises:
        ValueError: An override refers to an unknown fleet, or no section of the file accepts audio.
    """
    plans = (
        _create_aws_plans(deployment)
        if deployment.aws_section
        else [*_create_replica_plans(deployment.azure), *_create_pod_plans(deployment)]
    )
    names = [plan.name for plan in plans]
    for name in boot_s:
        if name not in names:
            raise ValueError(f"{deployment.name} has no fleet {name}; its fleets are {', '.join(names)}")
    return tuple(_apply_measured_boot(plan, boot_s) for plan in plans)


def calculate_max_store_calls(deployment: Deployment) -> int | None:
    """Return the maximum number of calls that the state store supports, or ``None`` without a state store."""
    return next((each.calls for each in build_caller_tier_capacities(deployment) if each.tier is Tier.STATE), None)


def calculate_default_peak(plans: tuple[FleetPlan, ...], store_limit: int | None = None) -> float:
    """Return ``PEAK_FRACTION`` of the maximum number of calls in the smallest tier on a call's path."""
    fronts = [
        plan.max_hosts * plan.slots for plan in plans if plan.kind not in TRANSCRIBING_KINDS and plan.call_share == 1
    ]
    asr = sum(plan.max_hosts * plan.slots for plan in plans if plan.kind in TRANSCRIBING_KINDS)
    return PEAK_FRACTION * min([asr, *fronts, *([] if store_limit is None else [store_limit])])


def _create_aws_plans(deployment: Deployment) -> list[FleetPlan]:
    return [
        _create_vad_plan(deployment),
        *(_create_asr_plan(deployment, each) for each in deployment.aws.asr),
        *_create_service_plans(deployment),
    ]


def _apply_measured_boot(plan: FleetPlan, boot_s: Mapping[str, tuple[float, float]]) -> FleetPlan:
    if plan.name not in boot_s:
        return plan
    cold, warm = boot_s[plan.name]
    return replace(plan, boot=BootTiming((BootPhase("whole", cold, warm, "--boot"),)))


def _create_vad_plan(deployment: Deployment) -> FleetPlan:
    aws, fleet = deployment.aws, deployment.aws.vad
    kind = catalog.instance_types()[fleet.instance_type]
    bounds, bound = fleet.hosts_per_zone, find_limiting_bound(calculate_vad_host_call_bounds(fleet))
    return FleetPlan(
        name=names.VAD_FLEET,
        kind="vad",
        instance_type=kind,
        groups=tuple(
            GroupPlan(names.build_group_name(deployment, names.VAD_FLEET, zone), (zone,), bounds.min, bounds.max)
            for zone in aws.availability_zones
        ),
        slots=bound.calls,
        slots_source=bound.source,
        boot=_estimate_boot(VAD_IMAGES[0], fleet.warm_up_s, artifacts=False),
        warm_up_s=fleet.warm_up_s,
        drain_timeout_s=fleet.drain_timeout_s,
        usd_per_hour=kind.usd_per_hour.get(aws.region),
        is_spot=False,
        rules=fleet.scaling,
        data_path=fleet.data_path,
    )


def _create_asr_plan(deployment: Deployment, fleet: AsrFleet) -> FleetPlan:
    aws = deployment.aws
    kind = catalog.instance_types()[fleet.instance_type]
    bound = find_limiting_bound(calculate_asr_host_call_bounds(fleet))
    return FleetPlan(
        name=fleet.name,
        kind=kind.compute_kind,
        instance_type=kind,
        groups=(
            GroupPlan(
                names.build_group_name(deployment, fleet.name),
                fleet.availability_zones or aws.availability_zones,
                fleet.hosts.min,
                fleet.hosts.max,
            ),
        ),
        slots=bound.calls,
        slots_source=bound.source,
        boot=_estimate_boot(list_asr_images(fleet)[-2], fleet.warm_up_s, artifacts=fleet.artifacts),
        warm_up_s=fleet.warm_up_s,
        drain_timeout_s=fleet.drain_timeout_s,
        usd_per_hour=kind.usd_per_hour.get(aws.region),
        is_spot=fleet.purchase.option == "spot",
        rules=fleet.scaling,
        warm_hosts=fleet.warm_pool.size if fleet.warm_pool else 0,
        can_surge=can_surge(fleet.purchase),
    )


def _create_service_plans(deployment: Deployment) -> Iterator[FleetPlan]:
    """Yield the gateway service and, if the file has agents, the service for the agents."""
    aws, service = deployment.aws, deployment.aws.edge.gateway
    size = (service.vcpu, service.memory_gib)
    bound = find_limiting_bound(calculate_gateway_task_call_bounds(service))
    yield _create_service_plan(aws, names.GATEWAY_FLEET, "gateway", service.tasks, bound, size, GATEWAY_DRAIN_TIMEOUT_S)
    if agents := aws.agents:
        size = (AGENT_VCPU, AGENT_MEMORY_GIB)
        bound = build_agent_bound(agents)
        plan = _create_service_plan(aws, names.AGENT_FLEET, "agent", agents.tasks, bound, size, AGENT_DRAIN_TIMEOUT_S)
        yield replace(plan, call_share=_calculate_conversation_fraction(deployment))


def _create_service_plan(  # noqa: PLR0917  two callers
    aws: Aws,
    name: str,
    kind: FleetKind,
    tasks: TaskCount,
    bound: CallBound,
    size: tuple[float, float],
    drain_timeout_s: float,
) -> FleetPlan:
    book = load_price_book()
    prices = [book.find_price(item, aws.region, exact=True) for item in ("fargate-arm-vcpu", "fargate-arm-memory")]
    return FleetPlan(
        name=name,
        kind=kind,
        instance_type=None,
        groups=(GroupPlan(name, aws.availability_zones, tasks.min, tasks.max),),
        slots=bound.calls,
        slots_source=bound.source,
        boot=BootTiming((BootPhase("task", TASK_START_S, TASK_START_S, "assumed"),)),
        warm_up_s=0.0,
        drain_timeout_s=drain_timeout_s,
        usd_per_hour=sum(price.usd * each for price, each in zip(prices, size, strict=True) if price)
        if all(prices)
        else None,
        is_spot=False,
        rules=(),
    )


def _create_pod_plans(deployment: Deployment) -> Iterator[FleetPlan]:
    """Yield the tiers on a cluster's CPU pool.

    Each additional pod is assumed to wait for a new node, although a node fits several pods.
    """
    azure, callers = deployment.azure, deployment.azure.callers
    if not (callers and azure.cpu_pool):
        return
    size, pods = catalog.vm_sizes()[azure.cpu_pool.vm_size], build_cpu_pods_by_tier(callers, azure.agents)
    price = size.usd_per_hour.get(azure.location)
    gateway, vad, asr, _ = build_azure_caller_capacities(callers)
    capacities: list[tuple[TierCapacity, FleetKind, float]] = [
        (gateway, "gateway", GATEWAY_DRAIN_TIMEOUT_S),
        (vad, "vad", callers.vad.drain_timeout_s),
        (asr, "asr", callers.asr.drain_timeout_s),
    ]
    if agents := azure.agents:
        capacities.append((build_agent_capacity(agents, agents.replicas, ()), "agent", agents.drain_timeout_s))
    for each, kind, drain_timeout_s in capacities:
        yield FleetPlan(
            name=each.name,
            kind=kind,
            instance_type=None,
            groups=(GroupPlan(each.name, azure.availability_zones, each.units.min, each.units.max),),
            slots=each.calls,
            slots_source=each.limiting_bound.source,
            boot=BootTiming(
                (
                    BootPhase("node", NODE_START_S, NODE_START_S, "assumed"),
                    BootPhase("pod", TASK_START_S, TASK_START_S, "assumed, as a task"),
                )
            ),
            warm_up_s=0.0,
            drain_timeout_s=drain_timeout_s,
            usd_per_hour=None
            if price is None
            else price * pods[each.tier.value].calculate_occupied_cpus(size.name) / size.vcpus,
            is_spot=False,
            rules=(),
            scales_by_queue=True,
            call_share=_calculate_conversation_fraction(deployment) if kind == "agent" else 1.0,
        )


def _calculate_conversation_fraction(deployment: Deployment) -> float:
    return resolve_design_load(deployment).conversation_share


def _create_replica_plans(azure: Azure) -> list[FleetPlan]:
    """Return one fleet for each pool in each service that accepts audio. A host of these fleets is a replica.

    Every replica beyond the initial ones waits for a new node, although some nodes fit two. A caller without a free
    slot counts as refused, although vLLM queues requests.

    Raises:
        ValueError: No service accepts audio.
    """
    sizings = size_services(azure)
    plans = []
    for service in azure.services:
        sizing = sizings[service.name]
        if catalog.models()[service.model].task in TRANSCRIPTION_TASKS and not isinstance(sizing, DoesNotFitError):
            plans += [_create_replica_plan(azure, service.name, pool, service.drain_timeout_s) for pool in sizing.pools]
    if not plans:
        raise ValueError("the file has no service that transcribes audio: there are no calls to simulate")
    return plans


def _create_replica_plan(azure: Azure, service: str, sizing: PoolSizing, drain_s: float) -> FleetPlan:
    pool = next(each for each in azure.pools if each.name == sizing.pool)
    price = catalog.vm_sizes()[sizing.vm_size].usd_per_hour.get(azure.location)
    name = f"{service} on {sizing.pool}"
    zones = pool.availability_zones or azure.availability_zones
    phases = [BootPhase("node", NODE_START_S, NODE_START_S, "assumed")]
    phases += [
        BootPhase(row.phase, row.seconds or 0.0, row.seconds or 0.0, row.source)
        for row in PHASE_BUDGETS_BY_IMAGE[Image.ASR_VLLM]
    ]
    return FleetPlan(
        name=name,
        kind="gpu",
        instance_type=None,
        groups=(GroupPlan(name, zones, sizing.bounds.min, sizing.max_replicas),),
        slots=sizing.engine.sessions,
        slots_source=f"sessions of a replica on {sizing.vm_size}, as sized",
        boot=BootTiming(tuple(phases)),
        warm_up_s=0.0,
        drain_timeout_s=drain_s,
        usd_per_hour=price / sizing.replicas_per_node if price is not None else None,
        is_spot=pool.purchase.option == "spot",
        rules=(),
        scales_by_queue=True,
    )


def _estimate_boot(image: Image, warm_up_s: float, *, artifacts: bool) -> BootTiming:
    """Return the phases of a first start.

    Published figures are those of the cold-start budget. An unknown pull time is assumed to equal vLLM's. A warm pool
    host has pulled its images but not started its engine (userdata/voice_userdata/steps/every_boot.sh), so it loads
    weights, and compiles unless a job has done so. The remainder of the file's ``warm_up_s`` is an additional phase.
    """
    phases = [BootPhase("launch", LAUNCH_TIME_S, RESTART_TIME_S, "assumed")]
    for row in PHASE_BUDGETS_BY_IMAGE.get(image, ()):
        pulls = row.phase is StartPhase.PULL
        seconds, source = row.calculate_duration_s(artifacts=artifacts), row.source
        if pulls and row.seconds is None:
            seconds, source = (
                _DEFAULT_PULL_BUDGET.calculate_duration_s(artifacts=False),
                f"assumed to be as {Image.ASR_VLLM}: {_DEFAULT_PULL_BUDGET.source}",
            )
        phases.append(BootPhase(row.phase, seconds, 0.0 if pulls else seconds, source))
    rest = warm_up_s - sum(phase.cold_s for phase in phases)
    if rest > 0:
        phases.append(BootPhase("rest", rest, rest, "warm_up_s of the deployment file"))
    return BootTiming(tuple(phases))
