"""The real CDK upgrades the last release to the current one on a local AWS."""

from pathlib import Path

import pytest
from redis import Redis

import voice_blueprint
from tests.releases.test_upgrades import BASELINE
from voice_ops.synthesis import synthesize
from voice_sandbox.rehearsals.aws import Rehearsal
from voice_sandbox.rehearsals.cdk import Cdk

pytestmark = [pytest.mark.sandbox, pytest.mark.nightly]
STATEFUL_TYPES = (
    "AWS::ElastiCache::ReplicationGroup",
    "AWS::S3::Bucket",
    "AWS::KMS::Key",
    "AWS::SecretsManager::Secret",
)


def test_sessions_and_objects_survive_an_upgrade_in_place(tmp_path: Path) -> None:
    deployment = voice_blueprint.load(BASELINE / "sandbox.yaml")
    with Rehearsal(deployment, real_stores=True) as rehearsal:
        rehearsal.bootstrap()
        cdk = Cdk(rehearsal.aws, deployment, rehearsal.home)
        cdk.use_assembly(BASELINE / ".voice/aws/sandbox")
        cdk.deploy()
        before = _stateful_resources(rehearsal)
        buckets = [physical for (_, kind), physical in before.items() if kind == "AWS::S3::Bucket"]
        store = rehearsal.home / "sandbox-state.sock"
        with Redis(unix_socket_path=str(store)) as redis:
            redis.hset("session:7", mapping={"state": "open"})
        s3 = rehearsal.aws.client("s3")
        for bucket in buckets:
            s3.put_object(Bucket=bucket, Key="kept", Body=b"as it was")

        cdk.use_assembly(Path(synthesize(deployment, tmp_path / "cdk.out").directory))
        cdk.deploy()
        assert before.items() <= _stateful_resources(rehearsal).items()
        with Redis(unix_socket_path=str(store)) as redis:
            assert redis.hgetall("session:7") == {b"state": b"open"}
        assert buckets
        assert {s3.get_object(Bucket=bucket, Key="kept")["Body"].read() for bucket in buckets} == {b"as it was"}
        assert [claim.text for claim in rehearsal.verify() if not claim.passed] == []


def _stateful_resources(rehearsal: Rehearsal) -> dict[tuple[str, str], str]:
    """Return the stateful resources of each stack: the physical name by logical id and type."""
    client = rehearsal.aws.client("cloudformation")
    found = {}
    for stack in client.describe_stacks()["Stacks"]:
        for each in client.list_stack_resources(StackName=stack["StackName"])["StackResourceSummaries"]:
            if each["ResourceType"] in STATEFUL_TYPES:
                found[f"{stack['StackName']}/{each['LogicalResourceId']}", each["ResourceType"]] = each[
                    "PhysicalResourceId"
                ]
    return found
