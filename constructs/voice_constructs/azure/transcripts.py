"""The archive of transcripts: a storage account with one container, which the gateway's identity writes to."""

import pulumi
from pulumi_azure_native import storage

from voice_blueprint.azure import names as azure_names
from voice_blueprint.file.model.azure import ARCHIVE_DNS_ZONE
from voice_constructs.azure.network import VoiceNetwork
from voice_constructs.azure.private_link import PrivateLink
from voice_constructs.azure.scope import Scope

CONTAINER_NAME = "transcripts"


class TranscriptArchive(pulumi.ComponentResource):
    """A storage account without keys, which is only accessible from the network. Deletions are final.

    Attributes:
        url: URL of the container.
        container_id: Id of the container, for role assignments.
    """

    def __init__(self, name: str, *, scope: Scope, network: VoiceNetwork, retention_days: int) -> None:
        super().__init__("voice:azure:TranscriptArchive", name)
        account = storage.StorageAccount(
            name,
            resource_group_name=scope.group,
            account_name=azure_names.build_archive_account_name(scope.deployment, scope.subscription),
            location=scope.location,
            kind=storage.Kind.STORAGE_V2,
            sku=storage.SkuArgs(name=storage.SkuName.STANDARD_ZRS),
            access_tier=storage.AccessTier.HOT,
            allow_blob_public_access=False,
            allow_shared_key_access=False,
            enable_https_traffic_only=True,
            minimum_tls_version=storage.MinimumTlsVersion.TLS1_2,
            public_network_access=storage.PublicNetworkAccess.DISABLED,
            network_rule_set=storage.NetworkRuleSetArgs(
                bypass=storage.Bypass.NONE, default_action=storage.DefaultAction.DENY
            ),
            tags=scope.tags,
            opts=scope.retention.create_data_options(parent=self),
        )
        container = storage.BlobContainer(
            name,
            resource_group_name=scope.group,
            account_name=account.name,
            container_name=CONTAINER_NAME,
            public_access=storage.PublicAccess.NONE,
            opts=scope.retention.create_data_options(parent=self),
        )
        expiry = storage.DateAfterModificationArgs(days_after_modification_greater_than=retention_days)
        storage.ManagementPolicy(
            name,
            resource_group_name=scope.group,
            account_name=account.name,
            management_policy_name="default",  # the only permitted name
            policy=storage.ManagementPolicySchemaArgs(
                rules=[
                    storage.ManagementPolicyRuleArgs(
                        name="expire",
                        enabled=True,
                        type=storage.RuleType.LIFECYCLE,
                        definition=storage.ManagementPolicyDefinitionArgs(
                            actions=storage.ManagementPolicyActionArgs(
                                base_blob=storage.ManagementPolicyBaseBlobArgs(delete=expiry)
                            ),
                            filters=storage.ManagementPolicyFilterArgs(
                                blob_types=["blockBlob"], prefix_match=[f"{CONTAINER_NAME}/"]
                            ),
                        ),
                    )
                ]
            ),
            opts=pulumi.ResourceOptions(parent=self),
        )
        PrivateLink(
            name,
            scope=scope,
            at=network,
            service_id=account.id,
            subresource="blob",
            zone=ARCHIVE_DNS_ZONE,
            parent=self,
        )
        self.container_id: pulumi.Output[str] = container.id
        self.url: pulumi.Output[str] = account.name.apply(
            lambda each: f"https://{each}.blob.core.windows.net/{CONTAINER_NAME}"
        )
        self.register_outputs({})
