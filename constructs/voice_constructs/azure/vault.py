"""The key vault."""

import pulumi
from pulumi_azure_native import keyvault

from voice_blueprint.azure import names as azure_names
from voice_blueprint.file.model.azure import VAULT_DNS_ZONE
from voice_constructs.azure.network import VoiceNetwork
from voice_constructs.azure.private_link import PrivateLink
from voice_constructs.azure.scope import Scope

_SOFT_DELETE_DAYS = 90
"""Time for which a deleted secret can be restored. This is Azure's maximum."""


class SecretVault(pulumi.ComponentResource):
    """A vault for secrets, such as a token for gated models. It is only accessible from the network.

    Only roles grant permissions; there are no access policies.

    Attributes:
        id: Resource id, for role assignments.
        name: Name.
        uri: URI.
    """

    def __init__(self, name: str, *, scope: Scope, network: VoiceNetwork) -> None:
        super().__init__("voice:azure:SecretVault", name)
        vault = keyvault.Vault(
            name,
            resource_group_name=scope.group,
            vault_name=azure_names.build_vault_name(scope.deployment, scope.subscription),
            location=scope.location,
            properties=keyvault.VaultPropertiesArgs(
                tenant_id=scope.tenant,
                sku=keyvault.SkuArgs(family=keyvault.SkuFamily.A, name=keyvault.SkuName.STANDARD),
                enable_rbac_authorization=True,
                enable_soft_delete=True,
                soft_delete_retention_in_days=_SOFT_DELETE_DAYS,
                # Purge protection cannot be disabled again, and Azure rejects an explicit false.
                enable_purge_protection=True if scope.retention.is_retained else None,
                public_network_access="Disabled",
                network_acls=keyvault.NetworkRuleSetArgs(
                    bypass=keyvault.NetworkRuleBypassOptions.NONE, default_action=keyvault.NetworkRuleAction.DENY
                ),
            ),
            tags=scope.tags,
            opts=scope.retention.create_data_options(parent=self),
        )
        PrivateLink(
            name,
            scope=scope,
            at=network,
            service_id=vault.id,
            subresource="vault",
            zone=VAULT_DNS_ZONE,
            parent=self,
        )
        self.id: pulumi.Output[str] = vault.id
        self.name = vault.name
        self.uri: pulumi.Output[str | None] = vault.properties.apply(lambda properties: properties.vault_uri)
        self.register_outputs({})
