"""Rejections by AKS for separate node pools, and for the pool inside a cluster."""

from __future__ import annotations

import re
from collections.abc import Iterator

from voice_sandbox.azure.refusals.clusters import CLUSTER, POOL
from voice_sandbox.azure.refusals.networks import REGIONS_WITHOUT_ZONES
from voice_sandbox.azure.refusals.request import Part, Request
from voice_sandbox.azure.refusals.row import (
    BAD,
    Refusal,
    all_conditions,
    allow_only,
    forbid,
    has_value,
    negate,
    require_range,
)
from voice_sandbox.azure.refusals.sources import AZURERM, AZURERM_FILES, LEARN

_AKS = f"{LEARN}/aks"
_POOL_FILE = f"{AZURERM_FILES}/containers/kubernetes_cluster_node_pool_resource.go"
_INVALID = "InvalidParameter"

IS_SPOT = has_value("scaleSetPriority", "Spot")
IS_SYSTEM = has_value("mode", "System")
_IS_AUTOSCALED = has_value("enableAutoScaling", True)
_SPOT_LABEL = "kubernetes.azure.com/scalesetpriority"
_RESERVED_PREFIXES = ("kubernetes.azure.com/", "kubernetes.io/")
_TAINT_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_TAINT_PATTERN = re.compile(r"[^=:\s]+(=[^=:\s]*)?:(\w+)")
_AMOUNT_PATTERN = re.compile(r"0*([1-9]\d*)%?")
_MIN_SYSTEM_VCPUS = 4
"""AKS also requires 4 GiB, which every size with this number of vCPUs has."""
VCPU_PATTERN = re.compile(r"Standard_[A-Z]+(?:\d+-)?(\d+)")
"""https://learn.microsoft.com/azure/virtual-machines/vm-naming-conventions"""
_PRICE_DECIMALS = 5


def _spot_price_problems(request: Request) -> Iterator[str]:
    price = request.body.number("spotMaxPrice")
    if price is not None and price != -1 and (price <= 0 or round(price, _PRICE_DECIMALS) != price):
        yield f"spotMaxPrice is {price:g}; it must be -1, or above 0 with at most {_PRICE_DECIMALS} decimals"


def _bound_problems(request: Request) -> Iterator[str]:
    body = request.body
    low, high, count = body.number("minCount"), body.number("maxCount"), body.number("count")
    if not _IS_AUTOSCALED(body):
        return
    if low is None or high is None:
        yield f"{body.path_to('minCount')} and {body.path_to('maxCount')} are required"
    elif low > high:
        yield f"{body.path_to('minCount')} {low:g} is more than {body.path_to('maxCount')} {high:g}"
    elif request.before is None and count is not None and not low <= count <= high:
        yield f"{body.path_to('count')} is {count:g}; it must be at least {low:g} and at most {high:g}"


def _system_size_problems(request: Request) -> Iterator[str]:
    name = request.body.text("vmSize")
    vcpus = VCPU_PATTERN.match(name)
    if not IS_SYSTEM(request.body):
        return
    if name.startswith("Standard_B"):
        yield f"{request.body.path_to('vmSize')} {name} is of the B series"
    elif vcpus and int(vcpus[1]) < _MIN_SYSTEM_VCPUS:
        yield f"{request.body.path_to('vmSize')} {name} has {vcpus[1]} vCPUs"


def _label_problems(request: Request) -> Iterator[str]:
    labels = request.body.get("nodeLabels") or {}
    for name, value in labels.items():
        by_aks = name == _SPOT_LABEL and value == "spot" and IS_SPOT(request.body)
        if name.startswith(_RESERVED_PREFIXES) and not by_aks:
            yield f"{request.body.path_to('nodeLabels')} has {name}"


def _taint_problems(request: Request) -> Iterator[str]:
    for taint in request.body.texts("nodeTaints"):
        match = _TAINT_PATTERN.fullmatch(taint)
        if not match or match[2] not in _TAINT_EFFECTS:
            effects = ", ".join(_TAINT_EFFECTS)
            yield f'{request.body.path_to("nodeTaints")} has "{taint}"; it must be key=value:effect, of {effects}'


def _surge_problems(request: Request) -> Iterator[str]:
    """Yield upgrade settings without exactly one of surge nodes and unavailable nodes."""
    body = request.body
    surge, short = (body.get(f"upgradeSettings.{name}") for name in ("maxSurge", "maxUnavailable"))
    if IS_SPOT(body) or (surge is None and short is None):
        return
    is_surge, is_unavailable = (
        value is not None and bool(_AMOUNT_PATTERN.fullmatch(str(value))) for value in (surge, short)
    )
    if is_surge == is_unavailable:
        yield f'maxSurge is "{surge}" and maxUnavailable is "{short}"; one of them must be above 0, the other 0'


def _skew_problems(request: Request) -> Iterator[str]:
    minor = _minor_version(request.body.text("orchestratorVersion"))
    for _, cluster in request.existing_resources(CLUSTER):
        cluster_version = _minor_version(cluster.text("kubernetesVersion"))
        if minor and cluster_version and minor > cluster_version:
            yield (
                f"orchestratorVersion is {minor[0]}.{minor[1]}, the control plane's "
                f"{cluster_version[0]}.{cluster_version[1]}"
            )


def _version_problems(request: Request) -> Iterator[str]:
    body = request.body
    for pool in body.parts("agentPoolProfiles"):
        pool_version, cluster_version = pool.text("orchestratorVersion"), body.text("kubernetesVersion")
        if request.before is None and pool_version and cluster_version and pool_version != cluster_version:
            yield f"{pool.path_to('orchestratorVersion')} is {pool_version}, kubernetesVersion {cluster_version}"


def _minor_version(version: str) -> tuple[int, int] | None:
    match = re.match(r"(\d+)\.(\d+)", version)
    return (int(match[1]), int(match[2])) if match else None


def _network_problems(request: Request) -> Iterator[str]:
    subnet_id = request.body.text("vnetSubnetID")
    for _, cluster in request.existing_resources(CLUSTER):
        for pool in cluster.parts("agentPoolProfiles"):
            other_network = pool.text("vnetSubnetID")
            if subnet_id and other_network and _network_name(subnet_id) != _network_name(other_network):
                yield (
                    f"vnetSubnetID is in {_network_name(subnet_id)}, "
                    f"that of pool {pool.text('name')} in {_network_name(other_network)}"
                )


def _network_name(subnet: str) -> str:
    return subnet.lower().rpartition("/subnets/")[0].rpartition("/")[2]


def _zone_problems(request: Request) -> Iterator[str]:
    """Yield zones that the cluster's location lacks."""
    clusters = [cluster for _, cluster in request.existing_resources(CLUSTER)] or [Part(request.resource.inputs)]
    for cluster in clusters:
        location, zones = cluster.text("location"), request.body.texts("availabilityZones")
        if zones and location in REGIONS_WITHOUT_ZONES:
            yield (
                f"{request.body.path_to('availabilityZones')} is {', '.join(zones)}, the cluster's location {location}"
            )


def _disk_threshold_problems(request: Request) -> Iterator[str]:
    low, high = (request.body.number(f"kubeletConfig.imageGc{side}Threshold") for side in ("Low", "High"))
    if low is not None and high is not None and low > high:
        yield f"imageGcLowThreshold is {low:g}, imageGcHighThreshold {high:g}"


ROWS = (
    Refusal(
        "zones-of-pool", POOL, BAD, "The cluster's region has no availability zones",
        _zone_problems, "choose a region with availability zones (azure.location)", f"{LEARN}/reliability/regions-list",
    ),
    Refusal(
        "spot-max-surge", POOL, _INVALID, "Spot pools can't set max surge",
        forbid("upgradeSettings.maxSurge", when=IS_SPOT),
        "set surge_nodes of the pool to 0", f"{AZURERM}/issues/19355",
    ),
    Refusal(
        "spot-max-unavailable", POOL, _INVALID, "Spot pools can't set maxUnavailable",
        forbid("upgradeSettings.maxUnavailable", when=IS_SPOT),
        "remove maxUnavailable from the pool's upgradeSettings", f"{AZURERM}/pull/31129",
    ),
    Refusal(
        "spot-system", POOL, BAD, "Spot node pools require user node pools",
        allow_only("mode", "User", when=IS_SPOT),
        "use on-demand nodes for the system pool", f"{_AKS}/use-system-pools",
    ),
    Refusal(
        "spot-scale-set", POOL, BAD, "A Spot node pool must use Virtual Machine Scale Sets",
        allow_only("type", "VirtualMachineScaleSets", when=IS_SPOT),
        "set type to VirtualMachineScaleSets", "https://github.com/Azure/bicep/issues/14517",
    ),
    Refusal(
        "spot-price", POOL, BAD, "The value must be -1 or a positive value with up to five decimal places",
        _spot_price_problems, "round max_usd_per_hour of the pool, or omit it", f"{_AKS}/spot-node-pool#limitations",
    ),
    Refusal(
        "eviction-of-regular-nodes", POOL, BAD,
        "The eviction policy and the maximum price can only be set when the priority is Spot",
        forbid("scaleSetEvictionPolicy", "spotMaxPrice", when=negate(IS_SPOT)),
        "remove both, or set scaleSetPriority to Spot", f"{_POOL_FILE}#L575-L581",
    ),
    Refusal(
        "autoscaler-bounds", POOL, BAD, "The node count must be within the autoscaler's bounds",
        _bound_problems, "set minCount <= count <= maxCount", f"{_POOL_FILE}#L660-L680",
    ),
    Refusal(
        "bounds-without-autoscaler", POOL, BAD, "Bounds must be null when the autoscaler is off",
        forbid("minCount", "maxCount", when=negate(_IS_AUTOSCALED)),
        "set enableAutoScaling, or remove the bounds", f"{_POOL_FILE}#L677",
    ),
    Refusal(
        "pool-nodes", POOL, BAD, "A node pool can have at most 1,000 nodes",
        require_range("maxCount", high=1000),
        "distribute the nodes over several pools", f"{_AKS}/best-practices-performance-scale-large",
    ),
    Refusal(
        "system-pool-is-empty", POOL, BAD, "A system node pool must have at least one node",
        require_range("minCount", low=1, when=all_conditions(IS_SYSTEM, _IS_AUTOSCALED)),
        "set azure.system_pool.nodes.min to 3, one in each zone", f"{_AKS}/resize-node-pool",
    ),
    Refusal(
        "system-pool-size", POOL, BAD,
        "System node pools require a VM SKU of at least 4 vCPUs and 4 GB of memory, not of the B series",
        _system_size_problems, "use Standard_D4ds_v5 or a larger size", f"{_AKS}/use-system-pools",
    ),
    Refusal(
        "system-pool-pods", POOL, BAD, "System node pools must support at least 30 pods",
        require_range("maxPods", low=30, when=IS_SYSTEM),
        "set maxPods to 30 or more", f"{_AKS}/use-system-pools",
    ),
    Refusal(
        "pool-pods", POOL, BAD, "A node can run at most 250 pods",
        require_range("maxPods", high=250),
        "set maxPods to 250 or less", f"{_AKS}/concepts-network-azure-cni-overlay#maximum-pods-per-node",
    ),
    Refusal(
        "system-pool-unavailable", POOL, BAD, "Max unavailable can't be set on system node pools",
        forbid("upgradeSettings.maxUnavailable", when=IS_SYSTEM),
        "upgrade the system pool by maxSurge", f"{_AKS}/upgrade-aks-node-pools-rolling#customize-unavailable-nodes",
    ),
    Refusal(
        "upgrade-amounts", POOL, BAD, "An upgrade either adds nodes or makes nodes unavailable",
        _surge_problems, 'set maxSurge to "0" with maxUnavailable, and maxUnavailable to "0" with maxSurge',
        "https://github.com/Azure/AKS/issues/4277",
    ),
    Refusal(
        "node-labels", POOL, BAD, "The prefixes kubernetes.azure.com/ and kubernetes.io/ can't be used for any node",
        _label_problems, "choose another prefix, such as voice-serve/", f"{_AKS}/use-labels#reserved-prefixes",
    ),
    Refusal(
        "node-taints", POOL, BAD, "A taint must have a key, a value and an effect",
        _taint_problems, "write taints as key=value:NoSchedule", f"{_AKS}/use-node-taints",
    ),
    Refusal(
        "pool-version", POOL, "NodePoolMcVersionIncompatible",
        "The minor version of the node pool is bigger than that of the control plane",
        _skew_problems, "upgrade the cluster first", "https://github.com/Azure/terraform-azurerm-aks/issues/465",
    ),
    Refusal(
        "first-pool-version", CLUSTER, BAD, "At creation, the version of pools must match the control plane's",
        _version_problems, "set orchestratorVersion to kubernetesVersion", f"{_AKS}/create-node-pools#limitations",
    ),
    Refusal(
        "pools-in-one-network", POOL, BAD, "All node pools must reside in the same virtual network",
        _network_problems, "use subnets of one network for all pools", f"{_AKS}/create-node-pools#limitations",
    ),
    Refusal(
        "cpu-manager-policy", POOL, BAD, "The CPU manager policy must be none or static",
        allow_only("kubeletConfig.cpuManagerPolicy", "none", "static"),
        "set cpuManagerPolicy to static", f"{_AKS}/custom-node-configuration-reference",
    ),
    Refusal(
        "image-thresholds", POOL, BAD, "The low threshold must not exceed the high threshold",
        _disk_threshold_problems, "lower imageGcLowThreshold", f"{_AKS}/custom-node-configuration-reference",
    ),
    Refusal(
        "huge-pages", POOL, BAD, "Transparent huge pages must be always, madvise or never",
        allow_only("linuxOSConfig.transparentHugePageEnabled", "always", "madvise", "never"),
        "set transparentHugePageEnabled to one of them", f"{_AKS}/custom-node-configuration-reference",
    ),
    Refusal(
        "huge-page-defrag", POOL, BAD,
        "Defragmentation must be always, defer, defer+madvise, madvise or never",
        allow_only("linuxOSConfig.transparentHugePageDefrag", "always", "defer", "defer+madvise", "madvise", "never"),
        "set transparentHugePageDefrag to one of them", f"{_AKS}/custom-node-configuration-reference",
    ),
    Refusal(
        "linux-settings", POOL, BAD, "Linux settings can only be configured on Linux nodes",
        forbid("linuxOSConfig", when=negate(has_value("osType", "Linux", None))),
        "set osType to Linux", f"{_POOL_FILE}#L685-L687",
    ),
)  # fmt: skip
