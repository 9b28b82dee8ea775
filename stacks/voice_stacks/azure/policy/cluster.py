"""Converts a stack's resources to the cluster model that `voice_blueprint.checks` evaluates.

The cluster's project contains the pools, and the workloads' project contains the pods. All other values are read from
the deployment file, to which both configurations refer. The checks report findings about these values for the file, so
policies do not report them again.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace

from voice_blueprint import catalog
from voice_blueprint.azure.contract import SERVICE_LABEL
from voice_blueprint.azure.names import POOL_LABEL
from voice_blueprint.azure.topology import ContainerRequest
from voice_blueprint.catalog import ModelCard, VmSize
from voice_blueprint.checks.azure.cluster import (
    OMNI_TASKS,
    VLLM_TASKS,
    Cluster,
    Engine,
    FindingLocation,
    ModelCache,
    NodePool,
    PodGroup,
    build_configured_cluster,
)
from voice_blueprint.file.model.azure import TopologyPolicy
from voice_blueprint.file.model.serving import KvCacheType, Load, Quantization
from voice_stacks.azure.policy import engines, pods
from voice_stacks.azure.policy.caches import calculate_local_volume_gib
from voice_stacks.azure.policy.quantities import parse_gib
from voice_stacks.azure.policy.rules import Resource, Stack
from voice_stacks.azure.policy.values import Value

GPU_TAINT_KEYS = ("nvidia.com/gpu", "sku")
"""Keys of taints that exclude pods without GPUs; Microsoft's guides use the second one."""
UNBOUNDED_NODE_COUNT = 1_000_000
"""Number of nodes in a pool without a maximum."""


@dataclass(frozen=True)
class PoolProfile:
    """A node pool in a Pulumi program: a separate resource, or part of the cluster resource."""

    resource: Resource
    props: Value

    @property
    def name(self) -> str:
        return (self.props["name"].text or self.props["agentPoolName"].text or self.resource.name).rpartition("/")[2]

    @property
    def vm_size(self) -> VmSize | None:
        return catalog.vm_sizes().get(self.props["vmSize"].text)

    @property
    def is_system(self) -> bool:
        return self.props["mode"].text == "System"

    @property
    def is_spot(self) -> bool:
        return self.props["scaleSetPriority"].text == "Spot"


def iter_pool_profiles(stack: Stack) -> Iterator[PoolProfile]:
    for resource in stack.find_resources(":AgentPool"):
        yield PoolProfile(resource, resource.props)
    for cluster in stack.find_resources(":ManagedCluster"):
        for props in cluster.props["agentPoolProfiles"]:
            yield PoolProfile(cluster, props)


def collect_gpu_pools_by_name(stack: Stack) -> dict[str, NodePool]:
    """Return all known GPU pools, by the label that pods select."""
    return {pool.name: pool for pool in build_cluster(stack).pools if not pool.is_system}


def iter_pods_with_pools(stack: Stack) -> Iterator[tuple[pods.PodTemplate, NodePool]]:
    """Yield each pod whose pool is known, together with that pool."""
    pools_by_name = collect_gpu_pools_by_name(stack)
    return ((pod, pools_by_name[pod.pool]) for pod in pods.list_pods(stack) if pod.pool in pools_by_name)


def collect_max_replicas_by_workload(stack: Stack) -> dict[tuple[str, str], int]:
    """Return the maximum number of replicas of each workload.

    The maximum is ``maxReplicaCount`` of the workload's ScaledObject, or its ``replicas`` if it is not scaled.
    """
    max_pods = {
        (pod.namespace, pod.name): int(pod.resource.props.get("spec", "replicas").number or 1)
        for pod in pods.list_pods(stack)
    }
    for scaled in stack.find_resources(":ScaledObject"):
        target = scaled.props.get("spec", "scaleTargetRef", "name").text
        key = (scaled.props.get("metadata", "namespace").text, target)
        max_pods[key] = int(scaled.props.get("spec", "maxReplicaCount").number or max_pods.get(key, 1))
    return max_pods


def build_cluster(stack: Stack) -> Cluster:
    azure = stack.deployment.azure_section if stack.deployment else None
    file_cluster = build_configured_cluster(azure) if azure else Cluster()
    pools_by_name = {pool.name: pool for pool in file_cluster.pools} | {pool.name: pool for pool in _build_pools(stack)}
    stack_pods = tuple(_build_pods(stack, pools_by_name, file_cluster))
    if not stack_pods:
        # Engines are evaluated in the workloads' project.
        stack_pods = tuple(
            replace(pod, pool=pool, location=pool.location, pool_location=pool.location.locate_setting(), engines=())
            for pod in file_cluster.pods
            for pool in [pools_by_name[pod.pool.name]]
        )
    cluster = replace(
        file_cluster,
        pools=tuple(pools_by_name.values()),
        pods=stack_pods,
        model_caches=tuple(_find_model_caches(stack)),
    )
    for resource in stack.find_resources(":ManagedCluster"):
        api = resource.props["apiServerAccessProfile"]
        ranges = tuple(entry.text for entry in api["authorizedIPRanges"])
        cluster = replace(
            cluster,
            finding_location=FindingLocation(urn=resource.urn),
            location=resource.props["location"].text,
            authorized_ranges=ranges if api["enablePrivateCluster"].is_disabled else None,
        )
    return cluster


def _build_pools(stack: Stack) -> Iterator[NodePool]:
    for profile in iter_pool_profiles(stack):
        props = profile.props
        policy = props.get("kubeletConfig", "topologyManagerPolicy").text
        low, high = props["minCount"].number, props["maxCount"].number
        if profile.vm_size:
            yield NodePool(
                props.get("nodeLabels", POOL_LABEL).text or profile.name,
                FindingLocation(urn=profile.resource.urn),
                profile.vm_size,
                1 if low is None else int(low),
                UNBOUNDED_NODE_COUNT if high is None else int(high),
                TopologyPolicy(policy) if policy in set(TopologyPolicy) else TopologyPolicy.NONE,
                tuple(taint.text for taint in props["nodeTaints"]),
                tuple(zone.text for zone in props["availabilityZones"]),
                is_system=profile.is_system,
                is_spot=profile.is_spot,
                is_reserved=bool(props["capacityReservationGroupID"]),
            )


def _build_pods(stack: Stack, pools_by_name: dict[str, NodePool], file_cluster: Cluster) -> Iterator[PodGroup]:
    max_replicas = collect_max_replicas_by_workload(stack)
    by_pod: dict[str, list[engines.Engine]] = defaultdict(list)
    for engine in engines.list_engines(stack):
        by_pod[engine.pod.urn].append(engine)
    for pod in pods.list_pods(stack):
        pod_flows = by_pod[pod.urn]
        if pod.pool not in pools_by_name or not (pod.gpu_count or pod_flows):
            continue
        aligned = [
            container for container in pod.running_containers if container.gpu_count or container.pinned_cpu_count
        ]
        positions = {container.name: index for index, container in enumerate(aligned)}
        filed_pod = next(
            (p for p in file_cluster.pods if (p.name, p.pool.name) == (pod.labels.get(SERVICE_LABEL), pod.pool)), None
        )
        replicas = max_replicas[pod.namespace, pod.name] if pod.resource.type.endswith(pods.REPLICATED_TYPES) else 1
        yield PodGroup(
            name=pod.name,
            location=FindingLocation(urn=pod.urn),
            pool_location=(pod.urn,),
            pool=pools_by_name[pod.pool],
            gpus=pod.gpu_count,
            cpus=pod.requested_cpus,
            requests=tuple(ContainerRequest(container.gpu_count, container.pinned_cpu_count) for container in aligned),
            memory_gib={container.name: container.memory_gib for container in pod.running_containers},
            nvme_gib=calculate_local_volume_gib(pod),
            min_replicas=0,
            max_replicas=replicas,
            surge_replicas=int(pod.resource.props.get("spec", "strategy", "rollingUpdate", "maxSurge").number or 0),
            engines=tuple(
                _build_engine(engine, engine.model, positions.get(engine.container.name, 0), filed_pod)
                for engine in pod_flows
                if engine.model
            ),
            is_cell={engine.nixl_role for engine in pod_flows} >= {engines.PREFILL, engines.DECODE},
        )


def _build_engine(engine: engines.Engine, model: ModelCard, request: int, file_cluster: PodGroup | None) -> Engine:
    flags = engine.flags
    kind = "vllm-omni" if engine.is_omni else "vllm"
    # Flags contain neither the purpose of a service nor the length of a typical session.
    file_engine = next((e for e in file_cluster.engines if e.kind == kind), None) if file_cluster else None
    tasks = file_engine.tasks if file_engine else OMNI_TASKS if engine.is_omni else VLLM_TASKS
    session = file_engine.load.session_tokens if file_engine and file_engine.load else 1
    call_s = file_engine.load.longest_call_s if file_engine and file_engine.load else None
    context = engine.parse_int_flag("--max-model-len", model.max_context_tokens)
    is_fp8 = flags.get("--quantization") == "fp8" or engine.repository == model.fp8_repository
    return Engine(
        model,
        kind,
        tasks,
        engine.tensor_parallel_size,
        None
        if engine.is_omni
        else Load(sessions=1, session_tokens=session, context_tokens=context, longest_call_s=call_s),
        KvCacheType.FP8 if flags.get("--kv-cache-dtype", "").startswith("fp8") else KvCacheType.AUTO,
        Quantization.FP8 if is_fp8 else Quantization.NONE,
        transfers_kv=bool(engine.connectors) or "--kv-offloading-size" in flags,
        gpus=engine.used_gpus,
        request_index=request,
        utilization=engine.memory_fraction,
    )


def _find_model_caches(stack: Stack) -> Iterator[ModelCache]:
    models: dict[tuple[str, str], dict[str, ModelCard]] = defaultdict(dict)
    for engine in engines.list_engines(stack):
        for name in set(engine.container.volume_by_mount_path.values()):
            claim_name = engine.pod.get_volume(name).get("persistentVolumeClaim", "claimName").text
            if claim_name and engine.model:
                models[engine.pod.namespace, claim_name][engine.model.name] = engine.model
    for claim in stack.find_resources("core/v1:PersistentVolumeClaim"):
        metadata = claim.props["metadata"]
        size = parse_gib(claim.props.get("spec", "resources", "requests", "storage").text)
        if size:
            mounted = models[metadata["namespace"].text, metadata["name"].text or claim.name]
            yield ModelCache((claim.urn,), size, mounted)
