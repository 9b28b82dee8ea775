"""Refusal cases of node pools."""

from tests.stacks.azure.refusals.planted import REMOVED, Case, Change, Values, changed

POOL, CLUSTER = "containerservice:AgentPool", "containerservice:ManagedCluster"
SUBNET = "/subscriptions/s/resourceGroups/r/providers/Microsoft.Network/virtualNetworks/{}/subnets/nodes"


def pool(row: str, name: str, wrong: Change, right: Change, says: str = "") -> Case:
    return Case(row, POOL, name, wrong, right, says)


def system(row: str, wrong: Values, right: Values, says: str = "") -> Case:
    """Return a case of the pool inside the cluster."""
    within, beside = ({f"agentPoolProfiles.0.{path}": value for path, value in each.items()} for each in (wrong, right))
    return Case(row, CLUSTER, "cluster", within, beside, says)


CASES = (
    pool("zones-of-pool", "a100", changed(CLUSTER, "cluster", location="westus"),
         changed(CLUSTER, "cluster", location="westus2"), "the cluster's location westus"),
    pool("spot-max-surge", "h100spot", {"upgradeSettings.maxSurge": "0"}, {"upgradeSettings.maxSurge": REMOVED},
         'upgradeSettings.maxSurge is "0"'),
    pool("spot-max-unavailable", "h100spot", {"upgradeSettings.maxUnavailable": "1"}, {},
         'upgradeSettings.maxUnavailable is "1"'),
    pool("spot-system", "h100spot", {"mode": "System"}, {"mode": "User"}, 'mode is "System"'),
    pool("spot-scale-set", "h100spot", {"type": "VirtualMachines"}, {}),
    pool("spot-price", "h100spot", {"spotMaxPrice": 0}, {"spotMaxPrice": -1.0}, "spotMaxPrice is 0"),
    pool("spot-price", "h100spot", {"spotMaxPrice": 1.234567}, {"spotMaxPrice": 1.23456}),
    pool("eviction-of-regular-nodes", "a100", {"scaleSetEvictionPolicy": "Delete"},
         {"scaleSetEvictionPolicy": REMOVED}),
    pool("eviction-of-regular-nodes", "a100", {"spotMaxPrice": -1}, {}),
    pool("autoscaler-bounds", "a100", {"count": 6}, {"count": 5}, "count is 6; it must be at least 1 and at most 5"),
    pool("autoscaler-bounds", "a100", {"minCount": 6, "count": 6}, {"minCount": 5, "count": 5}, "minCount 6 is more"),
    pool("autoscaler-bounds", "a100", {"maxCount": REMOVED}, {}, "are required"),
    pool("bounds-without-autoscaler", "a100", {"enableAutoScaling": False},
         {"enableAutoScaling": False, "minCount": REMOVED, "maxCount": REMOVED}),
    pool("pool-nodes", "a100", {"maxCount": 1001}, {"maxCount": 1000}, "maxCount is 1001; it must be at most 1000"),
    system("system-pool-is-empty", {"minCount": 0}, {"minCount": 1, "count": 1}, "agentPoolProfiles[0].minCount is 0"),
    system("system-pool-size", {"vmSize": "Standard_B4ms"}, {"vmSize": "Standard_D4ds_v5"}, "of the B series"),
    system("system-pool-pods", {"maxPods": 29}, {"maxPods": 30}, "maxPods is 29; it must be at least 30"),
    pool("pool-pods", "a100", {"maxPods": 251}, {"maxPods": 250}),
    system("system-pool-unavailable", {"upgradeSettings": {"maxSurge": "0", "maxUnavailable": "1"}},
           {"upgradeSettings": {"maxSurge": "1"}}),
    pool("upgrade-amounts", "a100", {"upgradeSettings.maxSurge": "0"}, {"upgradeSettings.maxSurge": "33%"},
         'maxSurge is "0" and maxUnavailable is "0"'),
    pool("upgrade-amounts", "a100", {"upgradeSettings.maxUnavailable": "1"}, {"upgradeSettings.maxUnavailable": "0"}),
    pool("node-labels", "a100", {"nodeLabels": {"kubernetes.azure.com/mode": "user"}},
         {"nodeLabels": {"azure.com/mode": "user"}}, "kubernetes.azure.com/mode"),
    pool("node-labels", "a100", {"nodeLabels": {"kubernetes.azure.com/scalesetpriority": "spot"}},
         {"nodeLabels": {}}),
    pool("node-taints", "a100", {"nodeTaints": ["nvidia.com/gpu=present:Never"]},
         {"nodeTaints": ["nvidia.com/gpu=present:NoExecute", "nvidia.com/gpu:NoSchedule"]}, "key=value:effect"),
    pool("pool-version", "a100", {"orchestratorVersion": "1.37"}, {"orchestratorVersion": "1.35"},
         "orchestratorVersion is 1.37, the control plane's 1.36"),
    Case("pool-version-downgrade", POOL, "a100", {"orchestratorVersion": "1.35"}, {}, "from 1.36 to 1.35", update=True),
    Case("pool-version-downgrade", CLUSTER, "cluster", {"agentPoolProfiles.0.orchestratorVersion": "1.35"}, {},
         "agentPoolProfiles[0].orchestratorVersion would go", update=True),
    Case("first-pool-version", CLUSTER, "cluster", {"agentPoolProfiles.0.orchestratorVersion": "1.35"}, {}),
    pool("pools-in-one-network", "a100", {"vnetSubnetID": SUBNET.format("other")}, {}, "in other"),
    pool("cpu-manager-policy", "a100", {"kubeletConfig.cpuManagerPolicy": "Static"},
         {"kubeletConfig.cpuManagerPolicy": "none"}, 'it must be "none" or "static"'),
    pool("image-thresholds", "a100",
         {"kubeletConfig.imageGcLowThreshold": 81, "kubeletConfig.imageGcHighThreshold": 80},
         {"kubeletConfig.imageGcLowThreshold": 80, "kubeletConfig.imageGcHighThreshold": 80}),
    pool("huge-pages", "a100", {"linuxOSConfig.transparentHugePageEnabled": "yes"},
         {"linuxOSConfig.transparentHugePageEnabled": "madvise"}),
    pool("huge-page-defrag", "a100", {"linuxOSConfig.transparentHugePageDefrag": "madvise+defer"},
         {"linuxOSConfig.transparentHugePageDefrag": "defer"}),
    pool("linux-settings", "a100", {"osType": "Windows"}, {"osType": "Windows", "linuxOSConfig": REMOVED}),
)  # fmt: skip
