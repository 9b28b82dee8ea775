"""What is known of the node pool that a pod selects: from the pools of the stack, or from the deployment file."""

from collections.abc import Iterator
from dataclasses import dataclass

from blueprint import catalog
from blueprint.azure.names import POOL_LABEL, pool_taints
from blueprint.catalog import Gpu, VmSize
from blueprint.file.model.azure import TopologyPolicy
from stacks.azure.policy.pods import Pod
from stacks.azure.policy.rules import Resource, Stack
from stacks.azure.policy.values import Value

GPU_TAINT_KEYS = ("nvidia.com/gpu", "sku")
"""Keys that keep pods without GPUs away; the second is the one of Microsoft's guides."""


@dataclass(frozen=True)
class Pool:
    """A pool of nodes.

    Attributes:
        taints: ``key=value:effect``.
        most_nodes: As many as it may have, where that is known.
    """

    name: str
    size: VmSize
    policy: TopologyPolicy
    taints: tuple[str, ...]
    most_nodes: int | None = None

    @property
    def gpu(self) -> Gpu | None:
        return catalog.gpus()[self.size.gpu] if self.size.gpu else None


@dataclass(frozen=True)
class Profile:
    """A pool as a program emits it: a resource of its own, or a part of the cluster's."""

    resource: Resource
    props: Value
    system: bool

    @property
    def name(self) -> str:
        return (self.props["name"].text or self.props["agentPoolName"].text or self.resource.name).rpartition("/")[2]

    @property
    def size(self) -> VmSize | None:
        return catalog.vm_sizes().get(self.props["vmSize"].text)


def profiles(stack: Stack) -> Iterator[Profile]:
    for resource in stack.of(":AgentPool"):
        yield Profile(resource, resource.props, resource.props["mode"].text == "System")
    for cluster in stack.of(":ManagedCluster"):
        for props in cluster.props["agentPoolProfiles"]:
            yield Profile(cluster, props, props["mode"].text == "System")


def pools(stack: Stack) -> dict[str, Pool]:
    """Return every pool that is known, by the label that pods select it with."""
    known = dict(_from_deployment(stack))
    for profile in profiles(stack):
        if profile.size:
            kubelet = profile.props.at("kubeletConfig", "topologyManagerPolicy").text
            policy = TopologyPolicy(kubelet) if kubelet in set(TopologyPolicy) else TopologyPolicy.NONE
            label = profile.props.at("nodeLabels", POOL_LABEL).text or profile.name
            taints = tuple(taint.text for taint in profile.props["nodeTaints"])
            most = profile.props["maxCount"].number
            known[label] = Pool(label, profile.size, policy, taints, int(most) if most is not None else None)
    return known


def _from_deployment(stack: Stack) -> Iterator[tuple[str, Pool]]:
    azure = stack.deployment.azure_half if stack.deployment else None
    for pool in azure.pools if azure else ():
        taints = tuple(map(str, pool_taints(azure, pool))) if azure else ()
        yield pool.name, Pool(pool.name, catalog.vm_sizes()[pool.vm_size], pool.topology_policy, taints, pool.nodes.max)


def placed(stack: Stack, found: Iterator[Pod]) -> Iterator[tuple[Pod, Pool]]:
    """Yield the pods whose pool is known, with it."""
    known = pools(stack)
    return ((pod, known[pod.pool]) for pod in found if pod.pool in known)
