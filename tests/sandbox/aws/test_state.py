"""Valkey: endpoints, users with secrets, and sizes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from redis import Redis

from tests.sandbox.aws.samples import att, state
from tests.sandbox.aws.stacks import Deployed
from voice_sandbox.aws.process import LocalAws


@pytest.fixture
def deployed_state(stack: Deployed) -> Deployed:
    names = ("PrimaryEndPoint.Address", "PrimaryEndPoint.Port", "ReaderEndPoint.Address")
    stack.create(state(), Outputs={name.replace(".", ""): {"Value": att("Cache", name)} for name in names})
    return stack


def replication_group(stack: Deployed) -> dict[str, Any]:
    found = stack.client("elasticache").describe_replication_groups(ReplicationGroupId=stack["Cache"])
    shown: dict[str, Any] = found["ReplicationGroups"][0]
    return shown


def test_a_replication_group_has_the_requested_properties(deployed_state: Deployed) -> None:
    shown = replication_group(deployed_state)
    assert (shown["AutomaticFailover"], shown["MultiAZ"], shown["Engine"]) == ("enabled", "enabled", "valkey")
    assert shown["TransitEncryptionEnabled"] is True
    assert shown["AtRestEncryptionEnabled"] is True
    assert shown["UserGroupIds"] == ["callers"]
    assert deployed_state.outputs["PrimaryEndPointAddress"].startswith(f"master.{deployed_state['Cache']}")
    assert deployed_state.outputs["PrimaryEndPointPort"] == "6379"
    members = deployed_state.client("elasticache").describe_cache_clusters()["CacheClusters"]
    assert [item["CacheClusterId"] for item in members] == shown["MemberClusters"]
    assert {item["PreferredAvailabilityZone"] for item in members} == {"us-east-1a", "us-east-1b"}
    for member in members:
        assert member["EngineVersion"] == "8.0"
        assert member["CacheSubnetGroupName"] == deployed_state["Subnets"]
        assert member["CacheParameterGroup"]["CacheParameterGroupName"] == deployed_state["Parameters"]
        assert [item["SecurityGroupId"] for item in member["SecurityGroups"]] == [deployed_state["Group"]]


def test_the_password_is_read_from_the_secret(deployed_state: Deployed) -> None:
    secret = json.loads(
        deployed_state.client("secretsmanager").get_secret_value(SecretId=deployed_state["Secret"])["SecretString"]
    )
    assert secret["username"] == "gateway"
    assert len(secret["password"]) == 40
    (user,) = deployed_state.client("elasticache").describe_users(UserId="gateway")["Users"]
    assert user["Authentication"] == {"Type": "password", "PasswordCount": 1}
    assert user["UserGroupIds"] == ["callers"]
    template = deployed_state.cloudformation.get_template(StackName=deployed_state.name)["TemplateBody"]
    events = deployed_state.cloudformation.describe_stack_events(StackName=deployed_state.name)["StackEvents"]
    assert secret["password"] not in json.dumps([template, events], default=str)


def test_parameters_are_set_and_reset(deployed_state: Deployed) -> None:
    def values() -> dict[str, str]:
        found = deployed_state.client("elasticache").describe_cache_parameters(
            CacheParameterGroupName=deployed_state["Parameters"]
        )
        return {item["ParameterName"]: item["ParameterValue"] for item in found["Parameters"]}

    assert values() == {"maxmemory-policy": "volatile-ttl", "stream-node-max-entries": "100"}
    template = state()
    template["Parameters"]["Properties"]["Properties"] = {"maxmemory-policy": "noeviction"}
    deployed_state.update(template)
    assert values() == {"maxmemory-policy": "noeviction"}


def test_size_users_and_settings_change_in_place(deployed_state: Deployed) -> None:
    before = {name: deployed_state[name] for name in ("Cache", "Users", "Gateway", "Secret")}
    template = state()
    template["Cache"]["Properties"] |= {"ReplicasPerNodeGroup": 2, "SnapshotRetentionLimit": 14, "EngineVersion": "8.1"}
    template["Gateway"]["Properties"]["AccessString"] = "on ~session:* +@all"
    template["Secret"]["Properties"]["Description"] = "changed"
    template["Users"]["Properties"]["UserIds"].append({"Ref": "Second"})
    template["Second"] = json.loads(json.dumps(template["Nobody"]))
    template["Second"]["Properties"] |= {"UserId": "second", "UserName": "second"}
    deployed_state.update(template)
    assert {name: deployed_state[name] for name in before} == before
    shown = replication_group(deployed_state)
    assert (len(shown["MemberClusters"]), shown["SnapshotRetentionLimit"]) == (3, 14)
    cache = deployed_state.client("elasticache")
    assert {item["EngineVersion"] for item in cache.describe_cache_clusters()["CacheClusters"]} == {"8.1"}
    assert cache.describe_users(UserId="gateway")["Users"][0]["AccessString"] == "on ~session:* +@all"
    assert cache.describe_user_groups(UserGroupId="callers")["UserGroups"][0]["UserIds"] == [
        "nobody",
        "gateway",
        "second",
    ]


def test_cluster_mode_has_a_configuration_endpoint_and_all_slots(stack: Deployed) -> None:
    template = state()
    template["Cache"]["Properties"] |= {"NumNodeGroups": 3, "ClusterMode": "enabled"}
    stack.create(template, Outputs={"Endpoint": {"Value": att("Cache", "ConfigurationEndPoint.Address")}})
    assert stack.outputs["Endpoint"].startswith("clustercfg.")
    shards = replication_group(stack)["NodeGroups"]
    assert [item["Slots"] for item in shards] == ["0-5460", "5461-10921", "10922-16383"]
    template["Cache"]["Properties"]["NumNodeGroups"] = 4
    stack.update(template)
    assert len(replication_group(stack)["MemberClusters"]) == 8


def test_a_final_snapshot_is_accepted_if_the_policy_requires_it(stack: Deployed) -> None:
    template = state()
    template["Cache"]["DeletionPolicy"] = "Snapshot"
    stack.create(template)
    name = stack["Cache"]
    stack.delete()
    cache = stack.client("elasticache")
    assert [item["SnapshotName"] for item in cache.describe_snapshots()["Snapshots"]] == [f"{name}-final"]
    cache.delete_snapshot(SnapshotName=f"{name}-final")


def test_a_restored_group_is_new_and_contains_the_snapshot_data(stack: Deployed, stores: Path) -> None:
    """A restore by template is a replacement, which CloudFormation refuses unless the group has another name."""
    template, output = state(), {"Endpoint": {"Value": att("Cache", "PrimaryEndPoint.Address")}}
    template["Cache"]["Properties"] |= {"ReplicationGroupId": "kept", "SnapshotRetentionLimit": 1}
    template["Cache"] |= {"DeletionPolicy": "Snapshot", "UpdateReplacePolicy": "Snapshot"}
    stack.create(template, Outputs=output)
    cache, before = stack.client("elasticache"), stack.outputs["Endpoint"]
    with Redis(unix_socket_path=str(stores / "kept.sock")) as old:
        old.hset("session:7", mapping={"state": "open"})
        cache.create_snapshot(ReplicationGroupId="kept", SnapshotName="then")
        old.hset("session:8", mapping={"state": "open"})
    (automatic,) = cache.describe_snapshots(SnapshotSource="automated")["Snapshots"]
    assert automatic["SnapshotName"].startswith("automatic.kept-")
    cache.copy_snapshot(SourceSnapshotName="then", TargetSnapshotName="copied")

    template["Cache"]["Properties"]["SnapshotName"] = "copied"
    assert stack.try_update(template, Outputs=output) == "UPDATE_ROLLBACK_COMPLETE"
    assert any("Rename kept and update the stack again" in reason for reason in stack.reasons)
    template["Cache"]["Properties"]["ReplicationGroupId"] = "kept-2"
    stack.update(template, Outputs=output)
    assert stack.outputs["Endpoint"] != before
    groups = [group["ReplicationGroupId"] for group in cache.describe_replication_groups()["ReplicationGroups"]]
    assert groups == ["kept-2"]
    with Redis(unix_socket_path=str(stores / "kept-2.sock")) as new:
        assert new.hgetall("session:7") == {b"state": b"open"}
        assert not new.exists("session:8")
    # The final snapshot of the old group exists; its automatic snapshots were deleted with it.
    names = {found["SnapshotName"] for found in cache.describe_snapshots(SnapshotSource="manual")["Snapshots"]}
    assert names == {"then", "copied", "kept-final"}
    assert not cache.describe_snapshots(ReplicationGroupId="kept-2", SnapshotSource="automated")["Snapshots"][1:]

    template["Cache"]["Properties"] |= {"ReplicationGroupId": "kept-3", "SnapshotName": "missing"}
    assert stack.try_update(template, Outputs=output) == "UPDATE_ROLLBACK_COMPLETE"
    template["Cache"]["Properties"] |= {"SnapshotName": "then", "EngineVersion": "7.2"}
    assert stack.try_update(template, Outputs=output) == "UPDATE_ROLLBACK_COMPLETE"
    assert any("7.2 is lower than its 8.0" in reason for reason in stack.reasons)
    stack.delete()
    for found in cache.describe_snapshots()["Snapshots"]:
        cache.delete_snapshot(SnapshotName=found["SnapshotName"])


def test_no_state_resource_remains(deployed_state: Deployed, aws: LocalAws) -> None:
    deployed_state.delete()
    cache = aws.client("elasticache")
    assert not cache.describe_replication_groups()["ReplicationGroups"]
    assert not cache.describe_cache_clusters()["CacheClusters"]
    assert not cache.describe_user_groups()["UserGroups"]
    assert [item["UserId"] for item in cache.describe_users()["Users"]] == ["default"]
    assert not cache.describe_cache_subnet_groups()["CacheSubnetGroups"]
    assert not cache.describe_cache_parameter_groups()["CacheParameterGroups"]
    assert not aws.client("secretsmanager").list_secrets()["SecretList"]


def test_a_failover_changes_the_primary_but_not_its_address(deployed_state: Deployed) -> None:
    before = replication_group(deployed_state)["NodeGroups"][0]
    client = deployed_state.client("elasticache")
    client.test_failover(ReplicationGroupId=deployed_state["Cache"], NodeGroupId=before["NodeGroupId"])
    after = replication_group(deployed_state)["NodeGroups"][0]
    assert after["PrimaryEndpoint"] == before["PrimaryEndpoint"]
    roles = [[node["CurrentRole"] for node in group["NodeGroupMembers"]] for group in (before, after)]
    assert roles[0] == ["primary", *["replica"] * (len(roles[0]) - 1)]
    assert roles[1][:2] == ["replica", "primary"]
    client.decrease_replica_count(ReplicationGroupId=deployed_state["Cache"], NewReplicaCount=0, ApplyImmediately=True)
    with pytest.raises(ClientError, match="must have automatic failover enabled"):
        client.test_failover(ReplicationGroupId=deployed_state["Cache"], NodeGroupId=before["NodeGroupId"])
