"""Refusal cases of clusters."""

from tests.stacks.azure.refusals.planted import REMOVED, Case, Change, changed, without_dependency, without_resource

CLUSTER, SUBNET, GRANT = "containerservice:ManagedCluster", "network:Subnet", "authorization:RoleAssignment"
NET, ACCESS = "networkProfile", "apiServerAccessProfile"
CLEANER = "securityProfile.imageCleaner.intervalHours"


def cluster(row: str, wrong: Change, right: Change | None = None, says: str = "", file: str = "production") -> Case:
    return Case(row, CLUSTER, "cluster", wrong, right or {}, says, file)


def update(row: str, wrong: Change, right: Change, says: str = "") -> Case:
    return Case(row, CLUSTER, "cluster", wrong, right, says, update=True)


CASES = (
    cluster("cluster-without-system-pool", {"agentPoolProfiles.0.mode": "User"}, says="agentPoolProfiles have User"),
    cluster("service-range-overlaps-subnet", {f"{NET}.serviceCidr": "10.60.128.0/24"},
            {f"{NET}.serviceCidr": "10.60.200.0/24"}, "subnet endpoints 10.60.128.0/26"),
    cluster("pod-range-overlaps", {f"{NET}.podCidr": "10.60.0.0/16"}, {f"{NET}.podCidr": "10.62.0.0/16"},
            "subnet nodes 10.60.0.0/17"),
    cluster("pod-range-overlaps", {f"{NET}.podCidr": "10.61.128.0/17"}, {}, "serviceCidr 10.61.0.0/16"),
    cluster("reserved-ranges", {f"{NET}.podCidr": "172.16.0.0/12"}, {f"{NET}.podCidr": "172.16.0.0/13"},
            "podCidr 172.16.0.0/12 overlaps 172.30.0.0/16"),
    cluster("reserved-ranges", changed(SUBNET, "nodes", addressPrefix="192.0.2.0/25"), {}, "subnet nodes"),
    cluster("service-range-size", {f"{NET}.serviceCidr": "10.0.0.0/12"}, {f"{NET}.serviceCidr": "10.64.0.0/13"}),
    cluster("dns-service-address", {f"{NET}.dnsServiceIP": "10.61.0.1"}, {f"{NET}.dnsServiceIP": "10.61.0.2"},
            "dnsServiceIP is 10.61.0.1"),
    cluster("dns-service-address", {f"{NET}.dnsServiceIP": "10.62.0.10"}),
    cluster("dataplane-plugin", {f"{NET}.networkPlugin": "none"}),
    cluster("policy-without-dataplane", {f"{NET}.networkDataplane": REMOVED},
            {f"{NET}.networkDataplane": REMOVED, f"{NET}.networkPolicy": "calico"}),
    cluster("pod-range-without-overlay", {f"{NET}.networkPluginMode": REMOVED}),
    cluster("outbound-gateway", changed(SUBNET, "nodes", natGateway=None), {}, "subnet nodes has no natGateway"),
    cluster("outbound-of-own-network", {f"{NET}.outboundType": "managedNATGateway"}, {f"{NET}.outboundType": "none"}),
    Case("subnet-is-delegated", "containerservice:AgentPool", "a100",
         changed(SUBNET, "nodes", delegations=[{"name": "sql", "serviceName": "Microsoft.Sql/managedInstances"}]),
         changed(SUBNET, "endpoints", delegations=[{"name": "sql", "serviceName": "Microsoft.Sql/managedInstances"}]),
         "Microsoft.Sql/managedInstances"),
    cluster("basic-load-balancer", {f"{NET}.loadBalancerSku": "basic"}, {f"{NET}.loadBalancerSku": REMOVED}),
    cluster("local-accounts-off", {"aadProfile": REMOVED}, {"aadProfile": REMOVED, "disableLocalAccounts": False}),
    cluster("local-accounts-off", {"enableRBAC": False}),
    cluster("workload-identity-without-issuer", {"oidcIssuerProfile": REMOVED},
            {"oidcIssuerProfile": REMOVED, "securityProfile.workloadIdentity": REMOVED}),
    update("issuer-stays", {"oidcIssuerProfile.enabled": False}, {"oidcIssuerProfile.enabled": True},
           "was true and would become false"),
    update("entra-stays", {"aadProfile": REMOVED}, {"aadProfile.enableAzureRBAC": False}),
    cluster("image-cleaner-interval", {CLEANER: 23}, {CLEANER: 24}, "at least 24 and at most 2160"),
    cluster("image-cleaner-interval", {CLEANER: 2161}, {CLEANER: 2160}),
    cluster("image-cleaner-without-interval", {CLEANER: REMOVED}, {"securityProfile.imageCleaner": {"enabled": False}}),
    cluster("ranges-of-private-cluster", {f"{ACCESS}.authorizedIPRanges": ["203.0.113.0/24"]}),
    cluster("number-of-ranges", {f"{ACCESS}.authorizedIPRanges": [f"203.0.113.{n}/32" for n in range(201)]},
            {f"{ACCESS}.authorizedIPRanges": [f"203.0.113.{n}/32" for n in range(200)]}, "201 ranges", "public"),
    cluster("zone-of-api-server", {"location": "westus2"}, {}, "it must be privatelink.westus2.azmk8s.io", "zone"),
    cluster("zone-with-system-identity", {"identity.type": "SystemAssigned"}, {}, "", "zone"),
    cluster("kubelet-identity-role", without_resource(GRANT, "control-plane-assigns-kubelet"), {},
            "production-azure-kubelet"),
    cluster("kubelet-identity-role", without_dependency(CLUSTER, "cluster", "control-plane-assigns-kubelet")),
    cluster("kubelet-identity-role", {"identity.userAssignedIdentities": []}),
    cluster("subnet-role", without_resource(GRANT, "control-plane-uses-subnet"), {}, "no such role on nodes at"),
    Case("reservation-role", "containerservice:AgentPool", "a100",
         without_resource(GRANT, "control-plane-uses-reservation-b791cfb023"), {}, "no such role on gpus at",
                          "reserved"),
    cluster("node-group-exists", {"nodeResourceGroup": "production-azure"}, {"nodeResourceGroup": "production"}),
    cluster("node-image-channel", {"autoUpgradeProfile": {"upgradeChannel": "node-image",
                                                          "nodeOSUpgradeChannel": "SecurityPatch"}},
            {"autoUpgradeProfile.upgradeChannel": "node-image"}),
    update("skipped-version", {"kubernetesVersion": "1.38"}, {"kubernetesVersion": "1.37"}, "from 1.36 to 1.38"),
    update("version-downgrade", {"kubernetesVersion": "1.35"}, {"kubernetesVersion": "1.36.2"}, "from 1.36 to 1.35"),
    cluster("autoscaler-times", {"autoScalerProfile.maxNodeProvisionTime": "1500s"},
            {"autoScalerProfile.maxNodeProvisionTime": "25m"}, 'maxNodeProvisionTime is "1500s"'),
    cluster("dns-prefix", {"dnsPrefix": "v" * 55}, {"dnsPrefix": "v" * 54}, "of 55 characters"),
)  # fmt: skip
