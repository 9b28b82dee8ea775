"""Rejections for private endpoints, private DNS, federated credentials and role assignments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from voice_sandbox.azure.refusals.request import Request, RequestPart
from voice_sandbox.azure.refusals.row import BAD_REQUEST, RejectionRule, evaluate_each
from voice_sandbox.azure.refusals.sources import AZURERM_FILES, AZURERM_URL, LEARN_URL

ENDPOINT, LINK = "network:PrivateEndpoint", "privatedns:VirtualNetworkLink"
ZONE_GROUP, CREDENTIAL = "network:PrivateDnsZoneGroup", "managedidentity:FederatedIdentityCredential"
GRANT, EXTENSION = "authorization:RoleAssignment", "kubernetesconfiguration:Extension"
_SUBRESOURCES_BY_TYPE: Mapping[str, str] = {
    "microsoft.cache/redisenterprise": "redisEnterprise",
    "microsoft.containerregistry/registries": "registry",
    "microsoft.dashboard/grafana": "grafana",
    "microsoft.keyvault/vaults": "vault",
}
"""https://learn.microsoft.com/azure/private-link/private-endpoint-overview#private-link-resource"""
_CONNECTIONS_PATH = "privateLinkServiceConnections"
_MAX_CREDENTIALS = 20


def _find_subresource_problems(connection: RequestPart) -> Iterator[str]:
    target = connection.get_text("privateLinkServiceId").lower().partition("/providers/")[2]
    expected = _SUBRESOURCES_BY_TYPE.get("/".join(target.split("/")[:2]))
    for group in connection.get_texts("groupIds"):
        if expected and group != expected:
            yield f"{connection.to_full_path('groupIds')} has {group}; it must have {expected}"


def _find_group_id_problems(connection: RequestPart) -> Iterator[str]:
    groups = connection.get_texts("groupIds")
    if len(groups) != 1:
        yield f"{connection.to_full_path('groupIds')} is {', '.join(groups) or 'empty'}"


def _find_registry_tier_problems(request: Request) -> Iterator[str]:
    for connection in request.body.get_parts(_CONNECTIONS_PATH):
        registry = request.find_by_id("containerregistry:Registry", connection.get_text("privateLinkServiceId"))
        if registry and registry.get_text("sku.name") != "Premium":
            yield f"the registry's SKU is {registry.get_text('sku.name')}"


def _find_duplicate_zone_problems(request: Request) -> Iterator[str]:
    """Yield zones whose names are already linked to the network. A network can use only one zone with each name."""
    zone, network = request.body.get_text("privateZoneName").lower(), request.body.get_text("virtualNetwork.id").lower()
    for _, link in request.iter_existing_resources(LINK):
        other = link.get_text("privateZoneName").lower()
        if network and network == link.get_text("virtualNetwork.id").lower() and zone == other:
            yield f"the network is linked to {zone} already"


def _find_zone_group_problems(request: Request) -> Iterator[str]:
    for _, group in request.iter_existing_resources(ZONE_GROUP):
        if group.get_text("privateEndpointName") == request.body.get_text("privateEndpointName"):
            endpoint, name = group.get_text("privateEndpointName"), group.get_text("privateDnsZoneGroupName")
            yield f"endpoint {endpoint} has group {name}"


def _iter_sibling_credentials(request: Request) -> Iterator[tuple[str, RequestPart]]:
    for resource, credential in request.iter_existing_resources(CREDENTIAL):
        if credential.get_text("resourceName") == request.body.get_text("resourceName"):
            yield resource.urn, credential


def _find_concurrent_write_problems(request: Request) -> Iterator[str]:
    for urn, credential in _iter_sibling_credentials(request):
        if urn not in request.dependencies:
            yield f"{credential.get_text('federatedIdentityCredentialResourceName')} may be written concurrently"


def _find_duplicate_credential_problems(request: Request) -> Iterator[str]:
    subject = (request.body.get_text("issuer"), request.body.get_text("subject"))
    for _, credential in _iter_sibling_credentials(request):
        if subject == (credential.get_text("issuer"), credential.get_text("subject")):
            yield f"{credential.get_text('federatedIdentityCredentialResourceName')} trusts {subject[1]} too"


def _find_credential_count_problems(request: Request) -> Iterator[str]:
    count = 1 + sum(1 for _ in _iter_sibling_credentials(request))
    if count > _MAX_CREDENTIALS:
        yield f"{request.body.get_text('resourceName')} would have {count}"


def _find_audience_problems(request: Request) -> Iterator[str]:
    audiences = request.body.get_texts("audiences")
    if len(audiences) != 1:
        yield f"audiences are {', '.join(audiences) or 'missing'}"


def _find_duplicate_grant_problems(request: Request) -> Iterator[str]:
    def build_grant_key(grant: RequestPart) -> tuple[str, ...]:
        return tuple(grant.get_text(name).lower() for name in ("scope", "principalId", "roleDefinitionId"))

    for resource, grant in (*request.iter_existing_resources(GRANT), *request.iter_resources_deleted_later(GRANT)):
        if all(build_grant_key(grant)) and build_grant_key(grant) == build_grant_key(request.body):
            yield f"{resource.name} grants the same role to the same principal on the same resource"


def _find_pinned_version_problems(request: Request) -> Iterator[str]:
    if request.body.get("version") and request.body.get("autoUpgradeMinorVersion") is not False:
        yield f"version is {request.body.get('version')}, and autoUpgradeMinorVersion is not false"


REJECTION_RULES = (
    RejectionRule(
        "endpoint-subresource", ENDPOINT, BAD_REQUEST, "Invalid groupId",
        evaluate_each(_CONNECTIONS_PATH, _find_subresource_problems), "name the service's own subresource",
        f"{AZURERM_URL}/issues/11778",
    ),
    RejectionRule(
        "endpoint-groups", ENDPOINT, "OnlyOneGroupIdPermitted",
        "Only one group Id is permitted when connecting to a first-party resource",
        evaluate_each(_CONNECTIONS_PATH, _find_group_id_problems), "create an endpoint for each subresource",
        "https://github.com/DFE-Digital/terraform-azurerm-container-apps-hosting/issues/352",
    ),
    RejectionRule(
        "endpoint-of-registry", ENDPOINT, BAD_REQUEST, "Private endpoints are available in the Premium service tier",
        _find_registry_tier_problems, "set sku.name of the registry to Premium",
        f"{LEARN_URL}/container-registry/container-registry-private-endpoints",
    ),
    RejectionRule(
        "linked-twice", LINK, BAD_REQUEST,
        "A virtual network cannot be linked to multiple zones with overlapping namespaces",
        _find_duplicate_zone_problems, "use the existing zone (azure.existing.private_dns_zones)",
        "https://github.com/MicrosoftDocs/azure-aks-docs/issues/212",
    ),
    RejectionRule(
        "endpoint-zone-groups", ZONE_GROUP, BAD_REQUEST, "An endpoint has a single private DNS zone group",
        _find_zone_group_problems, "add the zones to one group",
        f"{AZURERM_FILES}/network/private_endpoint_resource.go#L962",
    ),
    RejectionRule(
        "credentials-at-once", CREDENTIAL, "ConcurrentFederatedIdentityCredentialsWritesForSingleManagedIdentity",
        "Concurrent federated identity credentials writes under the same managed identity are not supported",
        _find_concurrent_write_problems, "make each credential depend on the previous one",
        "https://github.com/Azure/bicep/issues/10928",
    ),
    RejectionRule(
        "trusted-twice", CREDENTIAL, BAD_REQUEST,
        "Issuer and subject combination already exists for this Managed Identity",
        _find_duplicate_credential_problems, "trust each service account once", "https://github.com/Azure/bicep-types-az/issues/2029",
    ),
    RejectionRule(
        "number-of-credentials", CREDENTIAL, BAD_REQUEST, "A managed identity has at most 20 federated credentials",
        _find_credential_count_problems, "distribute the service accounts over several identities",
        "https://github.com/Azure/azure-workload-identity/issues/1172",
    ),
    RejectionRule(
        "one-audience", CREDENTIAL, BAD_REQUEST, "A federated credential has a single audience",
        _find_audience_problems, "name api://AzureADTokenExchange alone",
        f"{AZURERM_FILES}/managedidentity/federated_identity_credential_resource.go#L74",
    ),
    RejectionRule(
        "granted-twice", GRANT, "RoleAssignmentExists", "The role assignment already exists",
        _find_duplicate_grant_problems, "assign each role only once per resource", f"{AZURERM_URL}/issues/17421",
    ),
    RejectionRule(
        "pinned-extension", EXTENSION, BAD_REQUEST, "A version must not be supplied with automatic upgrades",
        _find_pinned_version_problems, "set autoUpgradeMinorVersion to false",
        f"{LEARN_URL}/aks/deploy-extensions-az-cli",
    ),
)  # fmt: skip
