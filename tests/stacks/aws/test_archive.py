"""The archive of transcripts on AWS is private, encrypted, has a retention, and is only accessible to the gateway."""

from pathlib import Path
from typing import Any

import pytest

from tests.synthesized import Stack, edited_sandbox, shipped


@pytest.fixture(scope="module")
def edge(tmp_path_factory: pytest.TempPathFactory) -> Stack:
    return edited_sandbox({"aws.edge.archive": {"retention_days": 7}}, tmp_path_factory.mktemp("archive"))["edge"]


def archives(edge: Stack) -> dict[str, Any]:
    """Return the buckets of transcripts by logical id, without the bucket for load balancer logs."""
    return {name: each for name, each in edge.of_type("S3::Bucket").items() if "Archive" in name}


def task(edge: Stack) -> dict[str, Any]:
    (container,) = edge.only("ECS::TaskDefinition")["ContainerDefinitions"]
    return {each["Name"]: each["Value"] for each in container["Environment"]}


def test_the_bucket_is_private_encrypted_and_expires_objects(edge: Stack) -> None:
    ((name, bucket),) = archives(edge).items()
    properties = bucket["Properties"]
    (default,) = properties["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    assert default["ServerSideEncryptionByDefault"]["SSEAlgorithm"] == "aws:kms"
    assert default["BucketKeyEnabled"] is True
    assert all(properties["PublicAccessBlockConfiguration"].values())
    assert "VersioningConfiguration" not in properties, "what is deleted is gone"
    (rule,) = properties["LifecycleConfiguration"]["Rules"]
    assert (rule["ExpirationInDays"], rule["Status"]) == (7, "Enabled")
    (policy,) = (each for each in edge.properties("S3::BucketPolicy") if each["Bucket"] == {"Ref": name})
    denied = [each for each in policy["PolicyDocument"]["Statement"] if each["Effect"] == "Deny"]
    assert [each["Condition"] for each in denied] == [{"Bool": {"aws:SecureTransport": "false"}}]


def test_production_retains_its_bucket_when_the_stack_is_deleted() -> None:
    (bucket,) = archives(shipped("production-us-east-1")["edge"]).values()
    assert bucket["DeletionPolicy"] == "RetainExceptOnCreate"


def test_the_gateway_reads_transcripts_by_name_and_lists_nothing(edge: Stack) -> None:
    ((name, _),) = archives(edge).items()
    assert task(edge)["VOICE_ARCHIVE_URL"] == {
        "Fn::Join": ["", ["https://", {"Fn::GetAtt": [name, "RegionalDomainName"]}]]
    }
    statements = [
        statement
        for policy in edge.properties("IAM::Policy")
        for statement in policy["PolicyDocument"]["Statement"]
        if "s3:" in str(statement["Action"])
    ]
    granted = {
        (action, str(statement["Resource"]["Fn::Join"][1][-1]))
        for statement in statements
        for action in ([statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"])
    }
    assert granted == {
        ("s3:PutObject", "/transcripts/*"), ("s3:GetObject", "/transcripts/*"), ("s3:DeleteObject", "/transcripts/*"),
        ("s3:PutObject", "/index/*"), ("s3:PutObject", "/usage/*"),
    }  # fmt: skip


def test_transcripts_can_be_read_and_deleted_by_session_creators(edge: Stack) -> None:
    ((resource, _),) = (
        each
        for each in edge.of_type("ApiGateway::Resource").items()
        if each[1]["Properties"]["PathPart"] == "transcript"
    )
    methods = {
        method["HttpMethod"]: method["AuthorizationType"]
        for method in edge.properties("ApiGateway::Method")
        if method["ResourceId"] == {"Ref": resource}
    }
    assert methods == {"GET": "AWS_IAM", "DELETE": "AWS_IAM"}
    (statement,) = edge.only("IAM::ManagedPolicy")["PolicyDocument"]["Statement"]
    assert [each["Fn::Join"][1][-1] for each in statement["Resource"]] == [
        "/live/POST/v1/sessions", "/live/GET/v1/sessions/*/transcript", "/live/DELETE/v1/sessions/*/transcript"
    ]  # fmt: skip


def test_without_an_archive_no_bucket_and_no_route_exist() -> None:
    edge = shipped("sandbox")["edge"]
    assert archives(edge) == {}
    assert task(edge)["VOICE_ARCHIVE_URL"] == ""
    assert "transcript" not in {each["PathPart"] for each in edge.properties("ApiGateway::Resource")}


def test_each_region_has_its_own_archive(tmp_path: Path) -> None:
    west = {"region": "us-west-2", "availability_zones": ["us-west-2a"]}
    stacks = edited_sandbox({"aws.edge.archive": {}, "aws.other_regions": [west]}, tmp_path)
    assert sum(len(archives(stack)) for stack in stacks.values()) == 2
