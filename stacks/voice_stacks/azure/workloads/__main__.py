"""Pulumi program for the workloads: engines, router, model cache, GPU drivers, scaling, and the caller tiers.

Run it with `pulumi up` in this folder or with the local engine, after the program of
`stacks/voice_stacks/azure/cluster`.
"""

import pulumi
import pulumi_kubernetes as k8s

from voice_blueprint.azure.names import CLUSTER_PROJECT_NAME, ClusterOutput
from voice_constructs.azure.kubernetes.asr import create_asr_replicas
from voice_constructs.azure.kubernetes.cpu_replicas import CpuReplicas
from voice_constructs.azure.kubernetes.edge_tiers import EdgeTier, create_agent_tier_props, create_gateway_tier_props
from voice_constructs.azure.kubernetes.engine_replicas import EngineReplicas
from voice_constructs.azure.kubernetes.gpu_nodes import GpuDaemonSets
from voice_constructs.azure.kubernetes.lmcache_coordinator import LmcacheCoordinator
from voice_constructs.azure.kubernetes.load_balancer import LoadBalancer
from voice_constructs.azure.kubernetes.model_fetch import ModelFetch
from voice_constructs.azure.kubernetes.monitors import PodMonitors
from voice_constructs.azure.kubernetes.namespaces import NamespaceLimits, Namespaces, SignedImagePolicy
from voice_constructs.azure.kubernetes.network_policies import NetworkPolicies
from voice_constructs.azure.kubernetes.router import Router
from voice_constructs.azure.kubernetes.scaling import Scaling
from voice_constructs.azure.kubernetes.services import create_service_replica_props
from voice_constructs.azure.kubernetes.state_login import StateLogin
from voice_constructs.azure.kubernetes.storage import Storage
from voice_constructs.azure.kubernetes.vad import VadReplicas
from voice_stacks.azure.program import load_configured_deployment

deployment = load_configured_deployment()
cluster = pulumi.StackReference(f"{pulumi.get_organization()}/{CLUSTER_PROJECT_NAME}/{pulumi.get_stack()}")
cluster_options = pulumi.ResourceOptions(
    providers=[
        k8s.Provider(
            "cluster",
            kubeconfig=pulumi.Output.secret(cluster.require_output(ClusterOutput.KUBECONFIG)),
            # Otherwise, a change of the cluster's address, which depends on `access`, would replace every object.
            cluster_identifier=cluster.require_output(ClusterOutput.OIDC_ISSUER),
        )
    ]
)

context = Namespaces(
    "namespaces",
    deployment=deployment,
    registry=cluster.require_output(ClusterOutput.REGISTRY_LOGIN_SERVER),
    opts=cluster_options,
).context
if deployment.image_signing:
    SignedImagePolicy("signed-images", context=context, opts=cluster_options)
policies = NetworkPolicies("network-policies", context=context, opts=cluster_options)
storage = Storage("storage", context=context, opts=cluster_options)
gpu_nodes = GpuDaemonSets("gpu-nodes", context=context, opts=cluster_options)
models = ModelFetch("models", context=context, cluster=cluster, model_cache=storage.model_cache, opts=cluster_options)
scaling = Scaling("scaling", context=context, cluster=cluster, opts=cluster_options)
router = Router("router", context=context, opts=cluster_options)
workload_limits = [models.resource_limits, router.resource_limits]
if deployment.azure.has_peers:
    workload_limits.append(LmcacheCoordinator(context=context, opts=cluster_options).resource_limits)

engine_dependencies = [storage.model_cache, storage.local_nvme, *models.jobs.values(), *gpu_nodes.daemon_sets.values()]
replicas = [
    EngineReplicas(context=context, scaling=scaling, props=props, needs=engine_dependencies, opts=cluster_options)
    for service in deployment.azure.services
    for props in create_service_replica_props(context, service)
]
tiers: list[CpuReplicas] = []
load_balancers: list[LoadBalancer] = []
if callers := deployment.azure.callers:
    login = StateLogin("state", context=context, cluster=cluster, opts=cluster_options)
    edge_tiers = [create_gateway_tier_props(context, callers.edge)]
    if settings := deployment.azure.agents:
        edge_tiers.append(create_agent_tier_props(context, settings, callers.edge))
    fronts = [
        EdgeTier(context=context, cluster=cluster, props=props, login=login, scaling=scaling, opts=cluster_options)
        for props in edge_tiers
    ]
    vad = VadReplicas(
        context=context, cluster=cluster, settings=callers.vad, login=login, scaling=scaling, opts=cluster_options
    )
    asr = create_asr_replicas(context=context, settings=callers.asr, login=login, scaling=scaling, opts=cluster_options)
    tiers = [vad.pods, asr, *(front.pods for front in fronts)]
    load_balancers = [vad.load_balancer, *(front.load_balancer for front in fronts)]
PodMonitors("monitors", context=context, opts=cluster_options)
NamespaceLimits(
    "limits",
    context=context,
    workload_limits=[
        *workload_limits,
        *(replica.resource_limits for replica in replicas),
        *(tier.resource_limits for tier in tiers),
    ],
    load_balancers=load_balancers,
    opts=cluster_options,
)

pulumi.export("router", router.address)
