"""Rejections by AKS for a cluster: sign-in, API server, identities, upgrades."""

from __future__ import annotations

import re
from collections.abc import Iterator

from voice_sandbox.azure.refusals.request import Request, RequestPart
from voice_sandbox.azure.refusals.roles import Role, find_principal_ids, is_role_granted
from voice_sandbox.azure.refusals.row import (
    BAD_REQUEST,
    RejectionRule,
    allow_only,
    combine_conditions,
    forbid,
    has_value,
    negate,
    require,
    require_range,
    require_unchanged,
)
from voice_sandbox.azure.refusals.sources import AZURERM_DOCS, AZURERM_FILES, LEARN_URL

CLUSTER, POOL = "containerservice:ManagedCluster", "containerservice:AgentPool"
_AKS_DOCS = f"{LEARN_URL}/aks"
_CLUSTER_SOURCE_URL = f"{AZURERM_FILES}/containers/kubernetes_cluster_resource.go"
_CLUSTER_DOCS = f"{AZURERM_DOCS}/kubernetes_cluster.html.markdown"
_MAX_AUTHORIZED_RANGES = 200
_HAS_MANAGED_ZONE = has_value("apiServerAccessProfile.privateDNSZone", "system", "none", None)
_IS_PRIVATE_CLUSTER = has_value("apiServerAccessProfile.enablePrivateCluster", True)
_IMAGE_CLEANER_PATH = "securityProfile.imageCleaner"
_DURATION_SETTINGS = ("maxNodeProvisionTime", "scaleDownDelayAfterAdd", "scaleDownUnneededTime", "scaleDownUnreadyTime")


def _find_system_pool_problems(request: Request) -> Iterator[str]:
    modes = [pool.get_text("mode") or "no mode" for pool in request.body.get_parts("agentPoolProfiles")]
    if "System" not in modes:
        yield f"agentPoolProfiles have {', '.join(modes) or 'no pool'}"


def _find_authorized_range_problems(request: Request) -> Iterator[str]:
    count = len(request.body.get_texts("apiServerAccessProfile.authorizedIPRanges"))
    if count > _MAX_AUTHORIZED_RANGES:
        yield f"authorizedIPRanges has {count} ranges; it must have at most {_MAX_AUTHORIZED_RANGES}"


def _find_zone_name_problems(request: Request) -> Iterator[str]:
    zone = request.body.get_text("apiServerAccessProfile.privateDNSZone").rpartition("/")[2].lower()
    zone_name = f"privatelink.{request.body.get_text('location')}.azmk8s.io"
    if not _HAS_MANAGED_ZONE(request.body) and zone != zone_name and not zone.endswith(f".{zone_name}"):
        yield f"privateDNSZone is {zone}; it must be {zone_name}, or a zone below it"


def _find_kubelet_role_problems(request: Request) -> Iterator[str]:
    kubelet = request.body.get_text("identityProfile.kubeletidentity.resourceId")
    identities = find_principal_ids(request, request.body.get_texts("identity.userAssignedIdentities"))
    if kubelet and not is_role_granted(request, identities, kubelet, Role.MANAGED_IDENTITY_OPERATOR, Role.CONTRIBUTOR):
        yield f"the control plane's identity has no such role on {kubelet.rpartition('/')[2]} at that time"


def _find_reservation_role_problems(request: Request) -> Iterator[str]:
    group = request.body.get_text("capacityReservationGroupID")
    for _, cluster in request.iter_existing_resources(CLUSTER):
        identities = find_principal_ids(request, cluster.get_texts("identity.userAssignedIdentities"))
        if group and not is_role_granted(request, identities, group, Role.CONTRIBUTOR):
            yield f"the cluster's identity has no such role on {group.rpartition('/')[2]} at that time"


def _find_node_resource_group_problems(request: Request) -> Iterator[str]:
    name = request.body.get_text("nodeResourceGroup").lower()
    for _, group in request.iter_existing_resources("resources:ResourceGroup"):
        if name and group.get_text("resourceGroupName").lower() == name:
            yield f"nodeResourceGroup is {name}, which this deployment creates itself"


def _find_skipped_version_problems(request: Request) -> Iterator[str]:
    if request.previous_body:
        old, new = (
            parse_minor_version(body.get_text("kubernetesVersion")) for body in (request.previous_body, request.body)
        )
        if old and new and new > (old[0], old[1] + 1):
            yield f"kubernetesVersion would go from {old[0]}.{old[1]} to {new[0]}.{new[1]}"


def create_downgrade_rule(name: str, kind: str, path: str, remedy: str) -> RejectionRule:
    """Return the row that rejects an older Kubernetes version at a path."""

    def evaluate(request: Request) -> Iterator[str]:
        if request.previous_body:
            old, new = (parse_minor_version(body.get_text(path)) for body in (request.previous_body, request.body))
            if old and new and new < old:
                full_path = request.body.to_full_path(path)
                yield f"{full_path} would go from {old[0]}.{old[1]} to {new[0]}.{new[1]}"

    return RejectionRule(
        name, kind, "OperationNotAllowed", "Downgrading the Kubernetes version is not allowed",
        evaluate, remedy, "https://github.com/Azure/AKS/issues/2997",
    )  # fmt: skip


def parse_minor_version(version: str) -> tuple[int, int] | None:
    """Return the major and minor version, or `None` for other strings."""
    match = re.match(r"(\d+)\.(\d+)", version)
    return (int(match[1]), int(match[2])) if match else None


def _find_duration_problems(request: Request) -> Iterator[str]:
    for name in _DURATION_SETTINGS:
        value = request.body.get(f"autoScalerProfile.{name}")
        if value is not None and not re.fullmatch(r"\d+m", str(value)):
            yield f'autoScalerProfile.{name} is "{value}"'


def _find_dns_prefix_problems(request: Request) -> Iterator[str]:
    prefix = request.body.get_text("dnsPrefix")
    if prefix and not re.fullmatch(r"[a-zA-Z\d]([-a-zA-Z\d]{0,52}[a-zA-Z\d])?", prefix):
        yield f'dnsPrefix is "{prefix}", of {len(prefix)} characters'


def _has_entra(body: RequestPart) -> bool:
    return combine_conditions(has_value("aadProfile.managed", True), negate(has_value("enableRBAC", False)))(body)


REJECTION_RULES = (
    RejectionRule(
        "cluster-without-system-pool", CLUSTER, BAD_REQUEST, "A cluster requires at least one system node pool",
        _find_system_pool_problems, "set the mode of a pool to System", f"{_AKS_DOCS}/use-system-pools",
    ),
    RejectionRule(
        "local-accounts-off", CLUSTER, BAD_REQUEST,
        "Without local accounts Kubernetes RBAC and Entra integration are required",
        allow_only("disableLocalAccounts", False, when=negate(_has_entra)),
        "set enableRBAC and aadProfile.managed", f"{_CLUSTER_DOCS}#L148",
    ),
    RejectionRule(
        "workload-identity-without-issuer", CLUSTER, BAD_REQUEST, "Workload identity requires the OIDC issuer",
        require("oidcIssuerProfile.enabled", True, when=has_value("securityProfile.workloadIdentity.enabled", True)),
        "set oidcIssuerProfile.enabled", f"{_CLUSTER_SOURCE_URL}#L1890",
    ),
    RejectionRule(
        "issuer-stays", CLUSTER, BAD_REQUEST, "You can't disable OIDC issuer once enabled",
        require_unchanged("oidcIssuerProfile.enabled", once=has_value("oidcIssuerProfile.enabled", True)),
        "keep the issuer enabled", f"{_AKS_DOCS}/use-oidc-issuer",
    ),
    RejectionRule(
        "entra-stays", CLUSTER, BAD_REQUEST,
        "Microsoft Entra integration can't be disabled after it's enabled on a cluster",
        require_unchanged("aadProfile.managed", once=has_value("aadProfile.managed", True)),
        "do not remove aadProfile", f"{_AKS_DOCS}/entra-id-control-plane-authentication",
    ),
    RejectionRule(
        "image-cleaner-interval", CLUSTER, BAD_REQUEST, "Image Cleaner runs every 24 hours to three months",
        require_range(f"{_IMAGE_CLEANER_PATH}.intervalHours", 24, 2160),
        "set intervalHours to 168, a week", f"{_AKS_DOCS}/image-cleaner",
    ),
    RejectionRule(
        "image-cleaner-without-interval", CLUSTER, BAD_REQUEST,
        "Clients other than the Azure CLI must specify the interval",
        require(f"{_IMAGE_CLEANER_PATH}.intervalHours", when=has_value(f"{_IMAGE_CLEANER_PATH}.enabled", True)),
        "set intervalHours to 168, a week", f"{_AKS_DOCS}/image-cleaner",
    ),
    RejectionRule(
        "ranges-of-private-cluster", CLUSTER, BAD_REQUEST, "Authorized IP ranges can't be used with private clusters",
        forbid("apiServerAccessProfile.authorizedIPRanges", when=_IS_PRIVATE_CLUSTER),
        "remove the ranges, or make the API server public",
        f"{_AKS_DOCS}/api-server-authorized-ip-ranges#limitations-and-considerations",
    ),
    RejectionRule(
        "number-of-ranges", CLUSTER, BAD_REQUEST, "You can specify up to 200 authorized IP ranges",
        _find_authorized_range_problems, "join ranges of azure.access.authorized_ranges",
        f"{_AKS_DOCS}/api-server-authorized-ip-ranges#limitations-and-considerations",
    ),
    RejectionRule(
        "zone-of-api-server", CLUSTER, BAD_REQUEST, "The private DNS zone must be named privatelink.<region>.azmk8s.io",
        _find_zone_name_problems, "specify such a zone, or let AKS create one", f"{_AKS_DOCS}/private-clusters",
    ),
    RejectionRule(
        "zone-with-system-identity", CLUSTER, BAD_REQUEST,
        "A custom private DNS zone requires a user-assigned identity",
        allow_only("identity.type", "UserAssigned", when=negate(_HAS_MANAGED_ZONE)),
        "set identity.type to UserAssigned", f"{_AKS_DOCS}/private-clusters",
    ),
    RejectionRule(
        "kubelet-identity-role", CLUSTER, BAD_REQUEST,
        "The control plane's identity must be Managed Identity Operator on the kubelet's",
        _find_kubelet_role_problems, "grant the role, and make the cluster depend on the role assignment",
        "https://github.com/pulumi/pulumi-azure-native/issues/2020",
    ),
    RejectionRule(
        "reservation-role", POOL, BAD_REQUEST,
        "The cluster's identity must be Contributor on the capacity reservation group",
        _find_reservation_role_problems, "grant the role, and make the pool depend on the role assignment",
        f"{_AKS_DOCS}/use-capacity-reservation-groups",
    ),
    RejectionRule(
        "node-group-exists", CLUSTER, BAD_REQUEST, "The node resource group must not exist yet",
        _find_node_resource_group_problems, "choose another name for nodeResourceGroup", f"{_AKS_DOCS}/faq",
    ),
    RejectionRule(
        "node-image-channel", CLUSTER, BAD_REQUEST,
        "With the channel node-image, nodes can only be upgraded by NodeImage",
        allow_only(
            "autoUpgradeProfile.nodeOSUpgradeChannel", "NodeImage",
            when=has_value("autoUpgradeProfile.upgradeChannel", "node-image"),
        ),
        "set nodeOSUpgradeChannel to NodeImage", f"{_CLUSTER_SOURCE_URL}#L1919",
    ),
    RejectionRule(
        "skipped-version", CLUSTER, BAD_REQUEST, "You can't skip Kubernetes minor versions",
        _find_skipped_version_problems, "upgrade by one minor version at a time",
        f"{_AKS_DOCS}/upgrade-aks-control-plane#kubernetes-version-upgrade-rules",
    ),
    create_downgrade_rule(
        "version-downgrade", CLUSTER, "kubernetesVersion",
        "revert azure.kubernetes_version, or deploy a copy of the file with another name and the older version",
    ),
    RejectionRule(
        "autoscaler-times", CLUSTER, BAD_REQUEST, "Values must be an integer followed by an 'm'",
        _find_duration_problems, "write minutes, such as 20m",
        "https://learn.microsoft.com/rest/api/aks/managed-clusters/create-or-update",
    ),
    RejectionRule(
        "dns-prefix", CLUSTER, BAD_REQUEST,
        "A DNS prefix has 1 to 54 letters, digits and hyphens, with no hyphen at its ends",
        _find_dns_prefix_problems, "shorten the deployment's name",
        f"{AZURERM_FILES}/containers/validate/kubernetes.go#L26-L32",
    ),
)  # fmt: skip
