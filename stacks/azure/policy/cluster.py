"""The cluster as a stack emits it, in the plain values that `blueprint.checks` judges.

The cluster's project emits pools and the workloads' project pods; the deployment file, which the configuration of both
names, says the rest. A finding about the rest is the file's own, and no policy repeats it.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace

from blueprint import catalog
from blueprint.azure.contract import SERVICE_LABEL
from blueprint.azure.names import POOL_LABEL
from blueprint.azure.topology import Request
from blueprint.catalog import ModelCard, VmSize
from blueprint.checks.azure_cluster import (
    OMNI_TASKS,
    VLLM_TASKS,
    Cluster,
    Engine,
    ModelCache,
    Place,
    Pod,
    Pool,
    cluster_in,
)
from blueprint.file.model.azure import TopologyPolicy
from blueprint.file.model.serving import KvCacheType, Load, Quantization
from stacks.azure.policy import engines, pods
from stacks.azure.policy.caches import ephemeral_gib
from stacks.azure.policy.quantities import gib
from stacks.azure.policy.rules import Resource, Stack
from stacks.azure.policy.values import Value

GPU_TAINT_KEYS = ("nvidia.com/gpu", "sku")
"""Keys that keep pods without GPUs away; the second is the one of Microsoft's guides."""
UNBOUNDED = 1_000_000
"""Nodes of a pool that says no maximum."""


@dataclass(frozen=True)
class Profile:
    """A pool as a program emits it: a resource of its own, or a part of the cluster's."""

    resource: Resource
    props: Value

    @property
    def name(self) -> str:
        return (self.props["name"].text or self.props["agentPoolName"].text or self.resource.name).rpartition("/")[2]

    @property
    def size(self) -> VmSize | None:
        return catalog.vm_sizes().get(self.props["vmSize"].text)

    @property
    def system(self) -> bool:
        return self.props["mode"].text == "System"

    @property
    def is_spot(self) -> bool:
        return self.props["scaleSetPriority"].text == "Spot"


def profiles(stack: Stack) -> Iterator[Profile]:
    for resource in stack.of(":AgentPool"):
        yield Profile(resource, resource.props)
    for cluster in stack.of(":ManagedCluster"):
        for props in cluster.props["agentPoolProfiles"]:
            yield Profile(cluster, props)


def pools(stack: Stack) -> dict[str, Pool]:
    """Return every GPU pool that is known, by the label that pods select it with."""
    return {pool.name: pool for pool in cluster_of(stack).pools if not pool.is_system}


def placed(stack: Stack) -> Iterator[tuple[pods.Pod, Pool]]:
    """Yield the pods whose pool is known, with it."""
    known = pools(stack)
    return ((pod, known[pod.pool]) for pod in pods.pods(stack) if pod.pool in known)


def most_replicas(stack: Stack) -> dict[tuple[str, str], int]:
    """Return how many replicas each workload may have: as many as its ScaledObject allows, else its own number."""
    most = {
        (pod.namespace, pod.name): int(pod.resource.props.at("spec", "replicas").number or 1)
        for pod in pods.pods(stack)
    }
    for scaled in stack.of(":ScaledObject"):
        target = scaled.props.at("spec", "scaleTargetRef", "name").text
        key = (scaled.props.at("metadata", "namespace").text, target)
        most[key] = int(scaled.props.at("spec", "maxReplicaCount").number or most.get(key, 1))
    return most


def cluster_of(stack: Stack) -> Cluster:
    azure = stack.deployment.azure_half if stack.deployment else None
    filed = cluster_in(azure) if azure else Cluster()
    known = {pool.name: pool for pool in filed.pools} | {pool.name: pool for pool in _pools(stack)}
    emitted = tuple(_pods(stack, known, filed))
    if not emitted:
        # What runs in the engines is the workloads' to judge.
        emitted = tuple(
            replace(pod, pool=pool, place=pool.place, pool_at=pool.place.at(), engines=())
            for pod in filed.pods
            for pool in [known[pod.pool.name]]
        )
    cluster = replace(filed, pools=tuple(known.values()), pods=emitted, caches=tuple(_caches(stack)))
    for resource in stack.of(":ManagedCluster"):
        api = resource.props["apiServerAccessProfile"]
        ranges = tuple(entry.text for entry in api["authorizedIPRanges"])
        cluster = replace(
            cluster,
            place=Place(urn=resource.urn),
            location=resource.props["location"].text,
            authorized_ranges=ranges if api["enablePrivateCluster"].off else None,
        )
    return cluster


def _pools(stack: Stack) -> Iterator[Pool]:
    for profile in profiles(stack):
        props = profile.props
        policy = props.at("kubeletConfig", "topologyManagerPolicy").text
        low, high = props["minCount"].number, props["maxCount"].number
        if profile.size:
            yield Pool(
                props.at("nodeLabels", POOL_LABEL).text or profile.name,
                Place(urn=profile.resource.urn),
                profile.size,
                1 if low is None else int(low),
                UNBOUNDED if high is None else int(high),
                TopologyPolicy(policy) if policy in set(TopologyPolicy) else TopologyPolicy.NONE,
                tuple(taint.text for taint in props["nodeTaints"]),
                tuple(zone.text for zone in props["availabilityZones"]),
                is_system=profile.system,
                is_spot=profile.is_spot,
                is_reserved=bool(props["capacityReservationGroupID"]),
            )


def _pods(stack: Stack, known: dict[str, Pool], filed: Cluster) -> Iterator[Pod]:
    most = most_replicas(stack)
    by_pod: dict[str, list[engines.Engine]] = defaultdict(list)
    for engine in engines.engines(stack):
        by_pod[engine.pod.urn].append(engine)
    for pod in pods.pods(stack):
        own = by_pod[pod.urn]
        if pod.pool not in known or not (pod.gpus or own):
            continue
        aligned = [container for container in pod.running if container.gpus or container.pinned_cpus]
        asked = {container.name: index for index, container in enumerate(aligned)}
        filed_pod = next(
            (p for p in filed.pods if (p.name, p.pool.name) == (pod.labels.get(SERVICE_LABEL), pod.pool)), None
        )
        replicas = most[pod.namespace, pod.name] if pod.resource.type.endswith(pods.REPLICATED) else 1
        yield Pod(
            name=pod.name,
            place=Place(urn=pod.urn),
            pool_at=(pod.urn,),
            pool=known[pod.pool],
            gpus=pod.gpus,
            cpus=pod.cpus,
            requests=tuple(Request(container.gpus, container.pinned_cpus) for container in aligned),
            memory_gib={container.name: container.memory_gib for container in pod.running},
            nvme_gib=ephemeral_gib(pod),
            min_replicas=0,
            max_replicas=replicas,
            surge=int(pod.resource.props.at("spec", "strategy", "rollingUpdate", "maxSurge").number or 0),
            engines=tuple(
                _engine(engine, engine.model, asked.get(engine.container.name, 0), filed_pod)
                for engine in own
                if engine.model
            ),
            is_cell={engine.nixl_role for engine in own} >= {engines.PREFILL, engines.DECODE},
        )


def _engine(engine: engines.Engine, model: ModelCard, request: int, filed: Pod | None) -> Engine:
    flags = engine.flags
    kind = "vllm-omni" if engine.is_omni else "vllm"
    # Flags say neither what a service is for nor how long a typical session is.
    same = next((e for e in filed.engines if e.kind == kind), None) if filed else None
    tasks = same.tasks if same else OMNI_TASKS if engine.is_omni else VLLM_TASKS
    session = same.load.session_tokens if same and same.load else 1
    call_s = same.load.longest_call_s if same and same.load else None
    context = engine.number("--max-model-len", model.max_context_tokens)
    is_fp8 = flags.get("--quantization") == "fp8" or engine.repository == model.fp8_repository
    return Engine(
        model,
        kind,
        tasks,
        engine.tensor_parallel,
        None
        if engine.is_omni
        else Load(sessions=1, session_tokens=session, context_tokens=context, longest_call_s=call_s),
        KvCacheType.FP8 if flags.get("--kv-cache-dtype", "").startswith("fp8") else KvCacheType.AUTO,
        Quantization.FP8 if is_fp8 else Quantization.NONE,
        hands_over_kv=bool(engine.connectors) or "--kv-offloading-size" in flags,
        gpus=engine.own_gpus,
        request=request,
        utilization=engine.memory_share,
    )


def _caches(stack: Stack) -> Iterator[ModelCache]:
    models: dict[tuple[str, str], dict[str, ModelCard]] = defaultdict(dict)
    for engine in engines.engines(stack):
        for name in set(engine.container.mounts.values()):
            claimed = engine.pod.volume(name).at("persistentVolumeClaim", "claimName").text
            if claimed and engine.model:
                models[engine.pod.namespace, claimed][engine.model.name] = engine.model
    for claim in stack.of("core/v1:PersistentVolumeClaim"):
        metadata = claim.props["metadata"]
        size = gib(claim.props.at("spec", "resources", "requests", "storage").text)
        if size:
            mounted = models[metadata["namespace"].text, metadata["name"].text or claim.name]
            yield ModelCache((claim.urn,), size, mounted)
