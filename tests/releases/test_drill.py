"""The last release is deployed to a local AWS, and the present one over it, by the real CDK."""

from pathlib import Path

import pytest
from redis import Redis

import blueprint
from ops.synthesis import synthesize
from sandbox.aws.cdk import Cdk
from sandbox.aws.rehearsal import Rehearsal
from tests.releases.test_upgrades import BASELINE

pytestmark = [pytest.mark.sandbox, pytest.mark.nightly]
KEPT = ("AWS::ElastiCache::ReplicationGroup", "AWS::S3::Bucket", "AWS::KMS::Key", "AWS::SecretsManager::Secret")


def test_sessions_and_objects_survive_an_upgrade_in_place(tmp_path: Path) -> None:
    deployment = blueprint.load(BASELINE / "sandbox.yaml")
    with Rehearsal(deployment, real_stores=True) as rehearsal:
        rehearsal.bootstrap()
        cdk = Cdk(rehearsal.aws, deployment, rehearsal.home)
        cdk.take(BASELINE / ".voice/aws/sandbox")
        cdk.deploy()
        before = _held(rehearsal)
        buckets = [physical for (_, kind), physical in before.items() if kind == "AWS::S3::Bucket"]
        store = rehearsal.home / "sandbox-state.sock"
        with Redis(unix_socket_path=str(store)) as redis:
            redis.hset("session:7", mapping={"state": "open"})
        s3 = rehearsal.aws.client("s3")
        for bucket in buckets:
            s3.put_object(Bucket=bucket, Key="kept", Body=b"as it was")

        cdk.take(Path(synthesize(deployment, tmp_path / "cdk.out").directory))
        cdk.deploy()
        assert before.items() <= _held(rehearsal).items()
        with Redis(unix_socket_path=str(store)) as redis:
            assert redis.hgetall("session:7") == {b"state": b"open"}
        assert buckets
        assert {s3.get_object(Bucket=bucket, Key="kept")["Body"].read() for bucket in buckets} == {b"as it was"}
        assert [claim.text for claim in rehearsal.claims() if not claim.holds] == []


def _held(rehearsal: Rehearsal) -> dict[tuple[str, str], str]:
    """Return what each stack holds state in: its physical name by logical id and type."""
    client = rehearsal.aws.client("cloudformation")
    found = {}
    for stack in client.describe_stacks()["Stacks"]:
        for each in client.list_stack_resources(StackName=stack["StackName"])["StackResourceSummaries"]:
            if each["ResourceType"] in KEPT:
                found[f"{stack['StackName']}/{each['LogicalResourceId']}", each["ResourceType"]] = each[
                    "PhysicalResourceId"
                ]
    return found
