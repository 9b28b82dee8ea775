"""Rules on Azure's own resources: VM sizes, pools, identity, encryption, exposure, tags."""

import difflib
from collections.abc import Iterator

from blueprint import catalog
from blueprint.azure.contract import Component
from blueprint.azure.names import Role
from blueprint.checks.azure_capacity import ANYBODY
from blueprint.file.model.azure import TopologyPolicy
from stacks.azure.policy.cluster import GPU_TAINT_KEYS, profiles
from stacks.azure.policy.rules import Found, Stack, rule, stack_rule

TAGS = ("deployment", "environment", "managed-by")
CLOSED = "Disabled"
PRIVATE_DATA = (":Registry", ":Vault", ":StorageAccount", ":RedisEnterprise")
"""Kinds of resources with data, each of which has ``publicNetworkAccess`` at one of two places."""


@rule(
    "vm-size-is-known",
    "Every pool's VM size is in the catalogue, and so is its quota family.",
    remedy="correct the name, or add the size to blueprint/catalog/vm_sizes.yaml",
    source="https://learn.microsoft.com/azure/virtual-machines/sizes",
)
def sizes_are_known(stack: Stack) -> Iterator[Found]:
    for profile in profiles(stack):
        name = profile.props["vmSize"].text
        if not profile.size:
            near = difflib.get_close_matches(name, catalog.vm_sizes(), n=1)
            meant = f"; did you mean {near[0]}?" if near else ""
            yield Found(
                profile.resource.urn, f'pool {profile.name}: there is no VM size "{name}" in the catalogue{meant}'
            )


@rule(
    "pool-fits-its-size",
    "Spot, MIG, drivers and bounds of every pool go with each other and with its VM size.",
    remedy="change the pool's purchase option or its size",
    source="https://learn.microsoft.com/azure/virtual-machines/capacity-reservation-overview",
)
def pools_fit_sizes(stack: Stack) -> Iterator[Found]:
    for profile in profiles(stack):
        size, props, urn = profile.size, profile.props, profile.resource.urn
        if size is None:
            continue
        if profile.is_spot and (profile.system or props["capacityReservationGroupID"]):
            why = "a system pool" if profile.system else "draws from a capacity reservation"
            yield Found(urn, f"pool {profile.name} is spot and {why}")
        if size.gpu_count and props["gpuInstanceProfile"]:
            yield Found(urn, f"pool {profile.name} cuts its GPUs with MIG; engines here take whole ones")
        if size.gpu_count and props.at("gpuProfile", "driver").text not in {"Install", ""}:
            yield Found(urn, f"pool {profile.name}: no GPU driver is installed on {size.name}")
        low, high = props["minCount"].number, props["maxCount"].number
        if low is not None and high is not None and low > high:
            yield Found(urn, f"pool {profile.name} keeps {low:g} nodes and allows {high:g}")


@rule(
    "gpu-pool-is-tainted",
    "Every pool with GPUs has a taint that keeps other pods away.",
    remedy="add nvidia.com/gpu=present:NoSchedule to nodeTaints",
    source="https://learn.microsoft.com/azure/aks/use-nvidia-gpu",
)
def gpu_pools_are_tainted(stack: Stack) -> Iterator[Found]:
    for profile in profiles(stack):
        keys = {taint.text.partition("=")[0] for taint in profile.props["nodeTaints"]}
        if profile.size and profile.size.gpu_count and not keys & set(GPU_TAINT_KEYS):
            yield Found(
                profile.resource.urn, f"pool {profile.name} has {profile.size.gpu_count} GPU(s) a node and no GPU taint"
            )


@rule(
    "kubelet-policies-align",
    "Topology policies exist, and go with pinned CPUs.",
    remedy="set topologyManagerPolicy: best-effort and cpuManagerPolicy: static",
    source="https://learn.microsoft.com/azure/aks/custom-node-configuration",
)
def kubelet_policies_align(stack: Stack) -> Iterator[Found]:
    for profile in profiles(stack):
        kubelet = profile.props["kubeletConfig"]
        policy, cpus = kubelet["topologyManagerPolicy"].text, kubelet["cpuManagerPolicy"].text
        if policy and policy not in set(TopologyPolicy):
            yield Found(profile.resource.urn, f'pool {profile.name}: there is no topology policy "{policy}"')
        elif policy not in {"", TopologyPolicy.NONE} and cpus != "static":
            yield Found(profile.resource.urn, f"pool {profile.name} aligns CPUs ({policy}) that are not pinned")


@stack_rule(
    "kubelet-pulls-images",
    "The kubelet's identity has AcrPull on the registry.",
    remedy="assign the role AcrPull on the registry to the identity of identityProfile.kubeletidentity",
    source="https://learn.microsoft.com/azure/aks/cluster-container-registry-integration",
)
def kubelet_pulls_images(stack: Stack) -> Iterator[Found]:
    registries = {registry.urn for registry in stack.of(":Registry")}
    for cluster in stack.of(":ManagedCluster"):
        kubelet = set(cluster.needs.get("identityProfile", ()))
        for registry in registries:
            granted = any(
                assignment.props["roleDefinitionId"].text.lower().endswith(Role.ACR_PULL)
                and kubelet & set(assignment.needs.get("principalId", ()))
                and registry in assignment.needs.get("scope", ())
                for assignment in stack.of(":RoleAssignment")
            )
            if not granted:
                yield Found(
                    cluster.urn,
                    f"the kubelet's identity of cluster {cluster.name} has no AcrPull on the registry: no "
                    "node could pull an image",
                )


@rule(
    "roles-are-narrow",
    "No identity is an owner, and none has a role on a whole subscription.",
    remedy="grant the narrowest role on the resource itself",
    source="https://learn.microsoft.com/azure/role-based-access-control/best-practices",
)
def roles_are_narrow(stack: Stack) -> Iterator[Found]:
    for assignment in stack.of(":RoleAssignment"):
        scope = assignment.props["scope"].text
        if scope.count("/") == 2:  # noqa: PLR2004  /subscriptions/<id>
            yield Found(assignment.urn, f"{assignment.name} grants a role on the whole subscription")
        if assignment.props["roleDefinitionId"].text.lower().endswith("8e3af657-a8ff-443c-a75c-2fe8c4bcb635"):
            yield Found(assignment.urn, f"{assignment.name} grants Owner")


@rule(
    "sign-in-is-entra",
    "Clusters have no local accounts, and decide by Azure roles.",
    remedy="set disableLocalAccounts, aadProfile and oidcIssuerProfile",
    source="https://learn.microsoft.com/azure/aks/manage-local-accounts-managed-azure-ad",
)
def sign_in_is_entra(stack: Stack) -> Iterator[Found]:
    for cluster in stack.of(":ManagedCluster"):
        props, urn = cluster.props, cluster.urn
        if props["disableLocalAccounts"].off:
            yield Found(urn, f"cluster {cluster.name} has local accounts: certificates that nobody can revoke")
        aad = props["aadProfile"]
        if aad["managed"].off or aad["enableAzureRBAC"].off:
            yield Found(urn, f"cluster {cluster.name} does not decide by Entra groups and Azure roles")
        if props.at("oidcIssuerProfile", "enabled").off:
            yield Found(urn, f"cluster {cluster.name} has no OIDC issuer, which workload identity needs")


@rule(
    "data-is-closed",
    "Disks are encrypted at the host; registries, vaults and storage answer inside the network, to identities.",
    remedy="set enableEncryptionAtHost; set publicNetworkAccess to Disabled and use a private endpoint",
    source="https://learn.microsoft.com/azure/aks/enable-host-encryption",
)
def data_is_encrypted(stack: Stack) -> Iterator[Found]:
    for profile in profiles(stack):
        if profile.props["enableEncryptionAtHost"].off:
            yield Found(profile.resource.urn, f"pool {profile.name} keeps caches and temporary disks in the clear")
        if profile.props["enableNodePublicIP"].on:
            yield Found(profile.resource.urn, f"nodes of pool {profile.name} have public addresses")
    for store in stack.of(*PRIVATE_DATA):
        access = store.props["publicNetworkAccess"]
        if access.missing:
            access = store.props.at("properties", "publicNetworkAccess")
        if not access.unknown and access.text != CLOSED:
            yield Found(
                store.urn, f"{store.name} answers outside the network (publicNetworkAccess {access.text or 'not set'})"
            )
        for flag in ("adminUserEnabled", "anonymousPullEnabled", "allowBlobPublicAccess", "allowSharedKeyAccess"):
            if store.props[flag].on:
                yield Found(store.urn, f"{store.name}: {flag} is on")
        if store.type.endswith(":Vault") and store.props.at("properties", "enableRbacAuthorization").off:
            yield Found(store.urn, f"{store.name} decides by access policies instead of roles")


@rule(
    "state-store-knows-its-users",
    "The state store takes TLS and tokens of Microsoft Entra, and no keys.",
    remedy="set clientProtocol to Encrypted and accessKeysAuthentication to Disabled",
    source="https://learn.microsoft.com/azure/redis/entra-for-authentication",
)
def state_store_knows_its_users(stack: Stack) -> Iterator[Found]:
    for database in stack.of("redisenterprise:Database"):
        if database.props["accessKeysAuthentication"].text != CLOSED:
            yield Found(database.urn, f"{database.name} takes access keys, which say nobody's name")
        if database.props["clientProtocol"].text != "Encrypted":
            yield Found(database.urn, f"{database.name} talks without TLS")


@stack_rule(
    "edge-is-guarded",
    "Every application gateway has a web firewall that refuses, and listens with TLS only.",
    remedy="set firewallPolicy to a policy in Prevention mode, and the listeners' protocol to Https",
    source="https://learn.microsoft.com/azure/web-application-firewall/ag/ag-overview",
)
def edge_is_guarded(stack: Stack) -> Iterator[Found]:
    refusing = {
        policy.urn
        for policy in stack.of(":WebApplicationFirewallPolicy")
        if policy.props.at("policySettings", "mode").text == "Prevention"
        and policy.props.at("policySettings", "state").text != CLOSED
        and any(policy.props.at("managedRules", "managedRuleSets"))
    }
    for gateway in stack.of(":ApplicationGateway"):
        if not refusing & set(gateway.needs.get("firewallPolicy", ())):
            yield Found(gateway.urn, f"{gateway.name} has no web firewall that refuses anything")
        for listener in gateway.props["httpListeners"]:
            if listener["protocol"].text != "Https":
                yield Found(gateway.urn, f"{gateway.name} listens to {listener['name'].text} without TLS")


@rule(
    "network-is-closed",
    "No network security group lets the internet in but where the contract says that callers come.",
    remedy="name the ranges that may call, or deploy `callers`",
    source="https://learn.microsoft.com/azure/virtual-network/network-security-groups-overview",
)
def network_is_closed(stack: Stack) -> Iterator[Found]:
    called = {(flow.port.protocol, str(flow.port.number)) for flow in stack.flows if flow.source is Component.INTERNET}
    for group in stack.of(":NetworkSecurityGroup", ":SecurityRule"):
        for entry in [*group.props["securityRules"], *([group.props] if group.type.endswith(":SecurityRule") else [])]:
            sources = {entry["sourceAddressPrefix"].text, *(prefix.text for prefix in entry["sourceAddressPrefixes"])}
            inbound = entry["direction"].text == "Inbound" and entry["access"].text == "Allow"
            port = entry["destinationPortRange"].text
            if inbound and sources & ANYBODY and (entry["protocol"].text.lower(), port) not in called:
                yield Found(
                    group.urn,
                    f"{group.name} lets {', '.join(sorted(sources & ANYBODY))} in on port {port or 'several'}",
                )


@rule(
    "resources-are-tagged",
    f"Everything with a location has the tags {', '.join(TAGS)}.",
    remedy="pass the deployment's tags",
    source="https://learn.microsoft.com/azure/azure-resource-manager/management/tag-resources",
)
def resources_are_tagged(stack: Stack) -> Iterator[Found]:
    for resource in stack.resources:
        if resource.type.startswith("azure-native:") and not resource.props["location"].missing:
            tags = resource.props["tags"].texts()
            missing = [tag for tag in TAGS if not tags.get(tag)]
            if missing:
                yield Found(resource.urn, f"{resource.name} has no tag {', '.join(missing)}")
