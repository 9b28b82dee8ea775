"""ElastiCache: replication groups with their member clusters, sizes, endpoints, snapshots and deletion.

As in AWS, the engine version, parameter group, subnet group and security groups of a replication group belong to its
member clusters. moto has no member clusters and, without cluster mode, only one replica.
"""

from __future__ import annotations

from copy import copy
from types import SimpleNamespace
from typing import Any

from moto.core.responses import ActionResult
from moto.core.utils import utcnow
from moto.elasticache import urls
from moto.elasticache.exceptions import ElastiCacheException, SnapshotAlreadyExists
from moto.elasticache.models import ReplicationGroup, Snapshot
from moto.elasticache.responses import ElastiCacheResponse

from voice_sandbox.aws.diff import is_older_version
from voice_sandbox.aws.patches import stores
from voice_sandbox.aws.patches.base import replace_response_class, store_parameters
from voice_sandbox.aws.patches.elasticache_groups import ElastiCacheGroupResponse

_HASH_SLOT_COUNT = 16384
_ZONE_SUFFIXES = "abc"


class PatchedElastiCache(ElastiCacheGroupResponse):
    """moto's ElastiCache API, extended with the operations that moto lacks."""

    def create_replication_group(self) -> ActionResult:
        """Handle CreateReplicationGroup; the groups to which the request refers must exist."""
        params = self._get_params()
        for name in params.get("UserGroupIds", []):
            self._find_user_group(name)
        if params.get("CacheSubnetGroupName"):
            self.elasticache_backend.describe_cache_subnet_groups(params["CacheSubnetGroupName"])
        snapshot = params.get("SnapshotName")
        if snapshot:
            self._validate_restorable(snapshot, params.get("EngineVersion"))
        answer = super().create_replication_group()
        group = self._find_replication_group()
        stores.start_server(group.replication_group_id, snapshot)
        if params.get("SnapshotRetentionLimit"):
            name = f"automatic.{group.replication_group_id}-{utcnow():%Y-%m-%d-%H-%M}"
            self._create_snapshot(name, group).snapshot_source = "automated"
        replicas = params.get("ReplicasPerNodeGroup", params.get("NumCacheClusters", 1) - 1)
        self._create_shards(group, params.get("NumNodeGroups", 1), replicas)
        self._link_replication_groups()
        return answer

    def modify_replication_group(self) -> ActionResult:
        params = self._get_params()
        group = self._find_replication_group()
        version = params.get("EngineVersion")
        if version and group.engine_version and is_older_version(version, group.engine_version):
            raise ElastiCacheException(
                "InvalidParameterValue",
                f"Cannot modify engine version from {group.engine_version} to {version}: downgrades are not supported.",
            )
        answer = super().modify_replication_group()
        removed = params.get("UserGroupIdsToRemove", [])
        group.user_group_ids = [
            *(name for name in group.user_group_ids if name not in removed),
            *params.get("UserGroupIdsToAdd", []),
        ]
        store_parameters(
            group,
            params,
            "AutoMinorVersionUpgrade",
            "CacheParameterGroupName",
            "EngineVersion",
            "IpDiscovery",
            "LogDeliveryConfigurations",
            "NotificationTopicArn",
            "PreferredMaintenanceWindow",
            "SecurityGroupIds",
            "SnapshotWindow",
            "TransitEncryptionEnabled",
            "TransitEncryptionMode",
        )
        self._create_shards(group, len(group.node_groups), len(group.node_groups[0]["NodeGroupMembers"]) - 1)
        self._link_replication_groups()
        return answer

    def modify_replication_group_shard_configuration(self) -> ActionResult:
        group = self._find_replication_group()
        replicas = len(group.node_groups[0]["NodeGroupMembers"]) - 1
        self._create_shards(group, self._get_param("NodeGroupCount"), replicas)
        return ActionResult({"ReplicationGroup": group})

    def increase_replica_count(self) -> ActionResult:
        """Handle IncreaseReplicaCount; all shards get the same count."""
        group = self._find_replication_group()
        self._create_shards(group, len(group.node_groups), self._get_param("NewReplicaCount"))
        return ActionResult({"ReplicationGroup": group})

    decrease_replica_count = increase_replica_count

    def test_failover(self) -> ActionResult:
        """Handle TestFailover: the first replica becomes the primary, with the same address."""
        group = self._find_replication_group()
        (shard,) = (each for each in group.node_groups if each["NodeGroupId"] == self._get_param("NodeGroupId"))
        primary, *replicas = sorted(shard["NodeGroupMembers"], key=lambda each: str(each["CurrentRole"]))
        if group.automatic_failover != "enabled" or not replicas:
            raise ElastiCacheException(
                "InvalidReplicationGroupState",
                f"Replication group {group.replication_group_id} must have automatic failover enabled.",
            )
        primary["CurrentRole"], replicas[0]["CurrentRole"] = "replica", "primary"
        stores.fail_over_server(group.replication_group_id)
        return ActionResult({"ReplicationGroup": group})

    def delete_replication_group(self) -> ActionResult:
        """Handle DeleteReplicationGroup; the group is deleted when the call returns."""
        group = self._find_replication_group()
        if self._get_param("FinalSnapshotIdentifier"):
            self._create_snapshot(self._get_param("FinalSnapshotIdentifier"), group)
        stores.stop_server(group.replication_group_id)
        for name, snapshot in list(self.elasticache_backend.snapshots.items()):
            if (snapshot.replication_group_id, snapshot.snapshot_source) == (group.replication_group_id, "automated"):
                del self.elasticache_backend.snapshots[name]
        self._remove_members(group)
        answer = super().delete_replication_group()
        del self.elasticache_backend.replication_groups[group.replication_group_id]
        self._link_replication_groups()
        return answer

    def create_snapshot(self) -> ActionResult:
        """Handle CreateSnapshot; the snapshot is available when the call returns."""
        group = self._find_replication_group() if self._get_param("ReplicationGroupId") else None
        answer = super().create_snapshot()
        if group:
            self._save_data(self.elasticache_backend.snapshots[self._get_param("SnapshotName")], group)
        return answer

    def copy_snapshot(self) -> ActionResult:
        """Handle CopySnapshot within the region."""
        source, name = self._get_param("SourceSnapshotName"), self._get_param("TargetSnapshotName")
        (source_snapshot,) = self.elasticache_backend.describe_snapshots(snapshot_name=source)
        if name in self.elasticache_backend.snapshots:
            raise SnapshotAlreadyExists(name)
        new_snapshot = copy(source_snapshot)
        new_snapshot.snapshot_name, new_snapshot.snapshot_source = name, "manual"
        self.elasticache_backend.snapshots[name] = new_snapshot
        stores.copy_snapshot(source, name)
        return ActionResult({"Snapshot": new_snapshot})

    def _create_snapshot(self, name: str, group: ReplicationGroup) -> Snapshot:
        new_snapshot = self.elasticache_backend.create_snapshot(name, group.replication_group_id, None, None, None)
        self._save_data(new_snapshot, group)
        return new_snapshot

    @staticmethod
    def _save_data(snapshot: Snapshot, group: ReplicationGroup) -> None:
        """Record the snapshot's time, which moto omits, and save the group's data."""
        snapshot.node_snapshots = [{"CacheNodeId": "0001", "SnapshotCreateTime": utcnow()}]  # type: ignore[attr-defined]
        stores.save_snapshot(group.replication_group_id, str(snapshot.snapshot_name))

    def _validate_restorable(self, name: str, version: str | None) -> None:
        (snapshot,) = self.elasticache_backend.describe_snapshots(snapshot_name=name)
        if version and snapshot.engine_version and _parse_version(version) < _parse_version(snapshot.engine_version):
            raise ElastiCacheException(
                "InvalidParameterCombination",
                f"Cannot restore from {name}: engine version {version} is lower than its {snapshot.engine_version}.",
            )

    def _find_replication_group(self) -> ReplicationGroup:
        return self.elasticache_backend.describe_replication_groups(self._get_param("ReplicationGroupId"))[0]

    def _link_replication_groups(self) -> None:
        groups = self.elasticache_backend.replication_groups.values()
        for name, users in self._user_groups.items():
            users["ReplicationGroups"] = [
                group.replication_group_id for group in groups if name in group.user_group_ids
            ]

    def _remove_members(self, group: ReplicationGroup) -> None:
        for name in group.member_clusters:
            self.elasticache_backend.cache_clusters.pop(name, None)

    def _create_shards(self, group: ReplicationGroup, shards: int, replicas: int) -> None:
        """Create the group's shards, each with a primary and replicas that are spread over the zones."""
        name = group.replication_group_id
        group.cluster_enabled = group.cluster_mode == "enabled" or shards > 1
        self._remove_members(group)
        group.member_clusters, group.node_groups = [], []
        domain = f"{name}.sandbox.{self.region}.cache.amazonaws.com"
        for shard in range(shards):
            members = []
            for node in range(replicas + 1):
                infix = f"{shard + 1:04}-" if group.cluster_enabled else ""
                cluster = f"{name}-{infix}{node + 1:03}"
                zone = f"{self.region}{_ZONE_SUFFIXES[(shard + node) % len(_ZONE_SUFFIXES)]}"
                member: dict[str, Any] = {
                    "CacheClusterId": cluster,
                    "CacheNodeId": "0001",
                    "PreferredAvailabilityZone": zone,
                }
                if not group.cluster_enabled:
                    member["CurrentRole"] = "replica" if node else "primary"
                    member["ReadEndpoint"] = {"Address": f"{cluster}.{domain}", "Port": group.port}
                members.append(member)
                group.member_clusters.append(cluster)
                self.elasticache_backend.cache_clusters[cluster] = self._create_member(group, cluster, zone)
            node_group: dict[str, Any] = {
                "NodeGroupId": f"{shard + 1:04}",
                "Status": "available",
                "NodeGroupMembers": members,
            }
            if group.cluster_enabled:
                first, end = _HASH_SLOT_COUNT * shard // shards, _HASH_SLOT_COUNT * (shard + 1) // shards
                node_group["Slots"] = f"{first}-{end - 1}"
            else:
                node_group["PrimaryEndpoint"] = {"Address": f"master.{domain}", "Port": group.port}
                node_group["ReaderEndpoint"] = {"Address": f"replica.{domain}", "Port": group.port}
            group.node_groups.append(node_group)
        if group.cluster_enabled:
            group.cluster_mode = "enabled"
            group.configuration_endpoint = {"Address": f"clustercfg.{domain}", "Port": group.port}

    def _create_member(self, group: ReplicationGroup, name: str, zone: str) -> SimpleNamespace:
        return SimpleNamespace(
            arn=self._build_arn("cluster", name),
            at_rest_encryption_enabled=group.at_rest_encryption_enabled,
            auto_minor_version_upgrade=group.auto_minor_version_upgrade,
            cache_cluster_id=name,
            cache_cluster_status="available",
            cache_node_type=group.cache_node_type,
            cache_parameter_group={"CacheParameterGroupName": group.cache_parameter_group_name},
            cache_subnet_group_name=group.cache_subnet_group_name,
            engine=group.engine,
            engine_version=group.engine_version,
            num_cache_nodes=1,
            preferred_availability_zone=zone,
            preferred_maintenance_window=group.preferred_maintenance_window,
            replication_group_id=group.replication_group_id,
            security_groups=[{"SecurityGroupId": item, "Status": "active"} for item in group.security_group_ids or []],
            snapshot_retention_limit=group.snapshot_retention_limit,
            snapshot_window=group.snapshot_window,
            transit_encryption_enabled=group.transit_encryption_enabled,
            transit_encryption_mode=group.transit_encryption_mode,
        )


def _parse_version(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def install() -> None:
    """Install the patch."""
    replace_response_class(urls, ElastiCacheResponse, PatchedElastiCache)
