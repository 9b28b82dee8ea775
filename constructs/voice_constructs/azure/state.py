"""The state store: Azure Managed Redis, which each tier signs in to with its own identity."""

from collections.abc import Mapping

import pulumi
from pulumi_azure_native import redisenterprise as redis

from blueprint.azure import names as azure_names
from blueprint.azure.contract import REDIS, Component
from blueprint.file.model.azure_callers import ManagedRedis
from voice_constructs.azure.identity import Identity
from voice_constructs.azure.network import VoiceNetwork
from voice_constructs.azure.private_link import PrivateLink
from voice_constructs.azure.scope import Scope

DATABASE = "default"
"""The one database that a store has, and the one access policy: every command that Azure allows, on every key.
https://learn.microsoft.com/azure/redis/entra-for-authentication"""


class StateStore(pulumi.ComponentResource):
    """Two nodes with TLS and without keys to sign in with; it answers inside the network only.

    One shard without clusters, as its clients are not told of others; Azure makes those up to 25 GB. Nothing is
    persisted: what it holds expires with its session.

    Attributes:
        host: Where it answers.
    """

    def __init__(
        self,
        name: str,
        *,
        scope: Scope,
        network: VoiceNetwork,
        settings: ManagedRedis,
        users: Mapping[Component, Identity],
    ) -> None:
        super().__init__("voice:azure:StateStore", name)
        child = pulumi.ResourceOptions(parent=self)
        store = redis.RedisEnterprise(
            name,
            resource_group_name=scope.group,
            cluster_name=azure_names.state_store(scope.deployment, scope.subscription),
            location=scope.location,
            sku=redis.SkuArgs(name=settings.sku),
            high_availability=redis.HighAvailability.ENABLED,
            minimum_tls_version=redis.TlsVersion.TLS_VERSION_1_2,
            public_network_access=redis.PublicNetworkAccess.DISABLED,
            tags=scope.tags,
            opts=scope.retention.serving(parent=self),
        )
        database = redis.Database(
            name,
            resource_group_name=scope.group,
            cluster_name=store.name,
            database_name=DATABASE,
            port=REDIS.number,
            client_protocol=redis.Protocol.ENCRYPTED,
            clustering_policy=redis.ClusteringPolicy.NO_CLUSTER,
            eviction_policy=redis.EvictionPolicy.NO_EVICTION,
            access_keys_authentication=redis.AccessKeysAuthentication.DISABLED,
            opts=scope.retention.serving(parent=self),
        )
        link = PrivateLink(
            name,
            scope=scope,
            at=network,
            target=store.id,
            subresource="redisEnterprise",
            zone="privatelink.redis.azure.net",
            parent=self,
        )
        before: list[pulumi.Resource] = [link]
        for tier, identity in users.items():
            # Azure changes one thing of a store at a time.
            before = [
                redis.AccessPolicyAssignment(
                    f"{tier}-uses-state",
                    resource_group_name=scope.group,
                    cluster_name=store.name,
                    database_name=database.name,
                    access_policy_assignment_name=tier.value,
                    access_policy_name=DATABASE,
                    user=redis.AccessPolicyAssignmentPropertiesUserArgs(object_id=identity.principal_id),
                    opts=pulumi.ResourceOptions.merge(child, pulumi.ResourceOptions(depends_on=before)),
                )
            ]
        self.host: pulumi.Output[str] = store.host_name
        self.register_outputs({})
