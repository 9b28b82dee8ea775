"""Refusal cases of private links, private DNS, identities and roles."""

from dataclasses import replace

from tests.stacks.azure.refusals.planted import Case, Damage, changed, copy_resource
from voice_sandbox.azure.graph import Resource

ENDPOINT, LINK, ZONE_GROUP = "network:PrivateEndpoint", "privatedns:VirtualNetworkLink", "network:PrivateDnsZoneGroup"
CREDENTIAL, GRANT = "managedidentity:FederatedIdentityCredential", "authorization:RoleAssignment"
GROUPS = "privateLinkServiceConnections.0.groupIds"


def depend_on_original(damage: Damage) -> Damage:
    """Make the last resource depend on the one that it copies."""

    def ordered(resources: tuple[Resource, ...]) -> tuple[Resource, ...]:
        *others, last = damage(resources)
        original = last.urn.removesuffix(f"-{last.name}")
        return (*others, replace(last, dependencies=(*last.dependencies, original)))

    return ordered


def trust_many(number: int) -> Damage:
    """Make an identity trust several service accounts."""

    def damage(resources: tuple[Resource, ...]) -> tuple[Resource, ...]:
        for each in range(1, number):
            resources = copy_resource(
                CREDENTIAL, "keda-operator", f"more-{each}", subject=f"system:serviceaccount:voice:{each}"
            )(resources)
        return resources

    return damage


SECOND_CREDENTIAL = copy_resource(CREDENTIAL, "keda-operator", "more", subject="other")
CASES = (
    Case("endpoint-subresource", ENDPOINT, "vault", {GROUPS: ["keyvault"]}, {GROUPS: ["vault"]},
         "it must have vault"),
    Case("endpoint-groups", ENDPOINT, "vault", {GROUPS: ["vault", "vault"]}, {GROUPS: ["vault"]}),
    Case("endpoint-of-registry", ENDPOINT, "registry",
         changed("containerregistry:Registry", "registry", sku={"name": "Standard"}), {},
         "the registry's SKU is Standard"),
    Case("linked-twice", LINK, "vault", {"privateZoneName": "privatelink.azurecr.io"},
         {"privateZoneName": "privatelink.azurecr.io", "virtualNetwork.id": "/virtualNetworks/other"}),
    Case("endpoint-zone-groups", ZONE_GROUP, "vault", {"privateEndpointName": "production-azure-registry"}),
    Case("credentials-at-once", CREDENTIAL, "keda-operator", SECOND_CREDENTIAL,
         depend_on_original(SECOND_CREDENTIAL), "keda-operator may be written"),
    Case("trusted-twice", CREDENTIAL, "keda-operator", copy_resource(CREDENTIAL, "keda-operator", "more"),
         copy_resource(CREDENTIAL, "keda-operator", "more", subject="other")),
    Case("number-of-credentials", CREDENTIAL, "keda-operator", trust_many(21), trust_many(20), "would have 21"),
    Case("one-audience", CREDENTIAL, "keda-operator", {"audiences": ["api://AzureADTokenExchange", "api://other"]}),
    Case("granted-twice", GRANT, "kubelet-pulls-images", copy_resource(GRANT, "kubelet-pulls-images", "more"),
         copy_resource(GRANT, "kubelet-pulls-images", "more", principalId="other"),
                       "kubelet-pulls-images grants the same"),
    Case("pinned-extension", "kubernetesconfiguration:Extension", "acstor", {"version": "2.1.0"},
         {"version": "2.1.0", "autoUpgradeMinorVersion": False}),
)  # fmt: skip
