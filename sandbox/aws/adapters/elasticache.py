"""ElastiCache: replication groups and what they are made of. No cache runs behind the endpoints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sandbox.aws.adapters.base import Adapter, Properties, only, without


class _ElastiCache(Adapter):
    """Shared by the service's types: tags hang on ARNs that follow from kind and name."""

    service = "elasticache"
    arn_kind: str

    def tag_target(self) -> str:
        """Return the ARN."""
        return f"arn:aws:elasticache:{self.scope.region}:{self.scope.account}:{self.arn_kind}:{self.id}"


class SubnetGroup(_ElastiCache):
    """A subnet group."""

    resource_type = "AWS::ElastiCache::SubnetGroup"
    arn_kind = "subnetgroup"
    name = "CacheSubnetGroupName"
    name_lower = True
    name_limit = 255

    def create(self, properties: Properties) -> str:
        """Create the group."""
        self.call("create_cache_subnet_group", _described(properties, "CacheSubnetGroupDescription"))
        return str(properties["CacheSubnetGroupName"])

    def update(self, new: Properties) -> None:
        """Change description and subnets."""
        self.call("modify_cache_subnet_group", without(_described(new, "CacheSubnetGroupDescription"), "Tags"))

    def delete(self) -> None:
        """Delete the group."""
        self.call("delete_cache_subnet_group", CacheSubnetGroupName=self.id)


def _described(properties: Properties, name: str) -> Properties:
    """Return properties with the description under the API's name for it."""
    return {name if key == "Description" else key: value for key, value in properties.items()}


class ParameterGroup(_ElastiCache):
    """A parameter group with its parameters."""

    resource_type = "AWS::ElastiCache::ParameterGroup"
    arn_kind = "parametergroup"
    name = "CacheParameterGroupName"
    name_lower = True
    name_limit = 255
    replaced_by = frozenset({"CacheParameterGroupFamily", "Description"})

    def create(self, properties: Properties) -> str:
        """Create the group and set its parameters."""
        self.call("create_cache_parameter_group", without(properties, "Properties"))
        name = self.begin(str(properties["CacheParameterGroupName"]))
        self.update(properties)
        return name

    def update(self, new: Properties) -> None:
        """Set the parameters that the template names, reset those that it no longer names."""
        before, after = self.properties.get("Properties", {}), new.get("Properties", {})
        if gone := sorted(before.keys() - after.keys()):
            names = [{"ParameterName": name, "ParameterValue": ""} for name in gone]
            self.call("reset_cache_parameter_group", CacheParameterGroupName=self.id, ParameterNameValues=names)
        if after:
            values = [{"ParameterName": name, "ParameterValue": value} for name, value in after.items()]
            self.call("modify_cache_parameter_group", CacheParameterGroupName=self.id, ParameterNameValues=values)

    def delete(self) -> None:
        """Delete the group."""
        self.call("delete_cache_parameter_group", CacheParameterGroupName=self.id)


class User(_ElastiCache):
    """A user; passwords are taken and not kept readable."""

    resource_type = "AWS::ElastiCache::User"
    arn_kind = "user"
    replaced_by = frozenset({"UserId", "UserName"})
    _changeable = ("AccessString", "AuthenticationMode", "Engine", "NoPasswordRequired", "Passwords")

    def create(self, properties: Properties) -> str:
        """Create the user."""
        self.call("create_user", properties)
        return str(properties["UserId"])

    def update(self, new: Properties) -> None:
        """Change what the user may do and how it signs in."""
        self.call("modify_user", only(new, *self._changeable), UserId=self.id)

    def delete(self) -> None:
        """Delete the user."""
        self.call("delete_user", UserId=self.id)

    def attributes(self) -> Mapping[str, Any]:
        """Return ARN and status."""
        user = self.call("describe_users", UserId=self.id)["Users"][0]
        return {"Arn": user["ARN"], "Status": user["Status"]}


class UserGroup(_ElastiCache):
    """A group of users."""

    resource_type = "AWS::ElastiCache::UserGroup"
    arn_kind = "usergroup"
    replaced_by = frozenset({"UserGroupId"})

    def create(self, properties: Properties) -> str:
        """Create the group."""
        self.call("create_user_group", properties)
        return str(properties["UserGroupId"])

    def update(self, new: Properties) -> None:
        """Add and remove users."""
        before, after = set(self.properties["UserIds"]), set(new["UserIds"])
        moves = {"UserIdsToAdd": sorted(after - before), "UserIdsToRemove": sorted(before - after)}
        given = {name: users for name, users in moves.items() if users}
        self.call("modify_user_group", only(new, "Engine"), given, UserGroupId=self.id)

    def delete(self) -> None:
        """Delete the group."""
        self.call("delete_user_group", UserGroupId=self.id)

    def attributes(self) -> Mapping[str, Any]:
        """Return ARN and status."""
        group = self.call("describe_user_groups", UserGroupId=self.id)["UserGroups"][0]
        return {"Arn": group["ARN"], "Status": group["Status"]}


class ReplicationGroup(_ElastiCache):
    """A replication group, in cluster mode or without."""

    resource_type = "AWS::ElastiCache::ReplicationGroup"
    arn_kind = "replicationgroup"
    name = "ReplicationGroupId"
    name_lower = True
    name_limit = 40
    replaced_by = frozenset(
        {
            "AtRestEncryptionEnabled",
            "CacheSubnetGroupName",
            "DataTieringEnabled",
            "GlobalReplicationGroupId",
            "KmsKeyId",
            "NetworkType",
            "Port",
            "PreferredCacheClusterAZs",
            "SnapshotArns",
            "SnapshotName",
        }
    )
    _resized = ("NumNodeGroups", "ReplicasPerNodeGroup", "NumCacheClusters", "NodeGroupConfiguration")

    def create(self, properties: Properties) -> str:
        """Create the group."""
        self.call("create_replication_group", properties)
        return str(properties["ReplicationGroupId"])

    def update(self, new: Properties) -> None:
        """Change settings, users and size."""
        before, after = set(self.properties.get("UserGroupIds", [])), set(new.get("UserGroupIds", []))
        moves = {"UserGroupIdsToAdd": sorted(after - before), "UserGroupIdsToRemove": sorted(before - after)}
        settings = {
            key: value
            for key, value in without(new, "Tags", "UserGroupIds", "ReplicationGroupId", *self._resized).items()
            if value != self.properties.get(key)
        }
        given = {name: groups for name, groups in moves.items() if groups}
        self.call("modify_replication_group", settings, given, ReplicationGroupId=self.id, ApplyImmediately=True)
        self._resize(new)

    def delete(self) -> None:
        """Delete the group with its members."""
        self.call("delete_replication_group", ReplicationGroupId=self.id)

    def snapshot(self) -> None:
        """Take the snapshot that the deletion policy asks for."""
        name = f"{self.id}-final"
        self.call("create_snapshot", ReplicationGroupId=self.id, SnapshotName=name)

    def attributes(self) -> Mapping[str, Any]:
        """Return the endpoints: one for writers and readers without cluster mode, a configuration endpoint with it."""
        found = self.call("describe_replication_groups", ReplicationGroupId=self.id)["ReplicationGroups"][0]
        result = _endpoint("ConfigurationEndPoint", found.get("ConfigurationEndpoint"))
        if not result and found["NodeGroups"]:
            shard = found["NodeGroups"][0]
            result |= _endpoint("PrimaryEndPoint", shard.get("PrimaryEndpoint"))
            result |= _endpoint("ReaderEndPoint", shard.get("ReaderEndpoint"))
            readers = [item["ReadEndpoint"] for item in shard["NodeGroupMembers"] if "ReadEndpoint" in item]
            result["ReadEndPoint.Addresses"] = ",".join(item["Address"] for item in readers)
            result["ReadEndPoint.Ports"] = ",".join(str(item["Port"]) for item in readers)
        return result

    def _resize(self, new: Properties) -> None:
        if new.get("NumNodeGroups") != self.properties.get("NumNodeGroups"):
            self.call(
                "modify_replication_group_shard_configuration",
                ReplicationGroupId=self.id,
                NodeGroupCount=new["NumNodeGroups"],
                ApplyImmediately=True,
            )
        had, wanted = _replicas(self.properties), _replicas(new)
        if wanted != had:
            verb = "increase" if wanted > had else "decrease"
            self.call(
                f"{verb}_replica_count",
                ReplicationGroupId=self.id,
                NewReplicaCount=wanted,
                ApplyImmediately=True,
            )


def _replicas(properties: Properties) -> int:
    if "ReplicasPerNodeGroup" in properties:
        return int(properties["ReplicasPerNodeGroup"])
    return int(properties.get("NumCacheClusters", 1)) - 1


def _endpoint(name: str, endpoint: Mapping[str, Any] | None) -> dict[str, Any]:
    if not endpoint:
        return {}
    return {f"{name}.Address": endpoint["Address"], f"{name}.Port": str(endpoint["Port"])}
