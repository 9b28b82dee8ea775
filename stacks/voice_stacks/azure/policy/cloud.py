"""Rules on Azure's own resources: VM sizes, pools, identity, encryption, exposure, tags."""

import difflib
import math
from collections.abc import Iterator

from voice_blueprint import catalog
from voice_blueprint.azure.contract import Component
from voice_blueprint.azure.names import Role
from voice_blueprint.azure.ranges import are_effectively_public
from voice_blueprint.contract.session_api import MAX_FILE_BYTES
from voice_blueprint.file.model.azure import TopologyPolicy
from voice_stacks.azure.policy.cluster import GPU_TAINT_KEYS, iter_pool_profiles
from voice_stacks.azure.policy.rules import Stack, Violation, rule, stack_rule

REQUIRED_TAGS = ("deployment", "environment", "managed-by")
DISABLED_STATE = "Disabled"
BYTES_PER_MB = 10**6
"""Bytes per MB. Azure does not define the unit; this is the smaller of the two interpretations."""
DEFAULT_MAX_UPLOAD_MB = 100
"""Default upload limit of a web application firewall."""
DEFAULT_MAX_BODY_KB = 128
"""Default limit of a web application firewall for bodies other than ``multipart/form-data``. The maximum is 2 MB,
unless the limit is not enforced."""
DATA_RESOURCE_TYPES = (":Registry", ":Vault", ":StorageAccount", ":RedisEnterprise")
"""Types of resources with data. They have ``publicNetworkAccess`` at one of two locations."""


@rule(
    "vm-size-is-known",
    "The VM size of every node pool, and its quota family, must be in the catalogue.",
    remedy="correct the name, or add the size to voice_blueprint/catalog/vm_sizes.yaml",
    source="https://learn.microsoft.com/azure/virtual-machines/sizes",
)
def check_vm_sizes_are_known(stack: Stack) -> Iterator[Violation]:
    for profile in iter_pool_profiles(stack):
        name = profile.props["vmSize"].text
        if not profile.vm_size:
            close_names = difflib.get_close_matches(name, catalog.vm_sizes(), n=1)
            suggestion = f"; did you mean {close_names[0]}?" if close_names else ""
            yield Violation(
                profile.resource.urn, f'pool {profile.name}: there is no VM size "{name}" in the catalogue{suggestion}'
            )


@rule(
    "pool-fits-its-size",
    "A node pool must not combine spot, reservation, MIG, driver or node-count settings that exclude each other.",
    remedy="change the pool's purchase option or its VM size",
    source="https://learn.microsoft.com/azure/virtual-machines/capacity-reservation-overview",
)
def check_pool_settings_are_compatible(stack: Stack) -> Iterator[Violation]:
    for profile in iter_pool_profiles(stack):
        size, props, urn = profile.vm_size, profile.props, profile.resource.urn
        if size is None:
            continue
        if profile.is_spot and (profile.is_system or props["capacityReservationGroupID"]):
            reason = "a system pool" if profile.is_system else "uses a capacity reservation"
            yield Violation(urn, f"pool {profile.name} is spot and {reason}")
        if size.gpu_count and props["gpuInstanceProfile"]:
            yield Violation(urn, f"pool {profile.name} partitions its GPUs with MIG; engines use whole GPUs")
        if size.gpu_count and props.get("gpuProfile", "driver").text not in {"Install", ""}:
            yield Violation(urn, f"pool {profile.name}: no GPU driver is installed on {size.name}")
        low, high = props["minCount"].number, props["maxCount"].number
        if low is not None and high is not None and low > high:
            yield Violation(urn, f"pool {profile.name} has minCount {low:g} and maxCount {high:g}")


@rule(
    "gpu-pool-is-tainted",
    "Every node pool with GPUs must have a taint that excludes other pods.",
    remedy="add nvidia.com/gpu=present:NoSchedule to nodeTaints",
    source="https://learn.microsoft.com/azure/aks/use-nvidia-gpu",
)
def check_gpu_pools_are_tainted(stack: Stack) -> Iterator[Violation]:
    for profile in iter_pool_profiles(stack):
        keys = {taint.text.partition("=")[0] for taint in profile.props["nodeTaints"]}
        if profile.vm_size and profile.vm_size.gpu_count and not keys & set(GPU_TAINT_KEYS):
            yield Violation(
                profile.resource.urn,
                f"pool {profile.name} has {profile.vm_size.gpu_count} GPU(s) per node and no GPU taint",
            )


@rule(
    "kubelet-policies-align",
    "A topology manager policy must be valid, and requires the static CPU manager policy.",
    remedy="set topologyManagerPolicy: best-effort and cpuManagerPolicy: static",
    source="https://learn.microsoft.com/azure/aks/custom-node-configuration",
)
def check_kubelet_policies_are_valid(stack: Stack) -> Iterator[Violation]:
    for profile in iter_pool_profiles(stack):
        kubelet = profile.props["kubeletConfig"]
        policy, cpus = kubelet["topologyManagerPolicy"].text, kubelet["cpuManagerPolicy"].text
        if policy and policy not in set(TopologyPolicy):
            yield Violation(profile.resource.urn, f'pool {profile.name}: there is no topology policy "{policy}"')
        elif policy not in {"", TopologyPolicy.NONE} and cpus != "static":
            yield Violation(
                profile.resource.urn,
                f"pool {profile.name} has the topology policy {policy} without the static CPU manager policy",
            )


@stack_rule(
    "kubelet-pulls-images",
    "The kubelet's identity must have the role AcrPull on the registry.",
    remedy="assign the role AcrPull on the registry to the identity of identityProfile.kubeletidentity",
    source="https://learn.microsoft.com/azure/aks/cluster-container-registry-integration",
)
def check_kubelet_pulls_images(stack: Stack) -> Iterator[Violation]:
    registries = {registry.urn for registry in stack.find_resources(":Registry")}
    for cluster in stack.find_resources(":ManagedCluster"):
        kubelet = set(cluster.dependencies.get("identityProfile", ()))
        for registry in registries:
            granted = any(
                assignment.props["roleDefinitionId"].text.lower().endswith(Role.ACR_PULL)
                and kubelet & set(assignment.dependencies.get("principalId", ()))
                and registry in assignment.dependencies.get("scope", ())
                for assignment in stack.find_resources(":RoleAssignment")
            )
            if not granted:
                yield Violation(
                    cluster.urn,
                    f"the kubelet's identity of cluster {cluster.name} has no AcrPull on the registry: nodes cannot "
                    "pull images",
                )


@rule(
    "roles-are-narrow",
    "No identity may have the role Owner, or a role on a whole subscription.",
    remedy="grant the narrowest role on the resource itself",
    source="https://learn.microsoft.com/azure/role-based-access-control/best-practices",
)
def check_roles_are_least_privilege(stack: Stack) -> Iterator[Violation]:
    for assignment in stack.find_resources(":RoleAssignment"):
        scope = assignment.props["scope"].text
        if scope.count("/") == 2:  # noqa: PLR2004  /subscriptions/<id>
            yield Violation(assignment.urn, f"{assignment.name} grants a role on the whole subscription")
        if assignment.props["roleDefinitionId"].text.lower().endswith("8e3af657-a8ff-443c-a75c-2fe8c4bcb635"):
            yield Violation(assignment.urn, f"{assignment.name} grants Owner")


@rule(
    "sign-in-is-entra",
    "Clusters must have no local accounts, and must authorize with Azure RBAC.",
    remedy="set disableLocalAccounts, aadProfile and oidcIssuerProfile",
    source="https://learn.microsoft.com/azure/aks/manage-local-accounts-managed-azure-ad",
)
def check_clusters_require_entra(stack: Stack) -> Iterator[Violation]:
    for cluster in stack.find_resources(":ManagedCluster"):
        props, urn = cluster.props, cluster.urn
        if props["disableLocalAccounts"].is_disabled:
            yield Violation(urn, f"cluster {cluster.name} has local accounts, whose certificates cannot be revoked")
        aad = props["aadProfile"]
        if aad["managed"].is_disabled or aad["enableAzureRBAC"].is_disabled:
            yield Violation(urn, f"cluster {cluster.name} does not use Entra groups and Azure RBAC")
        if props.get("oidcIssuerProfile", "enabled").is_disabled:
            yield Violation(urn, f"cluster {cluster.name} has no OIDC issuer, which workload identity requires")


@rule(
    "data-is-closed",
    "Disks must be encrypted at the host; data services must have no public access, keys or anonymous access.",
    remedy="set enableEncryptionAtHost; set publicNetworkAccess to Disabled and use a private endpoint",
    source="https://learn.microsoft.com/azure/aks/enable-host-encryption",
)
def check_data_is_protected(stack: Stack) -> Iterator[Violation]:
    for profile in iter_pool_profiles(stack):
        if profile.props["enableEncryptionAtHost"].is_disabled:
            yield Violation(profile.resource.urn, f"pool {profile.name} does not encrypt caches and temporary disks")
        if profile.props["enableNodePublicIP"].is_enabled:
            yield Violation(profile.resource.urn, f"nodes of pool {profile.name} have public addresses")
    for store in stack.find_resources(*DATA_RESOURCE_TYPES):
        access = store.props["publicNetworkAccess"]
        if access.is_missing:
            access = store.props.get("properties", "publicNetworkAccess")
        if not access.is_unknown and access.text != DISABLED_STATE:
            yield Violation(
                store.urn,
                f"{store.name} is accessible outside the network (publicNetworkAccess {access.text or 'not set'})",
            )
        for flag in ("adminUserEnabled", "anonymousPullEnabled", "allowBlobPublicAccess", "allowSharedKeyAccess"):
            if store.props[flag].is_enabled:
                yield Violation(store.urn, f"{store.name}: {flag} is enabled")
        if store.type.endswith(":Vault") and store.props.get("properties", "enableRbacAuthorization").is_disabled:
            yield Violation(store.urn, f"{store.name} authorizes with access policies instead of Azure RBAC")


@rule(
    "state-store-knows-its-users",
    "The state store must require TLS and Microsoft Entra tokens, with access keys disabled.",
    remedy="set clientProtocol to Encrypted and accessKeysAuthentication to Disabled",
    source="https://learn.microsoft.com/azure/redis/entra-for-authentication",
)
def check_state_store_requires_entra(stack: Stack) -> Iterator[Violation]:
    for database in stack.find_resources("redisenterprise:Database"):
        if database.props["accessKeysAuthentication"].text != DISABLED_STATE:
            yield Violation(database.urn, f"{database.name} accepts access keys, which identify no user")
        if database.props["clientProtocol"].text != "Encrypted":
            yield Violation(database.urn, f"{database.name} accepts connections without TLS")


@stack_rule(
    "edge-is-guarded",
    "Every application gateway must have a web application firewall in Prevention mode, and only TLS listeners.",
    remedy="set firewallPolicy to a policy in Prevention mode, and the listeners' protocol to Https",
    source="https://learn.microsoft.com/azure/web-application-firewall/ag/ag-overview",
)
def check_edge_has_firewall(stack: Stack) -> Iterator[Violation]:
    refusing = {
        policy.urn
        for policy in stack.find_resources(":WebApplicationFirewallPolicy")
        if policy.props.get("policySettings", "mode").text == "Prevention"
        and policy.props.get("policySettings", "state").text != DISABLED_STATE
        and any(policy.props.get("managedRules", "managedRuleSets"))
    }
    for gateway in stack.find_resources(":ApplicationGateway"):
        if not refusing & set(gateway.dependencies.get("firewallPolicy", ())):
            yield Violation(gateway.urn, f"{gateway.name} has no web application firewall in Prevention mode")
        for listener in gateway.props["httpListeners"]:
            if listener["protocol"].text != "Https":
                yield Violation(gateway.urn, f"{gateway.name} has the listener {listener['name'].text} without TLS")


@rule(
    "firewalls-pass-files",
    "Every web application firewall must accept the largest file that the session API accepts.",
    remedy=f"set fileUploadLimitInMb to {math.ceil(MAX_FILE_BYTES / BYTES_PER_MB)} or more, and requestBodyEnforcement "
    "to false",
    source="https://learn.microsoft.com/azure/web-application-firewall/ag/application-gateway-waf-request-size-limits",
)
def check_firewalls_accept_files(stack: Stack) -> Iterator[Violation]:
    for firewall in stack.find_resources(":WebApplicationFirewallPolicy"):
        settings = firewall.props["policySettings"]
        limit_mb = settings["fileUploadLimitInMb"].number or DEFAULT_MAX_UPLOAD_MB
        if settings["fileUploadEnforcement"].raw is not False and limit_mb * BYTES_PER_MB < MAX_FILE_BYTES:
            yield Violation(
                firewall.urn,
                f"{firewall.name} rejects files above {limit_mb:g} MB; callers may send "
                f"{MAX_FILE_BYTES / BYTES_PER_MB:.0f} MB",
            )
        # The upload limit applies to multipart/form-data only. `POST /v1/listen` has the file itself as its body.
        limit_kb = settings["maxRequestBodySizeInKb"].number or DEFAULT_MAX_BODY_KB
        if settings["requestBodyEnforcement"].raw is not False:
            yield Violation(
                firewall.urn,
                f"{firewall.name} rejects request bodies above {limit_kb:g} KB; callers may send files of "
                f"{MAX_FILE_BYTES / BYTES_PER_MB:.0f} MB without multipart/form-data",
            )


@rule(
    "network-is-closed",
    "Network security groups must not allow the internet on ports other than the contract's.",
    remedy="list the address ranges of the callers, or deploy `callers`",
    source="https://learn.microsoft.com/azure/virtual-network/network-security-groups-overview",
)
def check_internet_access_is_limited(stack: Stack) -> Iterator[Violation]:
    called = {(flow.port.protocol, str(flow.port.number)) for flow in stack.flows if flow.source is Component.INTERNET}
    for group in stack.find_resources(":NetworkSecurityGroup", ":SecurityRule"):
        senders: dict[tuple[str, str], set[str]] = {}
        for entry in [*group.props["securityRules"], *([group.props] if group.type.endswith(":SecurityRule") else [])]:
            if entry["direction"].text == "Inbound" and entry["access"].text == "Allow":
                key = (entry["protocol"].text.lower(), entry["destinationPortRange"].text)
                prefixes = {entry["sourceAddressPrefix"].text, *(each.text for each in entry["sourceAddressPrefixes"])}
                senders.setdefault(key, set()).update(prefixes - {""})
        for key, sources in senders.items():
            if are_effectively_public(sources) and key not in called:
                yield Violation(
                    group.urn, f"{group.name} allows {', '.join(sorted(sources))} on port {key[1] or 'several'}"
                )


@rule(
    "resources-are-tagged",
    f"Every Azure resource with a location must have the tags {', '.join(REQUIRED_TAGS)}.",
    remedy="pass the deployment's tags",
    source="https://learn.microsoft.com/azure/azure-resource-manager/management/tag-resources",
)
def check_resources_are_tagged(stack: Stack) -> Iterator[Violation]:
    for resource in stack.resources:
        if resource.type.startswith("azure-native:") and not resource.props["location"].is_missing:
            tags = resource.props["tags"].as_text_dict()
            missing = [tag for tag in REQUIRED_TAGS if not tags.get(tag)]
            if missing:
                yield Violation(resource.urn, f"{resource.name} has no tag {', '.join(missing)}")
