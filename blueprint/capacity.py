"""How many calls each tier carries: the smallest of named bounds, each with its source.

Everything that counts calls asks here: the checks, `voice plan`, `preflight`, `cost`, `simulate` and `status`, and the
launchers, whose hosts admit as many.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from blueprint import catalog
from blueprint.catalog import Accelerator, InstanceType
from blueprint.catalog.inference import Gpu
from blueprint.contract.chunk import CHUNK_DATAGRAM_BYTES
from blueprint.contract.network import Tier
from blueprint.engines.launch.whisper import DEFAULT_MODELS
from blueprint.engines.sizing.memory import kv_memory, session_bytes
from blueprint.engines.sizing.result import DoesNotFitError
from blueprint.engines.sizing.service import Room, rooms, size_fleet
from blueprint.file.model.agents import AgentRules, ClusterService
from blueprint.file.model.aws import AsrFleet, Aws, StateStore, VadFleet
from blueprint.file.model.azure import Azure
from blueprint.file.model.azure_callers import Callers, GatewayPods, VadPods
from blueprint.file.model.base import HostCount
from blueprint.file.model.deployment import Deployment
from blueprint.file.model.edge import GatewayService
from blueprint.file.model.load import CallLoad, Measured
from blueprint.file.source import Location

Kind = Literal["measured", "published", "assumed"]

FILL = 0.7
"""Share of its places that a tier has in use when it is sized well; the rest is the head start of scaling. ASSUMED."""

STREAMS_PER_CORE = 2_000
"""Streams that one polled core of a VAD host carries: half of what the data plane's bench carries without loss on a
shared x86 machine; Graviton4 is not measured."""
SOCKET_STREAMS_PER_CORE = 500
"""The same of a core that polls kernel sockets in a pod: a quarter of it, since the kernel has its share. ASSUMED."""
VAD_STREAMS = 8_192
"""Streams that the VAD module has room for (images/vad-dataplane/src/vad)."""
PACKET_BYTES, PACKETS_PER_S = 640 + 12 + 28, 50
"""20 ms of L16 at 16 kHz with the headers of RTP, UDP and IPv4."""

LARGEST_MODEL, SESSION_TOKENS = "whisper-large-v3", 448
"""What an accelerator's memory is shared out for, whatever it serves: the largest Whisper, a full decoder."""

CPU_WORK = {"Systran/faster-whisper-base": 0.36, "Systran/faster-whisper-tiny.en": 0.16}
"""Seconds of a core that our engine takes for a second of speech, by model, partial transcripts included: measured on a
shared x86 machine in int8 (docs/measurements.md, the voice path)."""
CORE_SPEED = 0.5
"""Of that speed, counted on for a vCPU of Graviton4, which is not measured, and for finals to come in time. ASSUMED."""
SPEECH_SHARE = 0.5
"""Of a call, where nothing is typed."""

SOCKETS_PER_CALL = 2
"""A caller's audio socket and event stream."""
EDGE_INSTANCES, EDGE_UNITS = (2, 50), 10
"""Of Azure's application gateway, least and most: two survive the loss of one, and its range of addresses
(blueprint/azure/ranges.py) has no room for many more. Each reserves so many capacity units, of
which one is 2,500 connections, 2.22 Mbit/s or, with a web firewall, ten requests a second.
https://learn.microsoft.com/azure/application-gateway/understanding-pricing"""
GATEWAY_WORK = 0.28
"""Seconds of a core that the gateway's process takes for a minute of a call, with 120 calls at a time: measured on a
shared x86 machine on 2026-11-22 (docs/measurements.md, the gateway). ``CORE_SPEED`` of it is counted on."""
GATEWAY_BASE_MIB, SOCKET_KIB = 256, 128
"""What a gateway task takes without callers, decoders of two files with it (90 MiB each), and for each open socket.
ASSUMED."""

CONVERSATION_WORK = 4.6
"""Seconds of a core that an agent's process takes for a minute of a conversation: measured on a shared x86 machine."""
CONVERSATIONS_PER_CORE = 8
"""Of the 13 that would fill a core: the models of voice and of turns have to answer at once. ASSUMED."""

STORE_SHARE = 0.75
"""Of a node's memory: ElastiCache keeps a quarter for snapshots and replication (``reserved-memory-percent``).
https://docs.aws.amazon.com/AmazonElastiCache/latest/dg/redis-memory-management.html"""
REDIS_GB = {"Balanced_B3": 3, "Balanced_B5": 6, "Balanced_B10": 12, "Balanced_B20": 24}
"""Memory of Azure Managed Redis by size, ascending. https://azure.microsoft.com/pricing/details/managed-redis"""
REDIS_SHARE = 0.8
"""Of it: a fifth is kept for replication. https://learn.microsoft.com/azure/redis/best-practices-memory-management"""
UTTERANCE_S, CHUNKS_PER_S = 30, 10
"""The longest utterance without a final transcript, whose chunks are kept."""
TRANSCRIPT_BYTES = 512 * 1024
"""A transcript of 4,096 events at 128 bytes. ASSUMED."""
STORE_BYTES_PER_CALL = UTTERANCE_S * CHUNKS_PER_S * CHUNK_DATAGRAM_BYTES + TRANSCRIPT_BYTES


@dataclass(frozen=True)
class Bound:
    """What keeps a host, task or store from carrying more calls.

    Attributes:
        kind: Whether the number was measured, follows from what somebody publishes, or is an assumption.
    """

    name: Literal["slots", "memory", "compute", "packets", "network", "sockets"]
    calls: int
    kind: Kind
    source: str


Bounds = tuple[Bound, ...]


def least(bounds: Bounds) -> Bound:
    """Return the bound that binds."""
    return min(bounds, key=lambda bound: bound.calls)


@dataclass(frozen=True)
class Capacity:
    """What a fleet, the gateway service or the state store carries.

    Attributes:
        name: Of the fleet; otherwise of the tier.
        units: Fewest and most hosts or tasks; the store is one.
        location: Where the file says how many units, or how large the store is.
        parts: Groups that the units are spread over evenly, each with these bounds in the file.
    """

    tier: Tier
    name: str
    units: HostCount
    bounds: Bounds
    location: Location
    parts: int = 1

    @property
    def binding(self) -> Bound:
        """The bound that says how many calls a unit carries."""
        return least(self.bounds)

    @property
    def calls(self) -> int:
        """Calls that a unit carries."""
        return self.binding.calls

    @property
    def low(self) -> int:
        """Calls of the fewest units."""
        return self.units.min * self.calls

    @property
    def most(self) -> int:
        """Calls of the most units."""
        return self.units.max * self.calls

    def units_for(self, calls: float) -> int:
        """Return the units that carry so many calls with ``FILL`` of their places in use, alike in each part.

        Raises:
            ValueError: A unit carries none.
        """
        if not self.calls:
            raise ValueError(f"{self.name} carries no calls: {self.binding.source}")
        return self.parts * max(1, math.ceil(calls / (self.calls * FILL * self.parts)))

    @property
    def in_file(self) -> HostCount:
        """The units as the file spells them: those of one part."""
        return HostCount(min=self.units.min // self.parts, max=self.units.max // self.parts)


def capacities(aws: Aws) -> tuple[Capacity, ...]:
    """Return the tiers in the order of a call's way: gateway, VAD, each ASR fleet, state store."""
    zones, per_zone, tasks = len(aws.availability_zones), aws.vad.hosts_per_zone, aws.edge.gateway.tasks
    vad = HostCount(min=per_zone.min * zones, max=per_zone.max * zones)
    gateway = HostCount(min=tasks.min, max=tasks.max)
    return (
        Capacity(Tier.GATEWAY, "gateway", gateway, gateway_task(aws.edge.gateway), ("aws", "edge", "gateway", "tasks")),
        Capacity(Tier.VAD, "vad", vad, vad_host(aws.vad), ("aws", "vad", "hosts_per_zone"), zones),
        *(
            Capacity(Tier.ASR, fleet.name, fleet.hosts, asr_host(fleet), ("aws", "asr", index, "hosts"))
            for index, fleet in enumerate(aws.asr)
        ),
        Capacity(Tier.STATE, "state", HostCount(min=1, max=1), store(aws.state), ("aws", "state", "node_type")),
    )


def caller_capacities(callers: Callers) -> tuple[Capacity, ...]:
    """Return the same tiers of an Azure half; the services behind its ASR tier are sized by themselves."""
    place = ("azure", "callers")
    gateway, vad, asr = callers.edge.gateway, callers.vad, callers.asr
    slots = Bound("slots", asr.sessions, "assumed", "callers.asr.sessions of the deployment file")
    memory = int(REDIS_GB[callers.state.sku] * 1e9 * REDIS_SHARE / STORE_BYTES_PER_CALL)
    held = Bound("memory", memory, "assumed", f"{REDIS_SHARE:.0%} of {REDIS_GB[callers.state.sku]:g} GB")
    return (
        Capacity(
            Tier.GATEWAY, "gateway", gateway.replicas, gateway_pod(gateway), (*place, "edge", "gateway", "replicas")
        ),
        Capacity(Tier.VAD, "vad", vad.replicas, vad_pod(vad), (*place, "vad", "replicas")),
        Capacity(Tier.ASR, "asr", asr.replicas, (slots,), (*place, "asr", "replicas")),
        Capacity(Tier.STATE, "state", HostCount(min=1, max=1), (held,), (*place, "state", "sku")),
    )


def of_callers(deployment: Deployment) -> tuple[Capacity, ...]:
    """Return the tiers that calls come to: AWS's, those of an Azure half alone, or none where nobody calls."""
    if aws := deployment.aws_half:
        return capacities(aws)
    callers = deployment.azure.callers
    return caller_capacities(callers) if callers else ()


@dataclass(frozen=True)
class Link:
    """A part of the chain that a conversation takes a place in: a tier, or a service that hears, answers or speaks.

    Attributes:
        units: Fewest and most hosts, tasks or replicas, of all its fleets or pools.
        low: Conversations that it carries at its fewest units.
        most: The same at its most.
        location: Where the file says how many units.
        source: Where the numbers come from.
    """

    name: str
    units: HostCount
    low: int
    most: int
    location: Location
    source: str

    @property
    def calls(self) -> int:
        """Conversations that a unit carries, of different ones the mean."""
        return self.most // self.units.max

    def units_for(self, conversations: float) -> int:
        """Return the units that carry so many with ``FILL`` of their places in use; fleets keep their shares.

        Raises:
            ValueError: A unit carries none.
        """
        if not self.most:
            raise ValueError(f"{self.name} carries no conversations: {self.source}")
        return max(1, math.ceil(conversations * self.units.max / (self.most * FILL)))


def conversations_of(load: CallLoad) -> tuple[float, int]:
    """Return the conversations of a load at the same time: the mean, and at the peak."""
    return load.calls * load.conversation_share, math.ceil(peak_calls(load) * load.conversation_share)


def load_of(tier: Tier, load: CallLoad, agents: AgentRules | None) -> CallLoad:
    """Return the part of a load that comes to a tier: what the language model hears goes by those that hear."""
    if not _goes_by(tier, agents):
        return load
    return load.model_copy(update={"calls": math.ceil(load.calls * (1 - load.conversation_share))})


def _goes_by(tier: Tier, agents: AgentRules | None) -> bool:
    return agents is not None and agents.listening == "audio" and tier in {Tier.VAD, Tier.ASR}


def agent_capacity(agents: AgentRules, units: HostCount, location: Location) -> Capacity:
    """Return what an agent tier carries."""
    return Capacity(Tier.AGENT, "agent", units, (agent_bound(agents),), location)


def agent_bound(agents: AgentRules) -> Bound:
    """Each process holds as many conversations as the file says."""
    return Bound("slots", agents.conversations, "assumed", "agents.conversations of the deployment file")


def conversations_on_aws(aws: Aws) -> tuple[Link, ...]:
    """Return the chain of a conversation: the agents, then each tier that a call goes through. Without agents nothing.

    Language model and speech are endpoints elsewhere: what they carry is not in the file.
    """
    if aws.agents is None:
        return ()
    tasks = HostCount(min=aws.agents.tasks.min, max=aws.agents.tasks.max)
    own = agent_capacity(aws.agents, tasks, ("aws", "agents", "tasks"))
    return _chain((own, *(each for each in capacities(aws) if not _goes_by(each.tier, aws.agents))))


def conversations_on_azure(azure: Azure) -> tuple[Link, ...]:
    """Return the same of a cluster, with the services that hear, answer and speak; one that cannot work has no place.

    Raises:
        LookupError: A service names a pool that the file does not have, or one without GPUs.
    """
    agents, callers = azure.agents, azure.callers
    if agents is None or callers is None:
        return ()
    own = agent_capacity(agents, agents.replicas, ("azure", "agents", "replicas"))
    found = list(rooms(azure))
    tiers = [each for each in caller_capacities(callers) if not _goes_by(each.tier, agents)]
    engines = []
    if agents.listening == "transcript":
        engines += [_engine(azure, callers.asr.model, [room for room in found if room.model == callers.asr.model])]
    for engine, share in ((agents.chat, 1.0), (agents.speech, SPEECH_SHARE)):
        if isinstance(engine, ClusterService):
            engines.append(_engine(azure, engine.service, [r for r in found if r.service == engine.service], share))
    return (*_chain((own, *tiers)), *filter(None, engines))


def conversation_chains(deployment: Deployment) -> Iterator[tuple[Link, ...]]:
    """Yield the chain of each half that has agents, these first.

    Raises:
        LookupError: A service on Azure names a pool that the file does not have, or one without GPUs.
    """
    if deployment.aws_half and deployment.aws_half.agents:
        yield conversations_on_aws(deployment.aws_half)
    if deployment.azure_half and (chain := conversations_on_azure(deployment.azure_half)):
        yield chain


def _engine(azure: Azure, name: str, found: list[Room], share: float = 1.0) -> Link | None:
    """Return replicas as a part of the chain; each conversation takes a session ``share`` of its time."""
    if not found:
        return None
    index = next(index for index, service in enumerate(azure.services) if service.name == found[0].service)
    low, most = (
        int(sum(count * room.sessions for room, count in zip(found, counts, strict=True)) / share)
        for counts in ([room.low for room in found], [room.most for room in found])
    )
    units = HostCount(min=sum(room.low for room in found), max=sum(room.most for room in found))
    source = " and ".join(f"{room.sessions:,} sessions a replica on {room.pool}" for room in found)
    if share < 1:
        source += f", each conversation {share:.0%} of its time"
    return Link(name, units, low, most, ("azure", "services", index, "replicas"), source)


def _chain(found: tuple[Capacity, ...]) -> tuple[Link, ...]:
    links = []
    for tier, (low, most) in by_tier(found).items():
        parts = [each for each in found if each.tier is tier]
        units = HostCount(min=sum(each.units.min for each in parts), max=sum(each.units.max for each in parts))
        links.append(Link(tier.value, units, low, most, parts[0].location, parts[0].binding.source))
    return tuple(links)


def sized_callers(callers: Callers, agents: AgentRules | None, load: CallLoad) -> Iterator[tuple[Capacity, str]]:
    """Yield each tier of an Azure half with what the file should say for a load, as YAML."""
    for each in caller_capacities(callers):
        own = load_of(each.tier, load, agents)
        if each.tier is Tier.STATE:
            need = peak_calls(load) * STORE_BYTES_PER_CALL / 1e9 / REDIS_SHARE
            yield each, next((sku for sku, gb in REDIS_GB.items() if gb >= need), "none: use more deployments")
            continue
        low, most = each.units_for(own.calls), each.units_for(peak_calls(own))
        yield each, f"{{min: {low}, max: {max(most, low + 1)}}}"


def sized(aws: Aws, load: CallLoad) -> Iterator[tuple[Capacity, str]]:
    """Yield each tier's capacity with what the file should say for a load, as YAML: bounds, or the store's node type.

    Of what carries no calls at all it yields why.
    """
    units = units_for(aws, load)
    for each in capacities(aws):
        if each.tier is Tier.STATE:
            yield each, _node_type(aws.state, peak_calls(load))
        elif each.name in units:
            low, most = (count // each.parts for count in units[each.name])
            yield each, f"{{min: {low}, max: {most}}}"
        else:
            yield each, f"other hosts: {each.binding.source}"


def units_for(aws: Aws, load: CallLoad) -> dict[str, tuple[int, int]]:
    """Return the hosts or tasks that a load takes at its mean and at its peak, by fleet; ASR fleets keep their shares.

    What carries no calls at all is left out.
    """
    found = [each for each in capacities(aws) if each.calls and each.tier is not Tier.STATE]
    asr = sum(each.most for each in found if each.tier is Tier.ASR)
    units = {}
    for each in found:
        share = each.most / asr if each.tier is Tier.ASR else 1.0
        own = load_of(each.tier, load, aws.agents)
        low, most = (each.units_for(calls * share) for calls in (own.calls, peak_calls(own)))
        units[each.name] = low, max(most, low + each.parts)
    return units


def _node_type(state: StateStore, calls: int) -> str:
    """Return the cheapest node type that carries the calls, of the present one's family where that has one."""
    family = state.node_type.rpartition(".")[0]
    enough = [
        kind
        for kind in catalog.cache_node_types().values()
        if least(store(state.model_copy(update={"node_type": kind.name}))).calls >= calls
    ]
    if not enough:
        return "none of the catalogue: use fewer calls, or more deployments"
    return min(enough, key=lambda kind: (not kind.name.startswith(f"{family}."), kind.memory_gib)).name


def by_tier(found: Iterable[Capacity]) -> dict[Tier, tuple[int, int]]:
    """Return the calls of each tier, at its fewest and at its most units."""
    room: dict[Tier, tuple[int, int]] = {}
    for each in found:
        low, most = room.get(each.tier, (0, 0))
        room[each.tier] = low + each.low, most + each.most
    return room


def peak_calls(load: CallLoad) -> int:
    """Return the calls at the load's peak."""
    return math.ceil(load.calls * load.peak_factor)


def gateway_task(gateway: GatewayService) -> Bounds:
    """One process, so one core at the most; what was measured takes its place."""
    return _gateway(gateway.vcpu, gateway.memory_gib, gateway.sockets_per_task, "sockets_per_task", gateway.measured)


def gateway_sockets(gateway: GatewayService) -> int:
    """Return the sockets that a task has when it is full; it refuses more."""
    return least(gateway_task(gateway)).calls * SOCKETS_PER_CALL


def gateway_pod(gateway: GatewayPods) -> Bounds:
    """The same of a pod on Azure."""
    return _gateway(gateway.cpus, gateway.memory_gib, gateway.sockets_per_pod, "sockets_per_pod")


def gateway_pod_sockets(gateway: GatewayPods) -> int:
    """Return the sockets that a pod has when it is full; it refuses more."""
    return least(gateway_pod(gateway)).calls * SOCKETS_PER_CALL


def _gateway(
    vcpu: float, memory_gib: int, most_sockets: int | None, setting: str, measured: Measured | None = None
) -> Bounds:
    compute = Bound(
        "compute",
        int(60 / GATEWAY_WORK * CORE_SPEED * min(1.0, vcpu)),
        "assumed",
        f"{GATEWAY_WORK:g} s of an x86 core for a minute of a call, {CORE_SPEED:g} of that speed on the one core of "
        f"{vcpu:g} vCPU that one process uses",
    )
    sockets = (memory_gib * 1024 - GATEWAY_BASE_MIB) * 1024 // SOCKET_KIB
    memory = Bound("memory", sockets // SOCKETS_PER_CALL, "assumed", f"{SOCKET_KIB} KiB a socket of {memory_gib} GiB")
    found = (_measured(measured) if measured else compute, memory)
    if most_sockets is None:
        return found
    source = f"{setting} {most_sockets:,}, {SOCKETS_PER_CALL} a call"
    return (*found, Bound("sockets", most_sockets // SOCKETS_PER_CALL, "assumed", source))


def vad_host(vad: VadFleet) -> Bounds:
    """What was measured takes the place of the assumption for each polled core."""
    kind, queues = catalog.instance_types()[vad.instance_type], vad.data_path.rx_queues
    packets = Bound(
        "packets",
        STREAMS_PER_CORE * queues,
        "assumed",
        f"{STREAMS_PER_CORE:,} streams on each of {queues} polled cores, half of what x86 carries without loss",
    )
    network = int(kind.network_gbps * 1e9 / 8 / (PACKET_BYTES * PACKETS_PER_S))
    return (
        _measured(vad.measured) if vad.measured else packets,
        Bound("slots", VAD_STREAMS, "published", "streams of the VAD module"),
        Bound("network", network, "published", f"{kind.network_gbps:g} Gbit/s of {kind.name}, L16 at 16 kHz"),
    )


def vad_pod(vad: VadPods) -> Bounds:
    """All CPUs of a pod but one poll."""
    polled = vad.cpus - 1
    source = f"{SOCKET_STREAMS_PER_CORE:,} streams on each of {polled} polled cores, with kernel sockets"
    return (
        Bound("packets", SOCKET_STREAMS_PER_CORE * polled, "assumed", source),
        Bound("slots", VAD_STREAMS, "published", "streams of the VAD module"),
    )


def asr_host(fleet: AsrFleet) -> Bounds:
    """Return the bounds of a host of an ASR fleet; a host that its engine does not run on carries none."""
    kind = catalog.instance_types()[fleet.instance_type]
    measured = (_measured(fleet.measured),) if fleet.measured else ()
    if fleet.vllm:
        slots = Bound("slots", fleet.vllm.load.sessions, "assumed", "vllm.load.sessions of the deployment file")
        return (slots, _vllm_memory(fleet), *measured)
    if kind.accelerator is None:
        return measured or (_cores(kind, fleet.model or DEFAULT_MODELS["cpu"]),)
    return (_memory(kind, kind.accelerator), *measured)


def store(state: StateStore) -> Bounds:
    """Each call has the audio of one utterance and its transcript in the store."""
    node = catalog.cache_node_types()[state.node_type]
    calls = int(node.memory_gib * 2**30 * STORE_SHARE / STORE_BYTES_PER_CALL)
    each = f"{STORE_BYTES_PER_CALL / 1e6:.1f} MB a call: {UTTERANCE_S} s of audio and a transcript"
    return (Bound("memory", calls, "assumed", f"{STORE_SHARE:.0%} of {node.memory_gib:g} GiB, {each}"),)


def _measured(found: Measured) -> Bound:
    return Bound("compute", found.calls, "measured", f"{found.conditions}, {found.date}")


def _vllm_memory(fleet: AsrFleet) -> Bound:
    try:
        sized = size_fleet(fleet)
    except DoesNotFitError as refusal:
        return Bound("memory", 0, "published", str(refusal))
    return Bound("memory", sized.sessions if sized else 0, "published", "KV cache of the engine that fits the host")


def _cores(kind: InstanceType, model: str) -> Bound:
    work = CPU_WORK.get(model)
    if work is None:
        return Bound("compute", 0, "assumed", f"the speed of {model} on CPUs is not known")
    calls = int(kind.vcpus * CORE_SPEED / (work * SPEECH_SHARE))
    source = f"{work:g} s of an x86 core for a second of speech, {CORE_SPEED:g} of that speed on {kind.vcpus} vCPU"
    return Bound("compute", calls, "assumed", f"{source}, {SPEECH_SHARE:.0%} speech")


def _memory(kind: InstanceType, accelerator: Accelerator) -> Bound:
    chip = catalog.gpus().get(accelerator.model) or Gpu(
        name=accelerator.model, memory_gib=accelerator.memory_gib, compute_capability=(0, 0), source=kind.source
    )
    model = catalog.models()[LARGEST_MODEL]
    each = kv_memory(model, chip).bytes // session_bytes(model, SESSION_TOKENS)
    source = (
        f"memory of {accelerator.count} x {accelerator.model} for {LARGEST_MODEL}: a ceiling, speed is not measured"
    )
    return Bound("memory", each * accelerator.count, "published", source)
