"""Sizes a new file for a number of calls, with one fleet or pool of the cheapest sufficient GPU."""

import bisect
import math
from collections.abc import Mapping
from ipaddress import IPv4Network
from typing import get_args

from voice_blueprint import catalog, huge_pages
from voice_blueprint.aws.edge import API_BURST_LIMIT
from voice_blueprint.aws.network import calculate_required_address_count, count_addresses_per_subnet
from voice_blueprint.azure.rollout import calculate_surge_node_count
from voice_blueprint.capacity.bounds import (
    MAX_STORE_UTILIZATION,
    MAX_VAD_STREAMS,
    VAD_STREAMS_PER_CORE,
    calculate_asr_host_call_bounds,
    calculate_gateway_task_call_bounds,
    calculate_state_store_call_bounds,
    find_limiting_bound,
)
from voice_blueprint.capacity.conversations import MAX_CONVERSATIONS_PER_CORE
from voice_blueprint.capacity.cpu_pods import (
    AGENT_CPUS,
    AGENT_POD_MEMORY_GIB,
    SIDECAR_CPUS,
    SIDECAR_MEMORY_GIB,
    CpuPodGroup,
    build_cpu_pods_by_tier,
    calculate_required_cpu_nodes,
)
from voice_blueprint.capacity.load import calculate_peak_requests_per_s
from voice_blueprint.capacity.tiers import TARGET_UTILIZATION, build_azure_caller_capacities
from voice_blueprint.checks.azure.pools import PLACEHOLDER_ID, POD_PREFIX_LENGTH
from voice_blueprint.checks.azure.sizing import calculate_min_file_share_gib
from voice_blueprint.contract.network import Tier
from voice_blueprint.engines.sizing.layouts import EngineRequirements, create_aggregated_layout
from voice_blueprint.engines.sizing.memory import calculate_weights_gib
from voice_blueprint.engines.sizing.result import DoesNotFitError
from voice_blueprint.file.model.aws import AsrFleet, Network, StateStore
from voice_blueprint.file.model.azure import MAX_FILE_SHARE_GIB, ClusterNetwork
from voice_blueprint.file.model.azure_callers import (
    AsrPods,
    AzureDomain,
    AzureEdge,
    Callers,
    GatewayPods,
    ManagedRedis,
    RedisSku,
    VadPods,
    VaultCertificate,
)
from voice_blueprint.file.model.base import HostCount
from voice_blueprint.file.model.edge import GatewayService, NoAuthorizer, TaskCount, Throttle
from voice_blueprint.file.model.load import CallLoad
from voice_blueprint.file.model.serving import Load, Quantization

PEAK_HEADROOM_FACTOR = 1.1
RATE_LIMIT_FACTOR = 1.5
"""Ratio of the session API's rate limit to the peak request rate. Refused callers repeat their requests."""
ZONE_COUNT = 2
"""Number of availability zones in a first file."""
VAD_INSTANCE_TYPE, VAD_QUEUES = "c8g.4xlarge", 4
SMALL_INSTANCE_TYPES = ("c8g.large", "c8g.xlarge")
"""Instance types in `deployments/small.yaml`."""
SYSTEM_VM_SIZE, SYSTEM_NODES = "Standard_D4ds_v5", HostCount(min=2, max=3)
CPU_VM_SIZE = "Standard_D8ds_v5"
"""VM size of the nodes for the gateway, the data plane and the ASR tier on Azure."""
AZURE_MODEL = "voxtral-small-24b"
MIN_MODEL_CACHE_GIB = 1024
"""Minimum size of the share for weights."""
_CPU_TIERS = (Tier.GATEWAY, Tier.VAD, Tier.ASR)
MIN_FP8_COMPUTE_CAPABILITY = (8, 9)
"""Minimum compute capability for computation in FP8 (Ada and later). On older GPUs, FP8 only saves memory."""


_PLACEHOLDER_VAULT_ID = (
    f"/subscriptions/{PLACEHOLDER_ID}/resourceGroups/certificates/providers/Microsoft.KeyVault/vaults/certificates"
)


class UnsupportedAnswersError(ValueError):
    """No deployment file is possible for these answers. The message contains the reason and alternatives."""


def calculate_mean_calls(calls: int) -> int:
    """Return the mean number of calls for a peak, with the default ratio of the deployment file."""
    return math.ceil(calls / CallLoad(calls=1).peak_factor)


def calculate_host_count(calls: int, capacities: int) -> HostCount:
    """Return the number of hosts: the minimum for the mean number of calls, and the maximum for the peak.

    The utilization is ``TARGET_UTILIZATION``. For the peak, a tenth and one more host are added, since the number of
    calls varies and an alert fires while a fleet is at its maximum.
    """
    low, high = (
        math.ceil(each / (capacities * TARGET_UTILIZATION))
        for each in (calculate_mean_calls(calls), PEAK_HEADROOM_FACTOR * calls)
    )
    return HostCount(min=max(2, low), max=max(3, high + 1))


def list_supported_regions(cloud: str) -> list[str]:
    """Return the regions of a cloud that offer the instance types for a first file, with GPUs or CPUs."""
    if cloud == "aws":
        return [name for name in catalog.regions() if _list_single_gpu_types(name) or offers_small_types(name)]
    sizes = catalog.vm_sizes()
    region_names = {region for size in sizes.values() for region in size.regions}
    return sorted(region for region in region_names if _find_fitting_vm_sizes(region))


MAX_SMALL_CALLS = 20
"""Maximum number of calls for `deployments/small.yaml`, with the margins in that file."""


def offers_gpus(cloud: str, region: str) -> bool:
    """Return True if a region offers the GPUs for a first file, which agents require."""
    return cloud != "aws" or bool(_list_single_gpu_types(region))


def calculate_max_calls(cloud: str, region: str, *, agents: bool) -> int:
    """Return the maximum number of concurrent calls.

    The limit is the capacity of one state store and, on AWS, the number of addresses in the subnets. In a region
    without GPUs, the limit is that of the small deployment, which uses CPUs.
    """
    if not offers_gpus(cloud, region):
        return MAX_SMALL_CALLS
    if cloud == "aws":
        store_capacity = max(
            find_limiting_bound(
                calculate_state_store_call_bounds(StateStore(node_type=kind.name), archives=False)
            ).calls
            for kind in _list_cache_node_types()
        )

        def is_unsupported(calls: int) -> bool:
            try:
                build_aws_placeholder_values(region, calls, agents=agents)
            except UnsupportedAnswersError:
                return True
            return False

        return bisect.bisect_left(range(1, int(store_capacity) + 1), True, key=is_unsupported)
    unit_count = dict.fromkeys(_CPU_TIERS, HostCount(min=1, max=1))
    store_capacity = max(
        build_azure_caller_capacities(_build_callers_section(unit_count, sku))[-1].calls for sku in get_args(RedisSku)
    )

    def exceeds_store(calls: int) -> bool:
        return (
            _calculate_required_capacity(
                _calculate_design_calls(calls, calculate_agent_units(calls) if agents else None), agents=agents
            )
            > store_capacity
        )

    return bisect.bisect_left(range(1, int(store_capacity) + 1), True, key=exceeds_store)


def offers_small_types(region: str) -> bool:
    """Return True if an AWS region offers the types in `deployments/small.yaml`."""
    return all(region in catalog.instance_types()[name].regions for name in SMALL_INSTANCE_TYPES)


def _list_single_gpu_types(region: str) -> list[catalog.InstanceType]:
    """Return the instance types with one GPU in a region. The list is empty if the region lacks the VAD hosts' type."""
    types = catalog.instance_types().values()
    gpus = [each for each in types if each.accelerator and each.accelerator.kind == "gpu" and region in each.regions]
    offered = region in catalog.instance_types()[VAD_INSTANCE_TYPE].regions
    return [each for each in gpus if each.accelerator and each.accelerator.count == 1] if offered else []


def _list_cache_node_types() -> list[catalog.CacheNodeType]:
    return [kind for kind in catalog.cache_node_types().values() if kind.name.startswith("cache.r7g.")]


def calculate_agent_units(calls: int) -> HostCount:
    """Return the number of agent tasks or pods for a maximum number of conversations."""
    return calculate_host_count(calls, MAX_CONVERSATIONS_PER_CORE)


def _calculate_design_calls(calls: int, units: HostCount | None) -> int:
    """Return the number of calls for which the other tiers are sized, so that they do not limit the agents."""
    return max(calls, math.ceil(units.max * MAX_CONVERSATIONS_PER_CORE * TARGET_UTILIZATION)) if units else calls


def _calculate_required_capacity(calls: int, *, agents: bool) -> int:
    """Return the capacity in calls that a store requires so that its alert does not fire at the peak."""
    # The file contains the mean, which is rounded up, and the peak is twice the mean.
    return math.ceil((calls + calls % 2) / (TARGET_UTILIZATION if agents else MAX_STORE_UTILIZATION))


def build_aws_placeholder_values(region: str, calls: int, *, agents: bool) -> dict[str, object]:
    """Return the values of the placeholders in `aws.yaml`.

    Raises:
        UnsupportedAnswersError: The region offers no suitable host, or one state store has no room for the calls.
    """
    rows = _list_single_gpu_types(region)
    if not rows:
        raise UnsupportedAnswersError(
            f"{region} offers no GPU type together with {VAD_INSTANCE_TYPE}; choose us-east-1 or us-east-2"
        )
    units = calculate_agent_units(calls) if agents else None
    carried = _calculate_design_calls(calls, units)
    unit_count = HostCount(min=0, max=1)
    capacities = {
        row.name: find_limiting_bound(
            calculate_asr_host_call_bounds(AsrFleet(name="gpu", instance_type=row.name, hosts=unit_count, scaling=()))
        ).calls
        for row in rows
    }
    store_capacity = _calculate_required_capacity(carried, agents=units is not None)
    suitable_nodes = [
        kind
        for kind in _list_cache_node_types()
        if find_limiting_bound(calculate_state_store_call_bounds(StateStore(node_type=kind.name), archives=False)).calls
        >= store_capacity
    ]
    if not suitable_nodes:
        raise _create_too_many_calls_error(calls)
    asr = min(rows, key=lambda row: _find_min_price(row.usd_per_hour) / capacities[row.name])
    streams_per_host = VAD_STREAMS_PER_CORE * VAD_QUEUES
    hosts, per_zone = (
        calculate_host_count(carried, capacities[asr.name]),
        math.ceil(carried / (2 * streams_per_host * TARGET_UTILIZATION)),
    )
    task = find_limiting_bound(calculate_gateway_task_call_bounds(GatewayService(tasks=TaskCount(min=1, max=1)))).calls
    tasks, accepted_calls = (
        calculate_host_count(carried, task),
        min(hosts.max * capacities[asr.name], 4 * per_zone * streams_per_host),
    )
    gateway_max = max(4, tasks.max, math.ceil(accepted_calls / task))  # calls that the fleets accept
    addresses = calculate_required_address_count(
        hosts=2 * per_zone + hosts.max, task_counts=[gateway_max, *([units.max] if units else [])], zones=ZONE_COUNT
    )
    if addresses > count_addresses_per_subnet(Network().cidr, ZONE_COUNT):
        raise _create_too_many_calls_error(calls, "a VPC's subnets")
    return {
        "zones": f"{region}a, {region}b",
        "vad_type": VAD_INSTANCE_TYPE,
        "vad_places": f"{streams_per_host:,}",
        "vad_pages": huge_pages.calculate_huge_page_count(
            min(streams_per_host, MAX_VAD_STREAMS), VAD_QUEUES, size_mib=2
        ),
        "vad_min": per_zone,
        "vad_max": 2 * per_zone,  # the other zone may fail
        "asr_type": asr.name,
        "asr_places": capacities[asr.name],
        "asr_min": hosts.min,
        "asr_max": hosts.max,
        "asr_step": math.ceil(hosts.max / 3),
        # the same number in each zone, since callers are distributed evenly
        "gateway_min": ZONE_COUNT * math.ceil(tasks.min / ZONE_COUNT),
        "gateway_max": gateway_max,
        "caller_sessions": max(1000, accepted_calls),  # one service may be the only caller
        "throttle": _render_throttle_setting(calls),
        "agent_units": _render_bounds_yaml(units) if units else "",
        "node_type": min(suitable_nodes, key=lambda kind: kind.memory_gib).name,
        "mean": calculate_mean_calls(calls),
    }


def _render_throttle_setting(calls: int) -> str:
    """Return the setting of the session API's rate limits, or an empty string if the default is sufficient."""
    required_rate = math.ceil(
        RATE_LIMIT_FACTOR * calculate_peak_requests_per_s(CallLoad(calls=calculate_mean_calls(calls)))
    )
    if required_rate <= Throttle().requests_per_s:
        return ""
    return f"\n    throttle: {{requests_per_s: {required_rate}, burst: {min(2 * required_rate, API_BURST_LIMIT)}}}"


def _find_fitting_vm_sizes(region: str, calls: int = 1) -> dict[str, tuple[int, Quantization]]:
    """Return the VM sizes in a region whose GPU fits the model, with their sessions per replica and quantization."""
    sizes, model = catalog.vm_sizes(), catalog.models()[AZURE_MODEL]
    if not all(region in sizes[name].regions for name in (SYSTEM_VM_SIZE, CPU_VM_SIZE)):
        return {}
    load = Load(sessions=calls, session_tokens=1500, context_tokens=16384)
    results = {}
    for size in sizes.values():
        if size.gpu is None or size.gpu_count != 1 or region not in size.regions:
            continue
        gpu = catalog.gpus()[size.gpu]
        quantization = Quantization.FP8 if gpu.compute_capability >= MIN_FP8_COMPUTE_CAPABILITY else Quantization.NONE
        try:
            layout = create_aggregated_layout(
                model, gpu, size, EngineRequirements(load, quantization), tensor_parallel=1, region=region
            )
        except DoesNotFitError:
            continue
        results[size.name] = (layout.engine.sessions, quantization)
    return results


def build_azure_placeholder_values(region: str, calls: int, *, agents: bool) -> dict[str, object]:
    """Return the values of the placeholders in `azure.yaml`.

    Raises:
        UnsupportedAnswersError: The region offers no suitable host, or one state store has no room for the calls.
    """
    sizes, model = catalog.vm_sizes(), catalog.models()[AZURE_MODEL]
    units = calculate_agent_units(calls) if agents else None
    carried = _calculate_design_calls(calls, units)
    result = _find_fitting_vm_sizes(region, carried)
    if not result:
        raise UnsupportedAnswersError(
            f"{region} offers no single GPU that fits Voxtral-24B; choose southcentralus or eastus"
        )
    size_name = min(result, key=lambda name: _find_min_price(sizes[name].usd_per_hour) / result[name][0])
    sessions, quantization = result[size_name]
    replicas = calculate_host_count(carried, sessions)
    callers, nodes = size_callers(carried, units)
    return {
        "vm_size": size_name,
        "replicas_min": replicas.min,
        "replicas_max": replicas.max,
        "mean": calculate_mean_calls(calls),
        "sessions": sessions,
        "quantization": quantization.value,
        "cache_gib": calculate_min_file_share_gib(
            replicas.max * calculate_weights_gib(model, quantization), MIN_MODEL_CACHE_GIB
        )
        or MAX_FILE_SHARE_GIB,
        "system_nodes": _render_bounds_yaml(SYSTEM_NODES),
        "cpu_size": CPU_VM_SIZE,
        "cpu_nodes": _render_bounds_yaml(nodes),
        "state": callers.state.sku,
        "gateway": _render_bounds_yaml(callers.edge.gateway.replicas),
        "vad": _render_bounds_yaml(callers.vad.replicas),
        "asr": _render_bounds_yaml(callers.asr.replicas),
        "sessions_asked": carried,
        "network": _render_pod_range_setting(SYSTEM_NODES.max + replicas.max + nodes.max),
        "agent_units": _render_bounds_yaml(units) if units else "",
    }


def _render_pod_range_setting(nodes: int) -> str:
    """Return the setting for a pod range with a /24 for each node, including the nodes for an upgrade.

    The result is empty if the default range is sufficient.
    """
    # Each of two pools rounds its surge up.
    max_nodes = nodes + calculate_surge_node_count(nodes) + 1
    prefix, default = POD_PREFIX_LENGTH - math.ceil(math.log2(max_nodes)), ClusterNetwork().pod_cidr
    if prefix >= IPv4Network(default).prefixlen:
        return ""
    return f"\n  network: {{pod_cidr: 10.128.0.0/{prefix}}}  # a /{POD_PREFIX_LENGTH} for each node"


def size_callers(calls: int, agents: HostCount | None = None) -> tuple[Callers, HostCount]:
    """Return the section `callers` for a number of calls on Azure, and the number of nodes for the pods.

    Raises:
        UnsupportedAnswersError: No state store has room for this number of calls.
    """
    results = {
        each.tier: each
        for each in build_azure_caller_capacities(
            _build_callers_section(dict.fromkeys(_CPU_TIERS, HostCount(min=1, max=1)))
        )
    }
    replicas = {tier: calculate_host_count(calls, results[tier].calls) for tier in _CPU_TIERS}
    store_capacity = _calculate_required_capacity(calls, agents=agents is not None)
    for sku in get_args(RedisSku):
        callers = _build_callers_section(replicas, sku)
        if build_azure_caller_capacities(callers)[-1].calls >= store_capacity:
            break
    else:
        raise _create_too_many_calls_error(calls)
    pods = build_cpu_pods_by_tier(callers, None)
    if agents:
        pods[Tier.AGENT.value] = CpuPodGroup(
            AGENT_CPUS + SIDECAR_CPUS, AGENT_POD_MEMORY_GIB + SIDECAR_MEMORY_GIB, agents
        )
    low = calculate_required_cpu_nodes(CPU_VM_SIZE, pods, {name: pod.replicas.min for name, pod in pods.items()})
    max_nodes = calculate_required_cpu_nodes(
        CPU_VM_SIZE, pods, {name: pod.replicas.max + 1 for name, pod in pods.items()}
    )
    return callers, HostCount(min=max(2, low), max=max(3, max_nodes))


def _build_callers_section(replicas: Mapping[Tier, HostCount], sku: RedisSku = "Balanced_B3") -> Callers:
    """Return a section `callers` with these replicas, placeholder names and default sizes."""
    edge = AzureEdge(
        authorizer=NoAuthorizer(kind="none"),
        domain=AzureDomain(name="voice.example.com"),
        certificate=VaultCertificate(vault_id=_PLACEHOLDER_VAULT_ID, name="voice"),
        gateway=GatewayPods(replicas=replicas[Tier.GATEWAY]),
    )
    asr = AsrPods(model=AZURE_MODEL, replicas=replicas[Tier.ASR])
    return Callers(state=ManagedRedis(sku=sku), edge=edge, vad=VadPods(replicas=replicas[Tier.VAD]), asr=asr)


def _render_bounds_yaml(count: HostCount) -> str:
    return f"{{min: {count.min}, max: {count.max}}}"


def _create_too_many_calls_error(calls: int, limit: str = "one state store") -> UnsupportedAnswersError:
    return UnsupportedAnswersError(
        f"{calls:,} calls exceed the capacity of {limit}; write a file for some of them, and set `cells` in it"
    )


def _find_min_price(usd_per_hour: Mapping[str, float]) -> float:
    """Return the lowest price in any region. Types are compared by this price, since some lack a regional price."""
    return min(usd_per_hour.values(), default=math.inf)
