"""Limits on the calls that a host, task, pod or store handles, each with its source."""

from dataclasses import dataclass
from typing import Literal

from voice_blueprint import catalog
from voice_blueprint.catalog import Accelerator, InstanceType
from voice_blueprint.catalog.inference import Gpu
from voice_blueprint.contract.chunk import CHUNK_DATAGRAM_BYTES
from voice_blueprint.engines.launch.whisper import DEFAULT_WHISPER_MODEL_BY_KIND
from voice_blueprint.engines.sizing.memory import calculate_kv_memory, calculate_session_bytes
from voice_blueprint.engines.sizing.result import DoesNotFitError
from voice_blueprint.engines.sizing.service import size_fleet
from voice_blueprint.file.model.aws import AsrFleet, StateStore, VadFleet
from voice_blueprint.file.model.azure_callers import GatewayPods, VadPods
from voice_blueprint.file.model.edge import GatewayService
from voice_blueprint.file.model.load import MeasuredCapacity

BoundKind = Literal["measured", "published", "assumed"]

VAD_STREAMS_PER_CORE = 2_000
"""Streams per polled core of a VAD host: half of what the data plane's benchmark handles without loss on a shared x86
machine. Graviton4 has not been measured."""

SOCKET_STREAMS_PER_CORE = 500
"""Streams per core that polls kernel sockets in a pod: a quarter of ``VAD_STREAMS_PER_CORE``, since the kernel
also needs CPU time. ASSUMED."""

MAX_VAD_STREAMS = 8_192
"""Maximum number of streams in the VAD module (images/vad-dataplane/src/vad)."""

PACKET_BYTES, PACKETS_PER_S = 640 + 12 + 28, 50
"""A packet contains 20 ms of L16 at 16 kHz, with the headers of RTP, UDP and IPv4."""

LARGEST_MODEL, SESSION_TOKENS = "whisper-large-v3", 448
"""Model and tokens per session that determine how many sessions fit in an accelerator's memory, regardless of the
served model: the largest Whisper model with a full decoder context."""

CPU_S_PER_SPEECH_S_BY_MODEL = {"Systran/faster-whisper-base": 0.36, "Systran/faster-whisper-tiny.en": 0.16}
"""Seconds of CPU time that our engine uses per second of speech, by model, including partial transcripts. Measured on a
shared x86 machine in int8 (docs/measurements.md, the voice path)."""

RELATIVE_CORE_SPEED = 0.5
"""Speed of a Graviton4 vCPU relative to a core of the shared x86 machine on which CPU time was measured, with a margin
for timely final transcripts. ASSUMED: Graviton4 has not been measured."""

SPEECH_FRACTION = 0.5
"""Default fraction of a call that is speech."""

SOCKETS_PER_CALL = 2
"""Number of sockets per call: the caller's audio socket and event stream."""

EDGE_INSTANCES, EDGE_UNITS = (2, 50), 10
"""Minimum and maximum number of instances of Azure's application gateway: with two instances, one may fail, and the
subnet's addresses limit the maximum (voice_blueprint/azure/ranges.py). ``EDGE_UNITS`` is the number of capacity units
per instance; a unit is 2,500 connections, 2.22 Mbit/s or, with a web application firewall, ten requests per second.
https://learn.microsoft.com/azure/application-gateway/understanding-pricing"""

GATEWAY_CPU_S_PER_MINUTE = 0.28
"""Seconds of CPU time that a gateway process uses per minute of a call, at 120 concurrent calls. Measured on a shared
x86 machine on 2026-11-22 (docs/measurements.md, the gateway). The value is scaled by ``RELATIVE_CORE_SPEED``."""

GATEWAY_BASE_MIB, SOCKET_KIB = 256, 128
"""Memory of a gateway task without callers, including decoders for two files (90 MiB each), and memory per open socket.
ASSUMED."""

USABLE_STORE_FRACTION = 0.75
"""Usable share of a node's memory: ElastiCache reserves a quarter for snapshots and replication
(``reserved-memory-percent``). https://docs.aws.amazon.com/AmazonElastiCache/latest/dg/redis-memory-management.html"""

MAX_STORE_UTILIZATION = 0.78
"""Share of a store's maximum calls that is planned for the peak: `valkey-memory-high` fires at 80 %, and the standard
deviation of the number of calls is its square root."""

REDIS_MEMORY_GB_BY_SKU = {"Balanced_B3": 3, "Balanced_B5": 6, "Balanced_B10": 12, "Balanced_B20": 24}
"""Memory of Azure Managed Redis by size, in ascending order.
https://azure.microsoft.com/pricing/details/managed-redis"""

USABLE_REDIS_FRACTION = 0.8
"""Usable share of the memory of Azure Managed Redis. A fifth is reserved for replication.
https://learn.microsoft.com/azure/redis/best-practices-memory-management"""

MAX_UTTERANCE_S, CHUNKS_PER_S = 30, 10
"""Maximum duration of an utterance, and number of chunks per second. Chunks are kept until the final transcript."""

TRANSCRIPT_BYTES = 512 * 1024
"""Size of a transcript with 4,096 events of 128 bytes. ASSUMED."""

FINALS_BYTES = 128 * 1024
"""Size of the final transcripts of an archived session, which are kept until the session ends: ten minutes of speech
with 150 words per minute and 80 bytes per word. ASSUMED."""

STORE_BYTES_PER_CALL = MAX_UTTERANCE_S * CHUNKS_PER_S * CHUNK_DATAGRAM_BYTES + TRANSCRIPT_BYTES


@dataclass(frozen=True)
class CallBound:
    """A limit on the calls that a host, task or store handles.

    Attributes:
        kind: Whether the number was measured, is derived from published values, or is assumed.
    """

    name: Literal["slots", "memory", "compute", "packets", "network", "sockets"]
    calls: int
    kind: BoundKind
    source: str


CallBounds = tuple[CallBound, ...]


def find_limiting_bound(bounds: CallBounds) -> CallBound:
    """Return the bound that allows the fewest calls."""
    return min(bounds, key=lambda bound: bound.calls)


def calculate_gateway_task_call_bounds(gateway: GatewayService) -> CallBounds:
    """Return the bounds of a gateway task, whose process uses at most one core.

    A measured value replaces the assumed one.
    """
    return _calculate_gateway_call_bounds(
        gateway.vcpu, gateway.memory_gib, gateway.sockets_per_task, "sockets_per_task", gateway.measured
    )


def calculate_max_gateway_sockets(gateway: GatewayService) -> int:
    """Return the maximum number of sockets for a gateway task. The task rejects further sockets."""
    return find_limiting_bound(calculate_gateway_task_call_bounds(gateway)).calls * SOCKETS_PER_CALL


def calculate_gateway_pod_call_bounds(gateway: GatewayPods) -> CallBounds:
    """Return the bounds of a gateway pod on Azure."""
    return _calculate_gateway_call_bounds(gateway.cpus, gateway.memory_gib, gateway.sockets_per_pod, "sockets_per_pod")


def calculate_max_gateway_pod_sockets(gateway: GatewayPods) -> int:
    """Return the maximum number of sockets for a gateway pod. The pod rejects further sockets."""
    return find_limiting_bound(calculate_gateway_pod_call_bounds(gateway)).calls * SOCKETS_PER_CALL


def _calculate_gateway_call_bounds(
    vcpu: float, memory_gib: int, max_sockets: int | None, setting: str, measured: MeasuredCapacity | None = None
) -> CallBounds:
    compute = CallBound(
        "compute",
        int(60 / GATEWAY_CPU_S_PER_MINUTE * RELATIVE_CORE_SPEED * min(1.0, vcpu)),
        "assumed",
        f"{GATEWAY_CPU_S_PER_MINUTE:g} s of an x86 core for a minute of a call, {RELATIVE_CORE_SPEED:g} of that "
        f"speed on the one core of {vcpu:g} vCPU that one process uses",
    )
    sockets = (memory_gib * 1024 - GATEWAY_BASE_MIB) * 1024 // SOCKET_KIB
    memory = CallBound(
        "memory", sockets // SOCKETS_PER_CALL, "assumed", f"{SOCKET_KIB} KiB a socket of {memory_gib} GiB"
    )
    results = (_build_measured_bound(measured) if measured else compute, memory)
    if max_sockets is None:
        return results
    source = f"{setting} {max_sockets:,}, {SOCKETS_PER_CALL} a call"
    return (*results, CallBound("sockets", max_sockets // SOCKETS_PER_CALL, "assumed", source))


def calculate_vad_host_call_bounds(vad: VadFleet) -> CallBounds:
    """Return the bounds of a VAD host. A measured value replaces the assumption per polled core."""
    kind, queues = catalog.instance_types()[vad.instance_type], vad.data_path.rx_queues
    packets = CallBound(
        "packets",
        VAD_STREAMS_PER_CORE * queues,
        "assumed",
        f"{VAD_STREAMS_PER_CORE:,} streams on each of {queues} polled cores, half of what x86 handles without loss",
    )
    network = int(kind.network_gbps * 1e9 / 8 / (PACKET_BYTES * PACKETS_PER_S))
    return (
        _build_measured_bound(vad.measured) if vad.measured else packets,
        CallBound("slots", MAX_VAD_STREAMS, "published", "streams of the VAD module"),
        CallBound("network", network, "published", f"{kind.network_gbps:g} Gbit/s of {kind.name}, L16 at 16 kHz"),
    )


def calculate_vad_pod_call_bounds(vad: VadPods) -> CallBounds:
    """Return the bounds of a VAD pod, in which all CPUs except one poll."""
    polled_cores = vad.cpus - 1
    source = f"{SOCKET_STREAMS_PER_CORE:,} streams on each of {polled_cores} polled cores, with kernel sockets"
    return (
        CallBound("packets", SOCKET_STREAMS_PER_CORE * polled_cores, "assumed", source),
        CallBound("slots", MAX_VAD_STREAMS, "published", "streams of the VAD module"),
    )


def calculate_asr_host_call_bounds(fleet: AsrFleet) -> CallBounds:
    """Return the limits on concurrent calls for a host in an ASR fleet. Without a supported engine, the limit is 0."""
    kind = catalog.instance_types()[fleet.instance_type]
    measured = (_build_measured_bound(fleet.measured),) if fleet.measured else ()
    if fleet.vllm:
        slots = CallBound("slots", fleet.vllm.load.sessions, "assumed", "vllm.load.sessions of the deployment file")
        return (slots, _calculate_vllm_memory_bound(fleet), *measured)
    if kind.accelerator is None:
        return measured or (_calculate_cpu_bound(kind, fleet.model or DEFAULT_WHISPER_MODEL_BY_KIND["cpu"]),)
    return (_calculate_accelerator_memory_bound(kind, kind.accelerator), *measured)


def calculate_state_store_call_bounds(state: StateStore, *, archives: bool) -> CallBounds:
    """Return the number of calls that the memory of a state store node allows.

    For each call, the store contains the audio and transcript of one utterance, and the call's final transcripts until
    they are archived.

    Args:
        archives: Whether transcripts are archived; every call is assumed to be archived.
    """
    node = catalog.cache_node_types()[state.node_type]
    size = STORE_BYTES_PER_CALL + (FINALS_BYTES if archives else 0)
    calls = int(node.memory_gib * 2**30 * USABLE_STORE_FRACTION / size)
    each = f"{size / 1e6:.1f} MB a call: {MAX_UTTERANCE_S} s of audio and a transcript"
    return (CallBound("memory", calls, "assumed", f"{USABLE_STORE_FRACTION:.0%} of {node.memory_gib:g} GiB, {each}"),)


def _build_measured_bound(measurement: MeasuredCapacity) -> CallBound:
    return CallBound("compute", measurement.calls, "measured", f"{measurement.conditions}, {measurement.date}")


def _calculate_vllm_memory_bound(fleet: AsrFleet) -> CallBound:
    try:
        engine_sizing = size_fleet(fleet)
    except DoesNotFitError as refusal:
        return CallBound("memory", 0, "published", str(refusal))
    return CallBound(
        "memory",
        engine_sizing.sessions if engine_sizing else 0,
        "published",
        "KV cache of the engine that fits the host",
    )


def _calculate_cpu_bound(kind: InstanceType, model: str) -> CallBound:
    work = CPU_S_PER_SPEECH_S_BY_MODEL.get(model)
    if work is None:
        return CallBound("compute", 0, "assumed", f"the speed of {model} on CPUs is not known")
    calls = int(kind.vcpus * RELATIVE_CORE_SPEED / (work * SPEECH_FRACTION))
    source = (
        f"{work:g} s of an x86 core for a second of speech, {RELATIVE_CORE_SPEED:g} of that speed on {kind.vcpus} vCPU"
    )
    return CallBound("compute", calls, "assumed", f"{source}, {SPEECH_FRACTION:.0%} speech")


def _calculate_accelerator_memory_bound(kind: InstanceType, accelerator: Accelerator) -> CallBound:
    chip = catalog.gpus().get(accelerator.model) or Gpu(
        name=accelerator.model, memory_gib=accelerator.memory_gib, compute_capability=(0, 0), source=kind.source
    )
    model = catalog.models()[LARGEST_MODEL]
    each = calculate_kv_memory(model, chip).total_bytes // calculate_session_bytes(model, SESSION_TOKENS)
    source = (
        f"memory of {accelerator.count} x {accelerator.model} for {LARGEST_MODEL}: a ceiling, speed is not measured"
    )
    return CallBound("memory", each * accelerator.count, "published", source)
