"""ElastiCache: replication groups and their parameters."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from voice_sandbox.aws.adapters.adapter import Adapter, Properties


class ParameterGroup(Adapter):
    """A parameter group, whose parameters are a map in the template."""

    def configure(self, before: Properties, after: Properties) -> None:
        """Set the template's parameters, and reset those that the template no longer contains."""
        current, desired = before.get("Properties", {}), after.get("Properties", {})
        for operation, values in (
            ("reset_cache_parameter_group", dict.fromkeys(sorted(current.keys() - desired.keys()), "")),
            ("modify_cache_parameter_group", desired if desired != current else {}),
        ):
            if values:
                parameters = [{"ParameterName": name, "ParameterValue": value} for name, value in values.items()]
                self.call_on_resource(operation, after, {"ParameterNameValues": parameters})


class ReplicationGroup(Adapter):
    """A replication group, with or without cluster mode."""

    def configure(self, before: Properties, after: Properties) -> None:
        """Change the numbers of shards and replicas."""
        resized: Properties = {"ReplicationGroupId": self.id, "ApplyImmediately": True}
        if before.get("NumNodeGroups") != after.get("NumNodeGroups"):
            shards = after["NumNodeGroups"]
            self.call("modify_replication_group_shard_configuration", resized, NodeGroupCount=shards)
        current, desired = _get_replica_count(before), _get_replica_count(after)
        if desired != current:
            self.call(
                f"{'increase' if desired > current else 'decrease'}_replica_count", resized, NewReplicaCount=desired
            )

    def take_snapshot(self) -> None:
        """Create the snapshot that the deletion policy requires.

        A later deployment's snapshot does not replace an earlier one.
        """
        name = f"{self.id}-final"
        snapshots = self.call("describe_snapshots", ReplicationGroupId=self.id)["Snapshots"]
        if name in {each["SnapshotName"] for each in snapshots}:
            name = f"{name}-{secrets.token_hex(3)}"
        self.call("create_snapshot", ReplicationGroupId=self.id, SnapshotName=name)

    def get_attributes(self) -> Mapping[str, Any]:
        """Return the configuration endpoint in cluster mode, otherwise the primary and the reader endpoint."""
        group = self.call("describe_replication_groups", ReplicationGroupId=self.id)["ReplicationGroups"][0]
        shard = group["NodeGroups"][0]
        endpoints = (
            {"ConfigurationEndPoint": group["ConfigurationEndpoint"]}
            if group.get("ConfigurationEndpoint")
            else {"PrimaryEndPoint": shard["PrimaryEndpoint"], "ReaderEndPoint": shard["ReaderEndpoint"]}
        )
        return {f"{name}.{part}": str(endpoint[part]) for name, endpoint in endpoints.items() for part in endpoint}


def _get_replica_count(properties: Properties) -> int:
    if "ReplicasPerNodeGroup" in properties:
        return int(properties["ReplicasPerNodeGroup"])
    return int(properties.get("NumCacheClusters", 1)) - 1
