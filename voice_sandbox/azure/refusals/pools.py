"""Rejections by AKS for separate node pools, and for the pool inside a cluster."""

from __future__ import annotations

import re
from collections.abc import Iterator

from voice_sandbox.azure.refusals.clusters import CLUSTER, POOL
from voice_sandbox.azure.refusals.networks import REGIONS_WITHOUT_ZONES
from voice_sandbox.azure.refusals.request import Part, Request
from voice_sandbox.azure.refusals.row import BAD, Refusal, both, equal, forbidden, negated, only, within
from voice_sandbox.azure.refusals.sources import AZURERM, AZURERM_FILES, LEARN

_AKS = f"{LEARN}/aks"
_POOL_FILE = f"{AZURERM_FILES}/containers/kubernetes_cluster_node_pool_resource.go"
_INVALID = "InvalidParameter"

SPOT = equal("scaleSetPriority", "Spot")
SYSTEM = equal("mode", "System")
_SCALED = equal("enableAutoScaling", True)
_SPOT_MARK = "kubernetes.azure.com/scalesetpriority"
_RESERVED_PREFIXES = ("kubernetes.azure.com/", "kubernetes.io/")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_TAINT = re.compile(r"[^=:\s]+(=[^=:\s]*)?:(\w+)")
_AMOUNT = re.compile(r"0*([1-9]\d*)%?")
_MIN_SYSTEM_VCPUS = 4
"""AKS also requires 4 GiB, which every size with this number of vCPUs has."""
VCPUS = re.compile(r"Standard_[A-Z]+(?:\d+-)?(\d+)")
"""https://learn.microsoft.com/azure/virtual-machines/vm-naming-conventions"""
_PRICE_DECIMALS = 5


def _spot_price(request: Request) -> Iterator[str]:
    price = request.body.number("spotMaxPrice")
    if price is not None and price != -1 and (price <= 0 or round(price, _PRICE_DECIMALS) != price):
        yield f"spotMaxPrice is {price:g}; it must be -1, or above 0 with at most {_PRICE_DECIMALS} decimals"


def _bounds(request: Request) -> Iterator[str]:
    body = request.body
    low, high, count = body.number("minCount"), body.number("maxCount"), body.number("count")
    if not _SCALED(body):
        return
    if low is None or high is None:
        yield f"{body.at('minCount')} and {body.at('maxCount')} are required"
    elif low > high:
        yield f"{body.at('minCount')} {low:g} is more than {body.at('maxCount')} {high:g}"
    elif request.before is None and count is not None and not low <= count <= high:
        yield f"{body.at('count')} is {count:g}; it must be at least {low:g} and at most {high:g}"


def _system_size(request: Request) -> Iterator[str]:
    name = request.body.text("vmSize")
    vcpus = VCPUS.match(name)
    if not SYSTEM(request.body):
        return
    if name.startswith("Standard_B"):
        yield f"{request.body.at('vmSize')} {name} is of the B series"
    elif vcpus and int(vcpus[1]) < _MIN_SYSTEM_VCPUS:
        yield f"{request.body.at('vmSize')} {name} has {vcpus[1]} vCPUs"


def _labels(request: Request) -> Iterator[str]:
    labels = request.body.get("nodeLabels") or {}
    for name, value in labels.items():
        by_aks = name == _SPOT_MARK and value == "spot" and SPOT(request.body)
        if name.startswith(_RESERVED_PREFIXES) and not by_aks:
            yield f"{request.body.at('nodeLabels')} has {name}"


def _taints(request: Request) -> Iterator[str]:
    for taint in request.body.texts("nodeTaints"):
        match = _TAINT.fullmatch(taint)
        if not match or match[2] not in _EFFECTS:
            effects = ", ".join(_EFFECTS)
            yield f'{request.body.at("nodeTaints")} has "{taint}"; it must be key=value:effect, of {effects}'


def _surge_settings(request: Request) -> Iterator[str]:
    """Yield upgrade settings without exactly one of surge nodes and unavailable nodes."""
    body = request.body
    surge, short = (body.get(f"upgradeSettings.{name}") for name in ("maxSurge", "maxUnavailable"))
    if SPOT(body) or (surge is None and short is None):
        return
    is_surge, is_unavailable = (value is not None and bool(_AMOUNT.fullmatch(str(value))) for value in (surge, short))
    if is_surge == is_unavailable:
        yield f'maxSurge is "{surge}" and maxUnavailable is "{short}"; one of them must be above 0, the other 0'


def _version(request: Request) -> Iterator[str]:
    minor = _minor(request.body.text("orchestratorVersion"))
    for _, cluster in request.existing(CLUSTER):
        cluster_version = _minor(cluster.text("kubernetesVersion"))
        if minor and cluster_version and minor > cluster_version:
            yield (
                f"orchestratorVersion is {minor[0]}.{minor[1]}, the control plane's "
                f"{cluster_version[0]}.{cluster_version[1]}"
            )


def _version_problems(request: Request) -> Iterator[str]:
    body = request.body
    for pool in body.parts("agentPoolProfiles"):
        pool_version, other_network = pool.text("orchestratorVersion"), body.text("kubernetesVersion")
        if request.before is None and pool_version and other_network and pool_version != other_network:
            yield f"{pool.at('orchestratorVersion')} is {pool_version}, kubernetesVersion {other_network}"


def _minor(version: str) -> tuple[int, int] | None:
    match = re.match(r"(\d+)\.(\d+)", version)
    return (int(match[1]), int(match[2])) if match else None


def _one_network(request: Request) -> Iterator[str]:
    subnet_id = request.body.text("vnetSubnetID")
    for _, cluster in request.existing(CLUSTER):
        for pool in cluster.parts("agentPoolProfiles"):
            other_network = pool.text("vnetSubnetID")
            if subnet_id and other_network and _network(subnet_id) != _network(other_network):
                yield (
                    f"vnetSubnetID is in {_network(subnet_id)}, "
                    f"that of pool {pool.text('name')} in {_network(other_network)}"
                )


def _network(subnet: str) -> str:
    return subnet.lower().rpartition("/subnets/")[0].rpartition("/")[2]


def _zones(request: Request) -> Iterator[str]:
    """Yield zones that the cluster's location lacks."""
    clusters = [cluster for _, cluster in request.existing(CLUSTER)] or [Part(request.resource.inputs)]
    for cluster in clusters:
        location, zones = cluster.text("location"), request.body.texts("availabilityZones")
        if zones and location in REGIONS_WITHOUT_ZONES:
            yield f"{request.body.at('availabilityZones')} is {', '.join(zones)}, the cluster's location {location}"


def _disk_threshold(request: Request) -> Iterator[str]:
    low, high = (request.body.number(f"kubeletConfig.imageGc{side}Threshold") for side in ("Low", "High"))
    if low is not None and high is not None and low > high:
        yield f"imageGcLowThreshold is {low:g}, imageGcHighThreshold {high:g}"


ROWS = (
    Refusal(
        "zones-of-pool", POOL, BAD, "The cluster's region has no availability zones",
        _zones, "choose a region with availability zones (azure.location)", f"{LEARN}/reliability/regions-list",
    ),
    Refusal(
        "spot-max-surge", POOL, _INVALID, "Spot pools can't set max surge",
        forbidden("upgradeSettings.maxSurge", when=SPOT),
        "set surge_nodes of the pool to 0", f"{AZURERM}/issues/19355",
    ),
    Refusal(
        "spot-max-unavailable", POOL, _INVALID, "Spot pools can't set maxUnavailable",
        forbidden("upgradeSettings.maxUnavailable", when=SPOT),
        "remove maxUnavailable from the pool's upgradeSettings", f"{AZURERM}/pull/31129",
    ),
    Refusal(
        "spot-system", POOL, BAD, "Spot node pools require user node pools",
        only("mode", "User", when=SPOT),
        "use on-demand nodes for the system pool", f"{_AKS}/use-system-pools",
    ),
    Refusal(
        "spot-scale-set", POOL, BAD, "A Spot node pool must use Virtual Machine Scale Sets",
        only("type", "VirtualMachineScaleSets", when=SPOT),
        "set type to VirtualMachineScaleSets", "https://github.com/Azure/bicep/issues/14517",
    ),
    Refusal(
        "spot-price", POOL, BAD, "The value must be -1 or a positive value with up to five decimal places",
        _spot_price, "round max_usd_per_hour of the pool, or omit it", f"{_AKS}/spot-node-pool#limitations",
    ),
    Refusal(
        "eviction-of-regular-nodes", POOL, BAD,
        "The eviction policy and the maximum price can only be set when the priority is Spot",
        forbidden("scaleSetEvictionPolicy", "spotMaxPrice", when=negated(SPOT)),
        "remove both, or set scaleSetPriority to Spot", f"{_POOL_FILE}#L575-L581",
    ),
    Refusal(
        "autoscaler-bounds", POOL, BAD, "The node count must be within the autoscaler's bounds",
        _bounds, "set minCount <= count <= maxCount", f"{_POOL_FILE}#L660-L680",
    ),
    Refusal(
        "bounds-without-autoscaler", POOL, BAD, "Bounds must be null when the autoscaler is off",
        forbidden("minCount", "maxCount", when=negated(_SCALED)),
        "set enableAutoScaling, or remove the bounds", f"{_POOL_FILE}#L677",
    ),
    Refusal(
        "pool-nodes", POOL, BAD, "A node pool can have at most 1,000 nodes",
        within("maxCount", high=1000),
        "distribute the nodes over several pools", f"{_AKS}/best-practices-performance-scale-large",
    ),
    Refusal(
        "system-pool-is-empty", POOL, BAD, "A system node pool must have at least one node",
        within("minCount", low=1, when=both(SYSTEM, _SCALED)),
        "set azure.system_pool.nodes.min to 3, one in each zone", f"{_AKS}/resize-node-pool",
    ),
    Refusal(
        "system-pool-size", POOL, BAD,
        "System node pools require a VM SKU of at least 4 vCPUs and 4 GB of memory, not of the B series",
        _system_size, "use Standard_D4ds_v5 or a larger size", f"{_AKS}/use-system-pools",
    ),
    Refusal(
        "system-pool-pods", POOL, BAD, "System node pools must support at least 30 pods",
        within("maxPods", low=30, when=SYSTEM),
        "set maxPods to 30 or more", f"{_AKS}/use-system-pools",
    ),
    Refusal(
        "pool-pods", POOL, BAD, "A node can run at most 250 pods",
        within("maxPods", high=250),
        "set maxPods to 250 or less", f"{_AKS}/concepts-network-azure-cni-overlay#maximum-pods-per-node",
    ),
    Refusal(
        "system-pool-unavailable", POOL, BAD, "Max unavailable can't be set on system node pools",
        forbidden("upgradeSettings.maxUnavailable", when=SYSTEM),
        "upgrade the system pool by maxSurge", f"{_AKS}/upgrade-aks-node-pools-rolling#customize-unavailable-nodes",
    ),
    Refusal(
        "upgrade-amounts", POOL, BAD, "An upgrade either adds nodes or makes nodes unavailable",
        _surge_settings, 'set maxSurge to "0" with maxUnavailable, and maxUnavailable to "0" with maxSurge',
        "https://github.com/Azure/AKS/issues/4277",
    ),
    Refusal(
        "node-labels", POOL, BAD, "The prefixes kubernetes.azure.com/ and kubernetes.io/ can't be used for any node",
        _labels, "choose another prefix, such as voice-serve/", f"{_AKS}/use-labels#reserved-prefixes",
    ),
    Refusal(
        "node-taints", POOL, BAD, "A taint must have a key, a value and an effect",
        _taints, "write taints as key=value:NoSchedule", f"{_AKS}/use-node-taints",
    ),
    Refusal(
        "pool-version", POOL, "NodePoolMcVersionIncompatible",
        "The minor version of the node pool is bigger than that of the control plane",
        _version, "upgrade the cluster first", "https://github.com/Azure/terraform-azurerm-aks/issues/465",
    ),
    Refusal(
        "first-pool-version", CLUSTER, BAD, "At creation, the version of pools must match the control plane's",
        _version_problems, "set orchestratorVersion to kubernetesVersion", f"{_AKS}/create-node-pools#limitations",
    ),
    Refusal(
        "pools-in-one-network", POOL, BAD, "All node pools must reside in the same virtual network",
        _one_network, "use subnets of one network for all pools", f"{_AKS}/create-node-pools#limitations",
    ),
    Refusal(
        "cpu-manager-policy", POOL, BAD, "The CPU manager policy must be none or static",
        only("kubeletConfig.cpuManagerPolicy", "none", "static"),
        "set cpuManagerPolicy to static", f"{_AKS}/custom-node-configuration-reference",
    ),
    Refusal(
        "image-thresholds", POOL, BAD, "The low threshold must not exceed the high threshold",
        _disk_threshold, "lower imageGcLowThreshold", f"{_AKS}/custom-node-configuration-reference",
    ),
    Refusal(
        "huge-pages", POOL, BAD, "Transparent huge pages must be always, madvise or never",
        only("linuxOSConfig.transparentHugePageEnabled", "always", "madvise", "never"),
        "set transparentHugePageEnabled to one of them", f"{_AKS}/custom-node-configuration-reference",
    ),
    Refusal(
        "huge-page-defrag", POOL, BAD,
        "Defragmentation must be always, defer, defer+madvise, madvise or never",
        only("linuxOSConfig.transparentHugePageDefrag", "always", "defer", "defer+madvise", "madvise", "never"),
        "set transparentHugePageDefrag to one of them", f"{_AKS}/custom-node-configuration-reference",
    ),
    Refusal(
        "linux-settings", POOL, BAD, "Linux settings can only be configured on Linux nodes",
        forbidden("linuxOSConfig", when=negated(equal("osType", "Linux", None))),
        "set osType to Linux", f"{_POOL_FILE}#L685-L687",
    ),
)  # fmt: skip
