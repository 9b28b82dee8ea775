"""Rules on Azure's own resources: VM sizes, pools, identity, encryption, exposure, tags."""

import difflib
from collections.abc import Iterator

from blueprint import catalog
from blueprint.azure.names import Role
from blueprint.file.model.azure import TopologyPolicy
from stacks.azure.policy.pools import GPU_TAINT_KEYS, profiles
from stacks.azure.policy.rules import Found, Rule, Scope, Stack

TAGS = ("deployment", "environment", "managed-by")
ANYBODY = frozenset({"*", "Internet", "0.0.0.0/0", "::/0", "Any"})
CLOSED = "Disabled"
PRIVATE_DATA = (":Registry", ":Vault", ":StorageAccount")
"""Kinds of resources with data, each of which has ``publicNetworkAccess`` at one of two places."""


def sizes_are_known(stack: Stack) -> Iterator[Found]:
    """Every pool's size is a row of the catalogue, with its quota family."""
    for profile in profiles(stack):
        name = profile.props["vmSize"].text
        if not profile.size:
            near = difflib.get_close_matches(name, catalog.vm_sizes(), n=1)
            meant = f"; did you mean {near[0]}?" if near else ""
            yield Found(
                profile.resource.urn, f'pool {profile.name}: there is no VM size "{name}" in the catalogue{meant}'
            )


def sizes_are_in_region(stack: Stack) -> Iterator[Found]:
    """Every pool's size is offered where the cluster is."""
    places = {cluster.props["location"].text for cluster in stack.of(":ManagedCluster")} - {""}
    for profile in profiles(stack):
        for place in sorted(places):
            if profile.size and place not in profile.size.regions:
                known = ", ".join(profile.size.regions)
                yield Found(
                    profile.resource.urn,
                    f"pool {profile.name}: no source offers {profile.size.name} in {place}, but {known}",
                )


def pools_fit_sizes(stack: Stack) -> Iterator[Found]:
    """Reservations, spot, MIG and system pools go with the size."""
    for profile in profiles(stack):
        size, props, urn = profile.size, profile.props, profile.resource.urn
        if size is None:
            continue
        spot = props["scaleSetPriority"].text == "Spot"
        if props["capacityReservationGroupId"] and (spot or not size.capacity_reservation):
            why = "with spot" if spot else f"{size.name} has none"
            yield Found(urn, f"pool {profile.name} draws from a capacity reservation; {why}")
        if spot and (profile.system or not size.spot):
            yield Found(urn, f"pool {profile.name} is spot; {'system pools are not' if profile.system else size.name}")
        if profile.system and size.gpu_count:
            yield Found(urn, f"system pool {profile.name} has {size.gpu_count} GPU(s) of {size.name} that nothing uses")
        if size.gpu_count and props["gpuInstanceProfile"]:
            yield Found(urn, f"pool {profile.name} cuts its GPUs with MIG; engines here take whole ones")
        if size.gpu_count and props.at("gpuProfile", "driver").text not in {"Install", ""}:
            yield Found(urn, f"pool {profile.name}: no GPU driver is installed on {size.name}")
        low, high = props["minCount"].number, props["maxCount"].number
        if low is not None and high is not None and low > high:
            yield Found(urn, f"pool {profile.name} keeps {low:g} nodes and allows {high:g}")


def gpu_pools_are_tainted(stack: Stack) -> Iterator[Found]:
    """Pods without GPUs stay off GPU nodes."""
    for profile in profiles(stack):
        keys = {taint.text.partition("=")[0] for taint in profile.props["nodeTaints"]}
        if profile.size and profile.size.gpu_count and not keys & set(GPU_TAINT_KEYS):
            yield Found(
                profile.resource.urn, f"pool {profile.name} has {profile.size.gpu_count} GPU(s) a node and no GPU taint"
            )


def kubelet_policies_align(stack: Stack) -> Iterator[Found]:
    """Topology policies exist, and CPUs are pinned where they are to be aligned."""
    for profile in profiles(stack):
        kubelet = profile.props["kubeletConfig"]
        policy, cpus = kubelet["topologyManagerPolicy"].text, kubelet["cpuManagerPolicy"].text
        size = profile.size
        if policy and policy not in set(TopologyPolicy):
            yield Found(profile.resource.urn, f'pool {profile.name}: there is no topology policy "{policy}"')
        elif policy not in {"", TopologyPolicy.NONE} and cpus != "static":
            yield Found(profile.resource.urn, f"pool {profile.name} aligns CPUs ({policy}) that are not pinned")
        if policy == TopologyPolicy.SINGLE_NUMA_NODE and size and len(size.numa_nodes) > 1:
            yield Found(
                profile.resource.urn,
                f"pool {profile.name}: {policy} admits no pod with the {max(map(len, size.nvlink_domains or ((0,),)))} "
                f"GPUs of an NVLink domain of {size.name}, which lie on as many NUMA nodes",
            )


def kubelet_pulls_images(stack: Stack) -> Iterator[Found]:
    """The identity that nodes act as may pull from the registry."""
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


def roles_are_narrow(stack: Stack) -> Iterator[Found]:
    """No identity owns anything, and none has a role on a whole subscription."""
    for assignment in stack.of(":RoleAssignment"):
        scope = assignment.props["scope"].text
        if scope.count("/") == 2:  # noqa: PLR2004  /subscriptions/<id>
            yield Found(assignment.urn, f"{assignment.name} grants a role on the whole subscription")
        if assignment.props["roleDefinitionId"].text.lower().endswith("8e3af657-a8ff-443c-a75c-2fe8c4bcb635"):
            yield Found(assignment.urn, f"{assignment.name} grants Owner")


def sign_in_is_entra(stack: Stack) -> Iterator[Found]:
    """People sign in with Microsoft Entra, programs with workload identity."""
    for cluster in stack.of(":ManagedCluster"):
        props, urn = cluster.props, cluster.urn
        if props["disableLocalAccounts"].off:
            yield Found(urn, f"cluster {cluster.name} has local accounts: certificates that nobody can revoke")
        aad = props["aadProfile"]
        if aad["managed"].off or aad["enableAzureRBAC"].off:
            yield Found(urn, f"cluster {cluster.name} does not decide by Entra groups and Azure roles")
        if props.at("oidcIssuerProfile", "enabled").off:
            yield Found(urn, f"cluster {cluster.name} has no OIDC issuer, which workload identity needs")
        api = props["apiServerAccessProfile"]
        ranges = {entry.text for entry in api["authorizedIPRanges"]}
        if api["enablePrivateCluster"].off and (not ranges or ranges & ANYBODY):
            yield Found(urn, f"the API server of cluster {cluster.name} answers everybody")


def data_is_encrypted(stack: Stack) -> Iterator[Found]:
    """Disks are encrypted at the host, and stores answer inside the network."""
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


def network_is_closed(stack: Stack) -> Iterator[Found]:
    """No rule of a network security group lets the internet in."""
    for group in stack.of(":NetworkSecurityGroup", ":SecurityRule"):
        for rule in [*group.props["securityRules"], *([group.props] if group.type.endswith(":SecurityRule") else [])]:
            sources = {rule["sourceAddressPrefix"].text, *(prefix.text for prefix in rule["sourceAddressPrefixes"])}
            inbound = rule["direction"].text == "Inbound" and rule["access"].text == "Allow"
            if inbound and sources & ANYBODY:
                yield Found(
                    group.urn,
                    f"{group.name} lets {', '.join(sorted(sources & ANYBODY))} in on port "
                    f"{rule['destinationPortRange'].text or 'several'}",
                )


def resources_are_tagged(stack: Stack) -> Iterator[Found]:
    """What has a location says which deployment it belongs to."""
    for resource in stack.resources:
        if resource.type.startswith("azure-native:") and not resource.props["location"].missing:
            tags = resource.props["tags"].texts()
            missing = [tag for tag in TAGS if not tags.get(tag)]
            if missing:
                yield Found(resource.urn, f"{resource.name} has no tag {', '.join(missing)}")


RULES = (
    Rule(
        "vm-size-is-known",
        "Every pool's VM size is in the catalogue, and so is its quota family.",
        "correct the name, or add the size to blueprint/catalog/vm_sizes.yaml",
        "https://learn.microsoft.com/azure/virtual-machines/sizes",
        Scope.RESOURCE,
        sizes_are_known,
    ),
    Rule(
        "vm-size-in-region",
        "Every pool's VM size is known to be offered in the cluster's region.",
        "choose another region or size; `az vm list-skus` says what there is",
        "https://learn.microsoft.com/azure/virtual-machines/sizes",
        Scope.STACK,
        sizes_are_in_region,
    ),
    Rule(
        "pool-fits-its-size",
        "Reservations, spot, MIG, drivers and bounds of every pool go with its VM size.",
        "change the pool's purchase option or its size",
        "https://learn.microsoft.com/azure/virtual-machines/capacity-reservation-overview",
        Scope.RESOURCE,
        pools_fit_sizes,
    ),
    Rule(
        "gpu-pool-is-tainted",
        "Every pool with GPUs has a taint that keeps other pods away.",
        "add nvidia.com/gpu=present:NoSchedule to nodeTaints",
        "https://learn.microsoft.com/azure/aks/use-nvidia-gpu",
        Scope.RESOURCE,
        gpu_pools_are_tainted,
    ),
    Rule(
        "kubelet-policies-align",
        "Topology policies exist, admit pods with linked GPUs, and go with pinned CPUs.",
        "set topologyManagerPolicy: best-effort and cpuManagerPolicy: static",
        "https://learn.microsoft.com/azure/aks/custom-node-configuration",
        Scope.RESOURCE,
        kubelet_policies_align,
    ),
    Rule(
        "kubelet-pulls-images",
        "The kubelet's identity has AcrPull on the registry.",
        "assign the role AcrPull on the registry to the identity of identityProfile.kubeletidentity",
        "https://learn.microsoft.com/azure/aks/cluster-container-registry-integration",
        Scope.STACK,
        kubelet_pulls_images,
    ),
    Rule(
        "roles-are-narrow",
        "No identity is an owner, and none has a role on a whole subscription.",
        "grant the narrowest role on the resource itself",
        "https://learn.microsoft.com/azure/role-based-access-control/best-practices",
        Scope.RESOURCE,
        roles_are_narrow,
    ),
    Rule(
        "sign-in-is-entra",
        "Clusters have no local accounts, decide by Azure roles, and do not answer everybody.",
        "set disableLocalAccounts, aadProfile and apiServerAccessProfile",
        "https://learn.microsoft.com/azure/aks/manage-local-accounts-managed-azure-ad",
        Scope.RESOURCE,
        sign_in_is_entra,
    ),
    Rule(
        "data-is-closed",
        "Disks are encrypted at the host; registries, vaults and storage answer inside the network, to identities.",
        "set enableEncryptionAtHost; set publicNetworkAccess to Disabled and use a private endpoint",
        "https://learn.microsoft.com/azure/aks/enable-host-encryption",
        Scope.RESOURCE,
        data_is_encrypted,
    ),
    Rule(
        "network-is-closed",
        "No network security group lets the internet in.",
        "name the ranges that may call",
        "https://learn.microsoft.com/azure/virtual-network/network-security-groups-overview",
        Scope.RESOURCE,
        network_is_closed,
    ),
    Rule(
        "resources-are-tagged",
        f"Everything with a location has the tags {', '.join(TAGS)}.",
        "pass the deployment's tags",
        "https://learn.microsoft.com/azure/azure-resource-manager/management/tag-resources",
        Scope.RESOURCE,
        resources_are_tagged,
    ),
)
