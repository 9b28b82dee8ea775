"""The state store: Azure Managed Redis, to which each tier signs in with its own identity."""

from collections.abc import Mapping

import pulumi
from pulumi_azure_native import redisenterprise as redis

from voice_blueprint.azure import names as azure_names
from voice_blueprint.azure.contract import REDIS, Component
from voice_blueprint.file.model.azure import STATE_STORE_DNS_ZONE
from voice_blueprint.file.model.azure_callers import ManagedRedis
from voice_constructs.azure.identity import Identity
from voice_constructs.azure.network import VoiceNetwork
from voice_constructs.azure.private_link import PrivateLink
from voice_constructs.azure.scope import Scope

DATABASE_NAME = "default"
"""Name of the only database of a store, and of the only access policy, which allows every permitted command on every
key. https://learn.microsoft.com/azure/redis/entra-for-authentication"""


class StateStore(pulumi.ComponentResource):
    """A store on two nodes with TLS and without access keys. It is only accessible from the network.

    The store has one shard without clustering, since its clients do not support clusters. Azure offers this for sizes
    up to 25 GB. The data is not persisted, since it expires with its session.

    Attributes:
        id: Resource id.
        host: Host name.
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
            cluster_name=azure_names.build_state_store_name(scope.deployment, scope.subscription),
            location=scope.location,
            sku=redis.SkuArgs(name=settings.sku),
            high_availability=redis.HighAvailability.ENABLED,
            minimum_tls_version=redis.TlsVersion.TLS_VERSION_1_2,
            public_network_access=redis.PublicNetworkAccess.DISABLED,
            tags=scope.tags,
            opts=scope.retention.create_serving_options(parent=self),
        )
        database = redis.Database(
            name,
            resource_group_name=scope.group,
            cluster_name=store.name,
            database_name=DATABASE_NAME,
            port=REDIS.number,
            client_protocol=redis.Protocol.ENCRYPTED,
            clustering_policy=redis.ClusteringPolicy.NO_CLUSTER,
            eviction_policy=redis.EvictionPolicy.NO_EVICTION,
            access_keys_authentication=redis.AccessKeysAuthentication.DISABLED,
            opts=scope.retention.create_serving_options(parent=self),
        )
        link = PrivateLink(
            name,
            scope=scope,
            at=network,
            service_id=store.id,
            subresource="redisEnterprise",
            zone=STATE_STORE_DNS_ZONE,
            parent=self,
        )
        before: list[pulumi.Resource] = [link]
        for tier, identity in users.items():
            # Azure applies one change to a store at a time.
            before = [
                redis.AccessPolicyAssignment(
                    f"{tier}-uses-state",
                    resource_group_name=scope.group,
                    cluster_name=store.name,
                    database_name=database.name,
                    access_policy_assignment_name=tier.value,
                    access_policy_name=DATABASE_NAME,
                    user=redis.AccessPolicyAssignmentPropertiesUserArgs(object_id=identity.principal_id),
                    opts=pulumi.ResourceOptions.merge(child, pulumi.ResourceOptions(depends_on=before)),
                )
            ]
        self.id: pulumi.Output[str] = store.id
        self.host: pulumi.Output[str] = store.host_name
        self.register_outputs({})
