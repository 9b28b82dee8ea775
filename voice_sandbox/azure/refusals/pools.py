"""Rejections by AKS for separate node pools, and for the pool inside a cluster."""

from __future__ import annotations

import re
from collections.abc import Iterator

from voice_sandbox.azure.refusals.clusters import CLUSTER, POOL, create_downgrade_rule, parse_minor_version
from voice_sandbox.azure.refusals.networks import REGIONS_WITHOUT_ZONES
from voice_sandbox.azure.refusals.request import Request, RequestPart
from voice_sandbox.azure.refusals.row import (
    BAD_REQUEST,
    RejectionRule,
    allow_only,
    combine_conditions,
    forbid,
    has_value,
    negate,
    require_range,
)
from voice_sandbox.azure.refusals.sources import AZURERM_FILES, AZURERM_URL, LEARN_URL

_AKS_DOCS = f"{LEARN_URL}/aks"
_POOL_SOURCE_URL = f"{AZURERM_FILES}/containers/kubernetes_cluster_node_pool_resource.go"
_INVALID_PARAMETER = "InvalidParameter"

IS_SPOT_POOL = has_value("scaleSetPriority", "Spot")
IS_SYSTEM_POOL = has_value("mode", "System")
_IS_AUTOSCALED = has_value("enableAutoScaling", True)
_SPOT_LABEL = "kubernetes.azure.com/scalesetpriority"
_RESERVED_PREFIXES = ("kubernetes.azure.com/", "kubernetes.io/")
_TAINT_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_TAINT_PATTERN = re.compile(r"[^=:\s]+(=[^=:\s]*)?:(\w+)")
_AMOUNT_PATTERN = re.compile(r"0*([1-9]\d*)%?")
_MIN_SYSTEM_VCPUS = 4
"""AKS also requires 4 GiB of memory, which every size with this number of vCPUs has."""
VCPU_PATTERN = re.compile(r"Standard_[A-Z]+(?:\d+-)?(\d+)")
"""https://learn.microsoft.com/azure/virtual-machines/vm-naming-conventions"""
_MAX_PRICE_DECIMALS = 5


def _find_spot_price_problems(request: Request) -> Iterator[str]:
    price = request.body.get_number("spotMaxPrice")
    if price is not None and price != -1 and (price <= 0 or round(price, _MAX_PRICE_DECIMALS) != price):
        yield f"spotMaxPrice is {price:g}; it must be -1, or above 0 with at most {_MAX_PRICE_DECIMALS} decimals"


def _find_node_count_problems(request: Request) -> Iterator[str]:
    body = request.body
    low, high, count = body.get_number("minCount"), body.get_number("maxCount"), body.get_number("count")
    if not _IS_AUTOSCALED(body):
        return
    if low is None or high is None:
        yield f"{body.to_full_path('minCount')} and {body.to_full_path('maxCount')} are required"
    elif low > high:
        yield f"{body.to_full_path('minCount')} {low:g} is more than {body.to_full_path('maxCount')} {high:g}"
    elif request.previous_body is None and count is not None and not low <= count <= high:
        yield f"{body.to_full_path('count')} is {count:g}; it must be at least {low:g} and at most {high:g}"


def _find_system_size_problems(request: Request) -> Iterator[str]:
    name = request.body.get_text("vmSize")
    vcpus = VCPU_PATTERN.match(name)
    if not IS_SYSTEM_POOL(request.body):
        return
    if name.startswith("Standard_B"):
        yield f"{request.body.to_full_path('vmSize')} {name} is of the B series"
    elif vcpus and int(vcpus[1]) < _MIN_SYSTEM_VCPUS:
        yield f"{request.body.to_full_path('vmSize')} {name} has {vcpus[1]} vCPUs"


def _find_label_problems(request: Request) -> Iterator[str]:
    labels = request.body.get("nodeLabels") or {}
    for name, value in labels.items():
        by_aks = name == _SPOT_LABEL and value == "spot" and IS_SPOT_POOL(request.body)
        if name.startswith(_RESERVED_PREFIXES) and not by_aks:
            yield f"{request.body.to_full_path('nodeLabels')} has {name}"


def _find_taint_problems(request: Request) -> Iterator[str]:
    for taint in request.body.get_texts("nodeTaints"):
        match = _TAINT_PATTERN.fullmatch(taint)
        if not match or match[2] not in _TAINT_EFFECTS:
            effects = ", ".join(_TAINT_EFFECTS)
            yield f'{request.body.to_full_path("nodeTaints")} has "{taint}"; it must be key=value:effect, of {effects}'


def _find_surge_problems(request: Request) -> Iterator[str]:
    """Yield upgrade settings that do not set exactly one of surge nodes and unavailable nodes."""
    body = request.body
    surge, short = (body.get(f"upgradeSettings.{name}") for name in ("maxSurge", "maxUnavailable"))
    if IS_SPOT_POOL(body) or (surge is None and short is None):
        return
    is_surge, is_unavailable = (
        value is not None and bool(_AMOUNT_PATTERN.fullmatch(str(value))) for value in (surge, short)
    )
    if is_surge == is_unavailable:
        yield f'maxSurge is "{surge}" and maxUnavailable is "{short}"; one of them must be above 0, the other 0'


def _find_skew_problems(request: Request) -> Iterator[str]:
    minor = parse_minor_version(request.body.get_text("orchestratorVersion"))
    for _, cluster in request.iter_existing_resources(CLUSTER):
        cluster_version = parse_minor_version(cluster.get_text("kubernetesVersion"))
        if minor and cluster_version and minor > cluster_version:
            yield (
                f"orchestratorVersion is {minor[0]}.{minor[1]}, the control plane's "
                f"{cluster_version[0]}.{cluster_version[1]}"
            )


def _find_version_problems(request: Request) -> Iterator[str]:
    body = request.body
    for pool in body.get_parts("agentPoolProfiles"):
        pool_version, cluster_version = pool.get_text("orchestratorVersion"), body.get_text("kubernetesVersion")
        if request.previous_body is None and pool_version and cluster_version and pool_version != cluster_version:
            yield f"{pool.to_full_path('orchestratorVersion')} is {pool_version}, kubernetesVersion {cluster_version}"


def _find_pool_network_problems(request: Request) -> Iterator[str]:
    subnet_id = request.body.get_text("vnetSubnetID")
    for _, cluster in request.iter_existing_resources(CLUSTER):
        for pool in cluster.get_parts("agentPoolProfiles"):
            other_network = pool.get_text("vnetSubnetID")
            if subnet_id and other_network and _parse_network_name(subnet_id) != _parse_network_name(other_network):
                yield (
                    f"vnetSubnetID is in {_parse_network_name(subnet_id)}, "
                    f"that of pool {pool.get_text('name')} in {_parse_network_name(other_network)}"
                )


def _parse_network_name(subnet: str) -> str:
    return subnet.lower().rpartition("/subnets/")[0].rpartition("/")[2]


def _find_zone_problems(request: Request) -> Iterator[str]:
    """Yield zones that the cluster's location lacks."""
    clusters = [cluster for _, cluster in request.iter_existing_resources(CLUSTER)] or [
        RequestPart(request.resource.inputs)
    ]
    for cluster in clusters:
        location, zones = cluster.get_text("location"), request.body.get_texts("availabilityZones")
        if zones and location in REGIONS_WITHOUT_ZONES:
            yield (
                f"{request.body.to_full_path('availabilityZones')} is {', '.join(zones)}, the cluster's location "
                f"{location}"
            )


def _find_disk_threshold_problems(request: Request) -> Iterator[str]:
    low, high = (request.body.get_number(f"kubeletConfig.imageGc{side}Threshold") for side in ("Low", "High"))
    if low is not None and high is not None and low > high:
        yield f"imageGcLowThreshold is {low:g}, imageGcHighThreshold {high:g}"


REJECTION_RULES = (
    RejectionRule(
        "zones-of-pool", POOL, BAD_REQUEST, "The cluster's region has no availability zones",
        _find_zone_problems, "choose a region with availability zones (azure.location)",
        f"{LEARN_URL}/reliability/regions-list",
    ),
    RejectionRule(
        "spot-max-surge", POOL, _INVALID_PARAMETER, "Spot pools can't set max surge",
        forbid("upgradeSettings.maxSurge", when=IS_SPOT_POOL),
        "set surge_nodes of the pool to 0", f"{AZURERM_URL}/issues/19355",
    ),
    RejectionRule(
        "spot-max-unavailable", POOL, _INVALID_PARAMETER, "Spot pools can't set maxUnavailable",
        forbid("upgradeSettings.maxUnavailable", when=IS_SPOT_POOL),
        "remove maxUnavailable from the pool's upgradeSettings", f"{AZURERM_URL}/pull/31129",
    ),
    RejectionRule(
        "spot-system", POOL, BAD_REQUEST, "Spot node pools require user node pools",
        allow_only("mode", "User", when=IS_SPOT_POOL),
        "use on-demand nodes for the system pool", f"{_AKS_DOCS}/use-system-pools",
    ),
    RejectionRule(
        "spot-scale-set", POOL, BAD_REQUEST, "A Spot node pool must use Virtual Machine Scale Sets",
        allow_only("type", "VirtualMachineScaleSets", when=IS_SPOT_POOL),
        "set type to VirtualMachineScaleSets", "https://github.com/Azure/bicep/issues/14517",
    ),
    RejectionRule(
        "spot-price", POOL, BAD_REQUEST, "The value must be -1 or a positive value with up to five decimal places",
        _find_spot_price_problems, "round max_usd_per_hour of the pool, or omit it",
        f"{_AKS_DOCS}/spot-node-pool#limitations",
    ),
    RejectionRule(
        "eviction-of-regular-nodes", POOL, BAD_REQUEST,
        "The eviction policy and the maximum price can only be set when the priority is Spot",
        forbid("scaleSetEvictionPolicy", "spotMaxPrice", when=negate(IS_SPOT_POOL)),
        "remove both, or set scaleSetPriority to Spot", f"{_POOL_SOURCE_URL}#L575-L581",
    ),
    RejectionRule(
        "autoscaler-bounds", POOL, BAD_REQUEST, "The node count must be within the autoscaler's bounds",
        _find_node_count_problems, "set minCount <= count <= maxCount", f"{_POOL_SOURCE_URL}#L660-L680",
    ),
    RejectionRule(
        "bounds-without-autoscaler", POOL, BAD_REQUEST, "Bounds must be null when the autoscaler is off",
        forbid("minCount", "maxCount", when=negate(_IS_AUTOSCALED)),
        "set enableAutoScaling, or remove the bounds", f"{_POOL_SOURCE_URL}#L677",
    ),
    RejectionRule(
        "pool-nodes", POOL, BAD_REQUEST, "A node pool can have at most 1,000 nodes",
        require_range("maxCount", high=1000),
        "distribute the nodes over several pools", f"{_AKS_DOCS}/best-practices-performance-scale-large",
    ),
    RejectionRule(
        "system-pool-is-empty", POOL, BAD_REQUEST, "A system node pool must have at least one node",
        require_range("minCount", low=1, when=combine_conditions(IS_SYSTEM_POOL, _IS_AUTOSCALED)),
        "set azure.system_pool.nodes.min to 3, one in each zone", f"{_AKS_DOCS}/resize-node-pool",
    ),
    RejectionRule(
        "system-pool-size", POOL, BAD_REQUEST,
        "System node pools require a VM SKU of at least 4 vCPUs and 4 GB of memory, not of the B series",
        _find_system_size_problems, "use Standard_D4ds_v5 or a larger size", f"{_AKS_DOCS}/use-system-pools",
    ),
    RejectionRule(
        "system-pool-pods", POOL, BAD_REQUEST, "System node pools must support at least 30 pods",
        require_range("maxPods", low=30, when=IS_SYSTEM_POOL),
        "set maxPods to 30 or more", f"{_AKS_DOCS}/use-system-pools",
    ),
    RejectionRule(
        "pool-pods", POOL, BAD_REQUEST, "A node can run at most 250 pods",
        require_range("maxPods", high=250),
        "set maxPods to 250 or less", f"{_AKS_DOCS}/concepts-network-azure-cni-overlay#maximum-pods-per-node",
    ),
    RejectionRule(
        "system-pool-unavailable", POOL, BAD_REQUEST, "Max unavailable can't be set on system node pools",
        forbid("upgradeSettings.maxUnavailable", when=IS_SYSTEM_POOL),
        "upgrade the system pool by maxSurge",
        f"{_AKS_DOCS}/upgrade-aks-node-pools-rolling#customize-unavailable-nodes",
    ),
    RejectionRule(
        "upgrade-amounts", POOL, BAD_REQUEST, "An upgrade either adds nodes or makes nodes unavailable",
        _find_surge_problems, 'set maxSurge to "0" with maxUnavailable, and maxUnavailable to "0" with maxSurge',
        "https://github.com/Azure/AKS/issues/4277",
    ),
    RejectionRule(
        "node-labels", POOL, BAD_REQUEST,
        "The prefixes kubernetes.azure.com/ and kubernetes.io/ can't be used for any node",
        _find_label_problems, "choose another prefix, such as voice-serve/",
        f"{_AKS_DOCS}/use-labels#reserved-prefixes",
    ),
    RejectionRule(
        "node-taints", POOL, BAD_REQUEST, "A taint must have a key, a value and an effect",
        _find_taint_problems, "write taints as key=value:NoSchedule", f"{_AKS_DOCS}/use-node-taints",
    ),
    RejectionRule(
        "pool-version", POOL, "NodePoolMcVersionIncompatible",
        "The minor version of the node pool is bigger than that of the control plane",
        _find_skew_problems, "upgrade the cluster first", "https://github.com/Azure/terraform-azurerm-aks/issues/465",
    ),
    create_downgrade_rule(
        "pool-version-downgrade", POOL, "orchestratorVersion",
        "revert azure.kubernetes_version: AKS downgrades neither pools nor the cluster",
    ),
    RejectionRule(
        "first-pool-version", CLUSTER, BAD_REQUEST, "At creation, the version of pools must match the control plane's",
        _find_version_problems, "set orchestratorVersion to kubernetesVersion",
        f"{_AKS_DOCS}/create-node-pools#limitations",
    ),
    RejectionRule(
        "pools-in-one-network", POOL, BAD_REQUEST, "All node pools must reside in the same virtual network",
        _find_pool_network_problems, "use subnets of one network for all pools",
        f"{_AKS_DOCS}/create-node-pools#limitations",
    ),
    RejectionRule(
        "cpu-manager-policy", POOL, BAD_REQUEST, "The CPU manager policy must be none or static",
        allow_only("kubeletConfig.cpuManagerPolicy", "none", "static"),
        "set cpuManagerPolicy to static", f"{_AKS_DOCS}/custom-node-configuration-reference",
    ),
    RejectionRule(
        "image-thresholds", POOL, BAD_REQUEST, "The low threshold must not exceed the high threshold",
        _find_disk_threshold_problems, "lower imageGcLowThreshold", f"{_AKS_DOCS}/custom-node-configuration-reference",
    ),
    RejectionRule(
        "huge-pages", POOL, BAD_REQUEST, "Transparent huge pages must be always, madvise or never",
        allow_only("linuxOSConfig.transparentHugePageEnabled", "always", "madvise", "never"),
        "set transparentHugePageEnabled to one of them", f"{_AKS_DOCS}/custom-node-configuration-reference",
    ),
    RejectionRule(
        "huge-page-defrag", POOL, BAD_REQUEST,
        "Defragmentation must be always, defer, defer+madvise, madvise or never",
        allow_only("linuxOSConfig.transparentHugePageDefrag", "always", "defer", "defer+madvise", "madvise", "never"),
        "set transparentHugePageDefrag to one of them", f"{_AKS_DOCS}/custom-node-configuration-reference",
    ),
    RejectionRule(
        "linux-settings", POOL, BAD_REQUEST, "Linux settings can only be configured on Linux nodes",
        forbid("linuxOSConfig", when=negate(has_value("osType", "Linux", None))),
        "set osType to Linux", f"{_POOL_SOURCE_URL}#L685-L687",
    ),
)  # fmt: skip
