"""Outputs of a deployment: addresses, credentials, and names within the limits of every service."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.synthesized import Stack, Stacks, edited_sandbox, shipped
from voice_blueprint.aws.names import MAX_ELASTICACHE_ID_LENGTH
from voice_blueprint.file.model.aws import STACK_SUFFIXES
from voice_sandbox.aws.adapters.schemas import load_resource_schema

STACK_NAME_LENGTH = 128
"""https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/cfn-console-create-stacks-stack-details.html"""
LONGEST_NAME = "a" * 15 + "-" + "b" * 16
"""Longest valid name of a deployment."""


def outputs(stack: Stack) -> dict[str, Any]:
    """Return outputs for users, without exports for other stacks."""
    return {name: each["Value"] for name, each in stack.template["Outputs"].items() if "Export" not in each}


def test_outputs_contain_addresses_and_credentials_for_callers(edge: Stack) -> None:
    (policy,) = edge.of_type("IAM::ManagedPolicy")
    assert outputs(edge) == {
        "ApiAddress": "https://api.voice.example.com",
        "MediaHost": "media.voice.example.com",
        "CallersPolicy": {"Ref": policy},
    }
    (statement,) = edge.only("IAM::ManagedPolicy")["PolicyDocument"]["Statement"]
    assert (statement["Effect"], statement["Action"]) == ("Allow", "execute-api:Invoke")
    assert statement["Resource"]["Fn::Join"][1][-1] == "/live/POST/v1/sessions"


def test_without_a_domain_the_outputs_are_aws_names(edge_without_domain: Stack) -> None:
    told = outputs(edge_without_domain)
    address = "".join(part if isinstance(part, str) else "*" for part in told["ApiAddress"]["Fn::Join"][1])
    assert re.fullmatch(r"https://\*\.execute-api\.(us-east-1|\*)\.\*/\*/", address)
    assert told["MediaHost"]["Fn::GetAtt"][1] == "DNSName"


def test_a_fleet_named_like_a_stack_is_refused(sandbox: Stacks) -> None:
    tiers = {tier for tier in (*sandbox, *shipped("production-us-east-1")) if not tier.startswith("asr-")}
    assert tiers == set(STACK_SUFFIXES)


def test_only_iam_has_a_policy_for_callers(by_authorizer: dict[str, Stack]) -> None:
    assert {kind for kind, stack in by_authorizer.items() if "CallersPolicy" in outputs(stack)} == {"iam"}


def invalid_texts(value: object, schema: dict[str, Any], whole: dict[str, Any]) -> Iterator[str]:
    """Yield the texts of a property that CloudFormation's schema of the type rejects."""
    if reference := schema.get("$ref"):
        schema = whole["definitions"][reference.rpartition("/")[2]]
    pattern = schema.get("pattern", "")
    match value:
        case str():
            # Python's re has no Unicode classes.
            fits = "\\p{" in pattern or re.search(pattern, value)
            if len(value) > schema.get("maxLength", len(value)) or not fits:
                yield value
        case list():
            for item in value:
                yield from invalid_texts(item, schema.get("items", {}), whole)
        case dict():
            for key, item in value.items():
                yield from invalid_texts(item, schema.get("properties", {}).get(key, {}), whole)


def test_the_longest_names_fit_every_service(tmp_path: Path) -> None:
    stacks = edited_sandbox({"name": LONGEST_NAME, "aws.asr.0.name": "c" * 32, "aws.asr.0.artifacts": True}, tmp_path)
    assert max(len(f"{LONGEST_NAME}-{tier}") for tier in stacks) <= STACK_NAME_LENGTH
    not_taken = [
        (resource["Type"], text)
        for stack in stacks.values()
        for resource in stack.template["Resources"].values()
        for whole in [load_resource_schema(resource["Type"])]
        for name, value in resource.get("Properties", {}).items()
        for text in invalid_texts(value, whole["properties"].get(name, {}), whole)
    ]
    assert not_taken == []
    state = stacks["state"]
    # ElastiCache's limit is in no schema.
    ids = [
        *(each["UserId"] for each in state.properties("ElastiCache::User")),
        *(each["UserGroupId"] for each in state.properties("ElastiCache::UserGroup")),
        state.only("ElastiCache::ReplicationGroup")["ReplicationGroupId"],
    ]
    assert len(set(ids)) == len(ids)
    assert max(map(len, ids)) <= MAX_ELASTICACHE_ID_LENGTH


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        ("AWS::CloudWatch::Alarm", "AlarmName", "n" * 256),
        ("AWS::ImageBuilder::ImagePipeline", "Name", "n" * 129),
        ("AWS::Logs::LogGroup", "Tags", [{"Key": "n" * 129}]),
    ],
)
def test_a_name_that_is_too_long_is_detected(kind: str, name: str, value: object) -> None:
    whole = load_resource_schema(kind)
    assert len(list(invalid_texts(value, whole["properties"][name], whole))) == 1
