"""The container registry."""

import pulumi
from pulumi_azure_native import containerregistry as acr

from voice_blueprint.azure import names as azure_names
from voice_blueprint.azure.names import ResourceId
from voice_blueprint.file.model.azure import REGISTRY_DNS_ZONE
from voice_constructs.azure.network import VoiceNetwork
from voice_constructs.azure.private_link import PrivateLink
from voice_constructs.azure.scope import Scope

UNTAGGED_RETENTION_DAYS = 90
"""Retention of untagged images. Running images keep their tags, so an image that has been untagged for a quarter is a
replaced build."""


class ImageRegistry(pulumi.ComponentResource):
    """An existing registry, or a new one that is only accessible from the virtual network and with an identity.

    The Premium SKU is required for private endpoints. Layers are encrypted with Microsoft-managed keys, as in every
    registry.

    Attributes:
        id: Resource id, for pull permissions.
        is_managed: Whether this deployment created the registry, its push permissions and its audit log.
        name: Name.
        login_server: Host part of the registry's image references.
    """

    def __init__(self, name: str, *, scope: Scope, network: VoiceNetwork) -> None:
        super().__init__("voice:azure:ImageRegistry", name)
        self.is_managed = scope.deployment.azure.existing.registry_id is None
        self.id: pulumi.Input[str]
        self.name: pulumi.Input[str]
        self.login_server: pulumi.Input[str]
        if existing := scope.deployment.azure.existing.registry_id:
            self.id, self.name = existing, ResourceId.parse(existing).name
            self.login_server = f"{self.name.lower()}.azurecr.io"
        else:
            registry = self._build_registry(name, scope, network)
            self.id, self.name, self.login_server = registry.id, registry.name, registry.login_server
        self.register_outputs({})

    def _build_registry(self, name: str, scope: Scope, network: VoiceNetwork) -> acr.Registry:
        registry = acr.Registry(
            name,
            resource_group_name=scope.group,
            registry_name=azure_names.build_registry_name(scope.deployment, scope.subscription),
            location=scope.location,
            sku=acr.SkuArgs(name=acr.SkuName.PREMIUM),
            admin_user_enabled=False,
            anonymous_pull_enabled=False,
            public_network_access=acr.PublicNetworkAccess.DISABLED,
            # This allows `az acr import` to copy images from other registries, with the caller's identity.
            network_rule_bypass_options=acr.NetworkRuleBypassOptions.AZURE_SERVICES,
            zone_redundancy=_get_zone_redundancy(scope),
            policies=acr.PoliciesArgs(
                # Images can only be pulled, not exported to another registry.
                export_policy=acr.ExportPolicyArgs(status=acr.ExportPolicyStatus.DISABLED),
                retention_policy=acr.RetentionPolicyArgs(status=acr.PolicyStatus.ENABLED, days=UNTAGGED_RETENTION_DAYS),
            ),
            tags=scope.tags,
            opts=scope.retention.create_data_options(parent=self),
        )
        PrivateLink(
            name,
            scope=scope,
            at=network,
            service_id=registry.id,
            subresource="registry",
            zone=REGISTRY_DNS_ZONE,
            parent=self,
        )
        return registry


def _get_zone_redundancy(scope: Scope) -> acr.ZoneRedundancy:
    has_zones = len(scope.deployment.azure.availability_zones) > 1
    return acr.ZoneRedundancy.ENABLED if has_zones else acr.ZoneRedundancy.DISABLED
