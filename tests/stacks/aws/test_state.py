"""The state store and the image repositories."""

import json
from pathlib import Path

import pytest

from tests.nonempty import nonempty
from tests.synthesized import Stack, edited_sandbox, shipped
from voice_blueprint.contract.state import STATE_USERS
from voice_blueprint.hosts import AWS_IMAGES


@pytest.fixture(scope="module")
def state() -> Stack:
    return shipped("production-us-east-1")["state"]


def test_valkey_is_encrypted_replicated_and_requires_tls(state: Stack) -> None:
    group = state.only("ElastiCache::ReplicationGroup")
    assert group["Engine"] == "valkey"
    assert group["TransitEncryptionEnabled"] is True
    assert group["TransitEncryptionMode"] == "required"
    assert group["AtRestEncryptionEnabled"] is True
    assert "Fn::GetAtt" in group["KmsKeyId"]
    assert group["MultiAZEnabled"] is True
    assert group["AutomaticFailoverEnabled"] is True
    assert group["ReplicasPerNodeGroup"] == 2
    assert group["SnapshotRetentionLimit"] == 7


def test_each_tier_has_a_user_with_its_permissions_and_a_secret_password(state: Stack) -> None:
    users = {user["UserName"]: user for user in state.properties("ElastiCache::User")}
    assert set(users) == {"default"} | {access.tier.value for access in STATE_USERS}
    for access in STATE_USERS:
        assert users[access.tier.value]["AccessString"] == access.acl
    passwords = [json.dumps(user["AuthenticationMode"]["Passwords"]) for user in users.values()]
    assert len(set(passwords)) == len(passwords)
    assert all("{{resolve:secretsmanager:" in password for password in passwords)


def test_the_default_user_has_no_permissions(state: Stack) -> None:
    (user,) = [user for user in state.properties("ElastiCache::User") if user["UserName"] == "default"]
    assert user["AccessString"].split()[0] == "off"
    assert "-@all" in user["AccessString"]


def test_secrets_are_generated_and_encrypted_with_the_key_of_the_store(state: Stack) -> None:
    for secret in nonempty(state.properties("SecretsManager::Secret")):
        assert "SecretString" not in secret
        assert secret["GenerateSecretString"]["PasswordLength"] == 48
        assert "Fn::GetAtt" in secret["KmsKeyId"]


def test_deletion_retains_a_snapshot_and_its_key_except_in_a_sandbox(state: Stack) -> None:
    (group,) = state.of_type("ElastiCache::ReplicationGroup").values()
    (key,) = state.of_type("KMS::Key").values()
    assert group["DeletionPolicy"] == group["UpdateReplacePolicy"] == "Snapshot"
    # A key that remains after a failed create would be billed; a later deletion retains it.
    assert (key["DeletionPolicy"], key["UpdateReplacePolicy"]) == ("RetainExceptOnCreate", "Retain")
    sandbox = shipped("sandbox")["state"]
    assert {r["DeletionPolicy"] for r in sandbox.of_type("ElastiCache::ReplicationGroup").values()} == {"Delete"}


def test_a_restored_store_is_a_new_group_and_nothing_of_other_stacks_changes(tmp_path: Path) -> None:
    """CloudFormation creates the new group before deleting the old one, and cannot change an export in use."""
    before, after = shipped("sandbox"), edited_sandbox({"aws.state.restore_from": "lost"}, tmp_path)
    old, new = (stacks["state"].only("ElastiCache::ReplicationGroup") for stacks in (before, after))
    assert "SnapshotName" not in old
    assert new["SnapshotName"] == "lost"
    assert new["ReplicationGroupId"].startswith(old["ReplicationGroupId"] + "-")
    users = [[user["UserId"] for user in stacks["state"].properties("ElastiCache::User")] for stacks in (before, after)]
    assert users[0] == users[1]
    (group,) = before["state"].of_type("ElastiCache::ReplicationGroup")
    parameter = before["state"].only("SSM::Parameter")
    assert parameter["Value"] == {"Fn::GetAtt": [group, "PrimaryEndPoint.Address"]}
    assert group not in json.dumps(before["state"].template.get("Outputs", {}))
    for stack in before.keys() - {"state", "observability"}:
        assert before[stack].template == after[stack].template, stack


def test_every_image_has_a_repository_with_scanning_and_immutable_tags() -> None:
    registry = shipped("production-us-east-1")["registry"]
    repositories = registry.properties("ECR::Repository")
    assert {r["RepositoryName"] for r in repositories} == {f"production-us-east-1/{image}" for image in AWS_IMAGES}
    for repository in repositories:
        assert repository["ImageTagMutability"] == "IMMUTABLE"
        assert repository["ImageScanningConfiguration"]["ScanOnPush"] is True
        assert repository["EncryptionConfiguration"]["EncryptionType"] == "KMS"
