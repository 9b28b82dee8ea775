"""Rejections for private endpoints, private DNS, federated credentials and role assignments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from voice_sandbox.azure.refusals.request import Part, Request
from voice_sandbox.azure.refusals.row import BAD, Refusal, for_each
from voice_sandbox.azure.refusals.sources import AZURERM, AZURERM_FILES, LEARN

ENDPOINT, LINK = "network:PrivateEndpoint", "privatedns:VirtualNetworkLink"
ZONE_GROUP, CREDENTIAL = "network:PrivateDnsZoneGroup", "managedidentity:FederatedIdentityCredential"
GRANT, EXTENSION = "authorization:RoleAssignment", "kubernetesconfiguration:Extension"
_SUBRESOURCES: Mapping[str, str] = {
    "microsoft.cache/redisenterprise": "redisEnterprise",
    "microsoft.containerregistry/registries": "registry",
    "microsoft.dashboard/grafana": "grafana",
    "microsoft.keyvault/vaults": "vault",
}
"""https://learn.microsoft.com/azure/private-link/private-endpoint-overview#private-link-resource"""
_CONNECTIONS = "privateLinkServiceConnections"
_MAX_CREDENTIALS = 20


def _subresource_problems(connection: Part) -> Iterator[str]:
    target = connection.text("privateLinkServiceId").lower().partition("/providers/")[2]
    expected = _SUBRESOURCES.get("/".join(target.split("/")[:2]))
    for group in connection.texts("groupIds"):
        if expected and group != expected:
            yield f"{connection.path_to('groupIds')} has {group}; it must have {expected}"


def _group_problems(connection: Part) -> Iterator[str]:
    groups = connection.texts("groupIds")
    if len(groups) != 1:
        yield f"{connection.path_to('groupIds')} is {', '.join(groups) or 'empty'}"


def _registry_tier_problems(request: Request) -> Iterator[str]:
    for connection in request.body.parts(_CONNECTIONS):
        registry = request.find_by_id("containerregistry:Registry", connection.text("privateLinkServiceId"))
        if registry and registry.text("sku.name") != "Premium":
            yield f"the registry's SKU is {registry.text('sku.name')}"


def _duplicate_zone_problems(request: Request) -> Iterator[str]:
    """Yield the zones with the same name on a network, which can use only one of them."""
    zone, network = request.body.text("privateZoneName").lower(), request.body.text("virtualNetwork.id").lower()
    for _, link in request.existing_resources(LINK):
        other = link.text("privateZoneName").lower()
        if network and network == link.text("virtualNetwork.id").lower() and zone == other:
            yield f"the network is linked to {zone} already"


def _zone_group_problems(request: Request) -> Iterator[str]:
    for _, group in request.existing_resources(ZONE_GROUP):
        if group.text("privateEndpointName") == request.body.text("privateEndpointName"):
            yield f"endpoint {group.text('privateEndpointName')} has group {group.text('privateDnsZoneGroupName')}"


def _sibling_credentials(request: Request) -> Iterator[tuple[str, Part]]:
    for resource, credential in request.existing_resources(CREDENTIAL):
        if credential.text("resourceName") == request.body.text("resourceName"):
            yield resource.urn, credential


def _concurrent_credential_problems(request: Request) -> Iterator[str]:
    for urn, credential in _sibling_credentials(request):
        if urn not in request.dependencies:
            yield f"{credential.text('federatedIdentityCredentialResourceName')} may be written concurrently"


def _duplicate_credential_problems(request: Request) -> Iterator[str]:
    subject = (request.body.text("issuer"), request.body.text("subject"))
    for _, credential in _sibling_credentials(request):
        if subject == (credential.text("issuer"), credential.text("subject")):
            yield f"{credential.text('federatedIdentityCredentialResourceName')} trusts {subject[1]} too"


def _credential_count_problems(request: Request) -> Iterator[str]:
    count = 1 + sum(1 for _ in _sibling_credentials(request))
    if count > _MAX_CREDENTIALS:
        yield f"{request.body.text('resourceName')} would have {count}"


def _audience_problems(request: Request) -> Iterator[str]:
    audiences = request.body.texts("audiences")
    if len(audiences) != 1:
        yield f"audiences are {', '.join(audiences) or 'missing'}"


def _duplicate_grant_problems(request: Request) -> Iterator[str]:
    def grant_key(grant: Part) -> tuple[str, ...]:
        return tuple(grant.text(name).lower() for name in ("scope", "principalId", "roleDefinitionId"))

    for resource, grant in (*request.existing_resources(GRANT), *request.resources_deleted_later(GRANT)):
        if all(grant_key(grant)) and grant_key(grant) == grant_key(request.body):
            yield f"{resource.name} grants the same role to the same principal on the same resource"


def _pinned_version_problems(request: Request) -> Iterator[str]:
    if request.body.get("version") and request.body.get("autoUpgradeMinorVersion") is not False:
        yield f"version is {request.body.get('version')}, and autoUpgradeMinorVersion is not false"


ROWS = (
    Refusal(
        "endpoint-subresource", ENDPOINT, BAD, "Invalid groupId",
        for_each(_CONNECTIONS, _subresource_problems), "name the service's own subresource", f"{AZURERM}/issues/11778",
    ),
    Refusal(
        "endpoint-groups", ENDPOINT, "OnlyOneGroupIdPermitted",
        "Only one group Id is permitted when connecting to a first-party resource",
        for_each(_CONNECTIONS, _group_problems), "create an endpoint for each subresource",
        "https://github.com/DFE-Digital/terraform-azurerm-container-apps-hosting/issues/352",
    ),
    Refusal(
        "endpoint-of-registry", ENDPOINT, BAD, "Private endpoints are available in the Premium service tier",
        _registry_tier_problems, "set sku.name of the registry to Premium",
        f"{LEARN}/container-registry/container-registry-private-endpoints",
    ),
    Refusal(
        "linked-twice", LINK, BAD, "A virtual network cannot be linked to multiple zones with overlapping namespaces",
        _duplicate_zone_problems, "use the existing zone (azure.existing.private_dns_zones)",
        "https://github.com/MicrosoftDocs/azure-aks-docs/issues/212",
    ),
    Refusal(
        "endpoint-zone-groups", ZONE_GROUP, BAD, "An endpoint has a single private DNS zone group",
        _zone_group_problems, "add the zones to one group",
        f"{AZURERM_FILES}/network/private_endpoint_resource.go#L962",
    ),
    Refusal(
        "credentials-at-once", CREDENTIAL, "ConcurrentFederatedIdentityCredentialsWritesForSingleManagedIdentity",
        "Concurrent federated identity credentials writes under the same managed identity are not supported",
        _concurrent_credential_problems, "make each credential depend on the previous one",
        "https://github.com/Azure/bicep/issues/10928",
    ),
    Refusal(
        "trusted-twice", CREDENTIAL, BAD, "Issuer and subject combination already exists for this Managed Identity",
        _duplicate_credential_problems, "trust each service account once", "https://github.com/Azure/bicep-types-az/issues/2029",
    ),
    Refusal(
        "number-of-credentials", CREDENTIAL, BAD, "A managed identity has at most 20 federated credentials",
        _credential_count_problems, "distribute the service accounts over several identities",
        "https://github.com/Azure/azure-workload-identity/issues/1172",
    ),
    Refusal(
        "one-audience", CREDENTIAL, BAD, "A federated credential has a single audience",
        _audience_problems, "name api://AzureADTokenExchange alone",
        f"{AZURERM_FILES}/managedidentity/federated_identity_credential_resource.go#L74",
    ),
    Refusal(
        "granted-twice", GRANT, "RoleAssignmentExists", "The role assignment already exists",
        _duplicate_grant_problems, "assign each role only once per resource", f"{AZURERM}/issues/17421",
    ),
    Refusal(
        "pinned-extension", EXTENSION, BAD, "A version must not be supplied with automatic upgrades",
        _pinned_version_problems, "set autoUpgradeMinorVersion to false", f"{LEARN}/aks/deploy-extensions-az-cli",
    ),
)  # fmt: skip
