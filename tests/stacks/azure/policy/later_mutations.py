"""Mistakes added after the rules for ``mutations``, which evaluate rules over relations.

The existing rules detected those that are ``blind``; the other rules were written for the rest. The rules' author wrote
these too, and looked for gaps, so they give no detection rate.
"""

import copy

from tests.stacks.azure.policy.graphs import CLUSTER, WORKLOADS, Emitted, Mutation, flag, limits, variable
from tests.stacks.azure.policy.mutations import CELL, flags, pool, replace_argument, without_resource


def small_lmcache(graph: Emitted) -> None:
    limits(graph.container(CELL, "lmcache"), memory="50Gi")


def same_gpus(graph: Emitted) -> None:
    variable(graph.container(CELL, "decode"), "CUDA_VISIBLE_DEVICES", "0,1,2,3")


def same_port(graph: Emitted) -> None:
    flag(graph.container(CELL, "decode"), "--port", "8001")


def same_lmcache_port(graph: Emitted) -> None:
    flag(graph.container(CELL, "lmcache-decode"), "--port", "6555")


def seedless(graph: Emitted) -> None:
    engine = graph.container(CELL, "decode")
    engine["env"] = [entry for entry in engine["env"] if entry["name"] != "PYTHONHASHSEED"]


def same_side_channel(graph: Emitted) -> None:
    variable(graph.container(CELL, "decode"), "VLLM_NIXL_SIDE_CHANNEL_PORT", "5600")


def probe_of_missing_port(graph: Emitted) -> None:
    graph.container("voxtral")["startupProbe"]["httpGet"]["port"] = 8001


def service_without_pods(graph: Emitted) -> None:
    graph.props("Service", "router")["spec"]["ports"][0]["targetPort"] = 9999


def more_replicas_than_nodes(graph: Emitted) -> None:
    graph.props("ScaledObject", "voxtral-scaling")["spec"]["maxReplicaCount"] = 12


def small_quota(graph: Emitted) -> None:
    graph.props("ResourceQuota", "quota")["spec"]["hard"]["requests.nvidia.com/gpu"] = "8"


def wrong_subject(graph: Emitted) -> None:
    props = graph.props("FederatedIdentityCredential", "keda-operator")
    props["subject"] = "system:serviceaccount:default:default"


def subnet_elsewhere(graph: Emitted) -> None:
    graph.props("Subnet", "nodes")["addressPrefix"] = "10.99.0.0/17"


def newer_pool(graph: Emitted) -> None:
    graph.props("AgentPool", "cells")["orchestratorVersion"] = "1.99"


def small_cache(graph: Emitted) -> None:
    graph.props("PersistentVolumeClaim", "model-cache")["spec"]["resources"]["requests"]["storage"] = "50Gi"


def other_labels(graph: Emitted) -> None:
    graph.props("Deployment", "voxtral")["spec"]["template"]["metadata"]["labels"]["voice-serve/service"] = "voxtrall"


def starved_engine(graph: Emitted) -> None:
    limits(graph.container("voxtral"), memory="4Gi")


def unprotected_vault(graph: Emitted) -> None:
    del graph.props("Vault", "vault")["properties"]["enablePurgeProtection"]


def unequal_gpus(graph: Emitted) -> None:
    graph.container("voxtral")["resources"]["requests"]["nvidia.com/gpu"] = "1"


def other_identity_pulls(graph: Emitted) -> None:
    control = next(
        r.urn for r in graph.resources if r.type.endswith(":UserAssignedIdentity") and r.name == "control-plane"
    )
    graph.needs("RoleAssignment", "kubelet-pulls-images", principalId=(control,))


def basic_registry(graph: Emitted) -> None:
    graph.props("Registry", "registry")["sku"]["name"] = "Basic"


def no_egress(graph: Emitted) -> None:
    del graph.props("Subnet", "nodes")["natGateway"]


def scaled_twice(graph: Emitted) -> None:
    second = copy.deepcopy(graph.props("ScaledObject", "speech-scaling"))
    second["metadata"]["name"] = "speech-again"
    graph.add("kubernetes:keda.sh/v1alpha1:ScaledObject", "speech-again", second)


def front_without_probe(graph: Emitted) -> None:
    del graph.container(CELL, "front")["readinessProbe"]


def cache_outside_local_disks(graph: Emitted) -> None:
    server = graph.container(CELL, "lmcache")
    server["volumeMounts"] = [mount for mount in server["volumeMounts"] if mount["name"] != "nvme"]


def missing_gpu_setting(graph: Emitted) -> None:
    engine = graph.container(CELL, "decode")
    engine["env"] = [entry for entry in engine["env"] if entry["name"] != "CUDA_VISIBLE_DEVICES"]


def fetch_with_gpu(graph: Emitted) -> None:
    job = next(resource for resource in graph.resources if resource.type.endswith(":Job"))
    limits(graph.props("Job", job.name)["spec"]["template"]["spec"]["containers"][0], gpu="1")


def empty_system_pool(graph: Emitted) -> None:
    graph.props("ManagedCluster", "cluster")["agentPoolProfiles"][0].update(minCount=0, count=0)


def hasty_autoscaler(graph: Emitted) -> None:
    graph.props("ManagedCluster", "cluster")["autoScalerProfile"]["maxGracefulTerminationSec"] = "60"


def privileged_namespace(graph: Emitted) -> None:
    labels = graph.props("Namespace", "voice")["metadata"]["labels"]
    labels["pod-security.kubernetes.io/enforce"] = "privileged"


def no_weights(graph: Emitted) -> None:
    engine = graph.container("voxtral")
    engine["volumeMounts"] = [mount for mount in engine["volumeMounts"] if mount["name"] != "models"]


WORKLOAD_MUTATIONS = (
    Mutation("LMCache pool larger than its container", WORKLOADS, small_lmcache,
             ("caches-fit-containers",), blind=True),
    Mutation("both engines on the same GPUs", WORKLOADS, same_gpus, ("engine-has-its-gpus",), blind=True),
    Mutation("decode with a shorter context", WORKLOADS, flags(CELL, "decode", max_model_len="16384"),
             ("prefill-and-decode-share-a-pod",), blind=True),
    Mutation("both engines on one port", WORKLOADS, same_port, ("ports-are-apart",)),
    Mutation("both LMCache servers on one port", WORKLOADS, same_lmcache_port, ("ports-are-apart",)),
    Mutation("engine that names chunks by other hashes", WORKLOADS, seedless, ("engines-have-their-cache",)),
    Mutation("one NIXL side channel for two", WORKLOADS, same_side_channel, ("ports-are-apart",)),
    Mutation("both engines on one LMCache server", WORKLOADS, replace_argument(CELL, "decode", "6556", "6555"),
             ("engines-have-their-cache",)),
    Mutation("probe of a port without a listener", WORKLOADS, probe_of_missing_port, ("ports-have-listeners",)),
    Mutation("service to a port without a listener", WORKLOADS, service_without_pods, ("ports-have-listeners",)),
    Mutation("no service account", WORKLOADS, without_resource("ServiceAccount", "voxtral"),
             ("references-resolve",), blind=True),
    Mutation("too little GPU memory for the weights", WORKLOADS,
             flags("voxtral", "engine", gpu_memory_utilization="0.3"), ("load-fits-gpus",), blind=True),
    Mutation("more replicas than the pool has nodes for", WORKLOADS, more_replicas_than_nodes,
             ("pool-holds-replicas",)),
    Mutation("quota below what the replicas take", WORKLOADS, small_quota, ("quotas-hold-replicas",)),
    Mutation("identity trusts another account", CLUSTER, wrong_subject, ("trust-is-narrow",)),
    Mutation("subnet outside its network", CLUSTER, subnet_elsewhere, ("ranges-nest",)),
    Mutation("router may not reach engines", WORKLOADS, without_resource("NetworkPolicy", "voice-engine-from-router"),
             ("contract-flows-are-allowed",)),
    Mutation("pool newer than its cluster", CLUSTER, newer_pool, ("pools-follow-their-cluster",)),
    Mutation("model cache smaller than the models", WORKLOADS, small_cache, ("model-cache-holds-models",)),
    Mutation("pods without the labels of their selector", WORKLOADS, other_labels, ("selectors-select",), blind=True),
    Mutation("engine with 4 GiB of memory", WORKLOADS, starved_engine, ("memory-volumes-fit-pods",), blind=True),
    Mutation("vault that can be purged", CLUSTER, unprotected_vault, ("production-data-is-kept",)),
    Mutation("GPU request below its limit", WORKLOADS, unequal_gpus, ("gpus-are-whole",)),
    Mutation("AcrPull for another identity", CLUSTER, other_identity_pulls, ("kubelet-pulls-images",), blind=True),
    Mutation("registry without private endpoints", CLUSTER, basic_registry, ("private-endpoint-has-its-tier",)),
    Mutation("nodes without a way out", CLUSTER, no_egress, ("nodes-have-a-way-out",)),
)  # fmt: skip
"""Mistakes added after the rules for ``mutations``."""

CLUSTER_MUTATIONS = (
    Mutation("two ScaledObjects of one workload", WORKLOADS, scaled_twice, ("scaling-has-a-target",)),
    Mutation("front of a cell without readiness", WORKLOADS, front_without_probe, ("replicated-pods-say-when-ready",)),
    Mutation("disk pool larger than its volume", WORKLOADS,
             replace_argument(CELL, "lmcache", '"max_capacity_gb":1000', '"max_capacity_gb":3000'),
             ("disk-pools-fit-volumes",)),
    Mutation("disk pool on the container's own disk", WORKLOADS, cache_outside_local_disks, ("disk-pools-fit-volumes",
             )),
    Mutation("decode that is not told its GPUs", WORKLOADS, missing_gpu_setting, ("engine-has-its-gpus",)),
    Mutation("decode of another revision", WORKLOADS, flags(CELL, "decode", revision="b" * 40),
             ("prefill-and-decode-share-a-pod",)),
    Mutation("model fetch with a GPU", WORKLOADS, fetch_with_gpu, ("gpu-pod-names-its-pool",), blind=True),
    Mutation("ten pods a node", CLUSTER, pool("cells", maxPods=10), ("pools-can-work",)),
    Mutation("OS disk smaller than an image", CLUSTER, pool("cells", osDiskSizeGB=30), ("pools-can-work",)),
    Mutation("control plane may not assign the kubelet's identity", CLUSTER,
             without_resource("RoleAssignment", "control-plane-assigns-kubelet"), ("control-plane-assigns-kubelet",)),
    Mutation("system pool of no nodes", CLUSTER, empty_system_pool, ("system-pool-has-node",)),
    Mutation("autoscaler that kills what drains", CLUSTER, hasty_autoscaler, ("autoscaler-waits-for-drain",)),
    Mutation("privileged namespace of services", WORKLOADS, privileged_namespace, ("namespaces-are-restricted",)),
    Mutation("registry without its endpoint", CLUSTER, without_resource("PrivateEndpoint", "registry"),
             ("closed-stores-have-endpoints",)),
    Mutation("engine without the weights' volume", WORKLOADS, no_weights, ("weights-are-mounted",)),
    Mutation("zone that Azure has not", CLUSTER, pool("cells", availabilityZones=["4"]), ("pool-zones-exist",)),
)  # fmt: skip
"""Mistakes added after the rules for ``WORKLOAD_MUTATIONS``."""

NAME_MUTATIONS = (
    Mutation("decode under another name", WORKLOADS, flags(CELL, "decode", served_model_name="voxtral"),
             ("prefill-and-decode-share-a-pod",)),
)  # fmt: skip
"""Mistakes that later rules detect."""

MUTATIONS = (*WORKLOAD_MUTATIONS, *CLUSTER_MUTATIONS, *NAME_MUTATIONS)
