"""What a deploy tells: where callers find the platform, what lets them in, and ids that every service takes."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from blueprint.aws.names import ELASTICACHE_ID_LENGTH
from sandbox.aws.adapters.schemas import schema
from tests.synthesized import Stack, edited_sandbox

STACK_NAME_LENGTH = 128
"""https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/cfn-console-create-stacks-stack-details.html"""
LONGEST = "a" * 15 + "-" + "b" * 16
"""A deployment's name may have so many characters."""


def outputs(stack: Stack) -> dict[str, Any]:
    """Outputs that are for people; what other stacks import is exported."""
    return {name: each["Value"] for name, each in stack.template["Outputs"].items() if "Export" not in each}


def test_callers_are_told_where_the_platform_is_and_what_lets_them_in(edge: Stack) -> None:
    (policy,) = edge.of_type("IAM::ManagedPolicy")
    assert outputs(edge) == {
        "ApiAddress": "https://api.voice.example.com",
        "MediaHost": "media.voice.example.com",
        "CallersPolicy": {"Ref": policy},
    }
    (statement,) = edge.the("IAM::ManagedPolicy")["PolicyDocument"]["Statement"]
    assert (statement["Effect"], statement["Action"]) == ("Allow", "execute-api:Invoke")
    assert statement["Resource"]["Fn::Join"][1][-1] == "/live/POST/v1/sessions"


def test_without_a_domain_the_outputs_are_the_services_own_names(unnamed: Stack) -> None:
    told = outputs(unnamed)
    address = "".join(part if isinstance(part, str) else "*" for part in told["ApiAddress"]["Fn::Join"][1])
    assert re.fullmatch(r"https://\*\.execute-api\.(us-east-1|\*)\.\*/\*/", address)
    assert told["MediaHost"]["Fn::GetAtt"][1] == "DNSName"


def test_only_iam_has_a_policy_for_callers(by_authorizer: dict[str, Stack]) -> None:
    assert {kind for kind, stack in by_authorizer.items() if "CallersPolicy" in outputs(stack)} == {"iam"}


def refused(value: object, said: dict[str, Any], whole: dict[str, Any]) -> Iterator[str]:
    """Yield the texts of a property that CloudFormation's own schema of the type does not take."""
    if reference := said.get("$ref"):
        said = whole["definitions"][reference.rpartition("/")[2]]
    pattern = said.get("pattern", "")
    match value:
        case str():
            # Python knows no classes of Unicode.
            fits = "\\p{" in pattern or re.search(pattern, value)
            if len(value) > said.get("maxLength", len(value)) or not fits:
                yield value
        case list():
            for item in value:
                yield from refused(item, said.get("items", {}), whole)
        case dict():
            for key, item in value.items():
                yield from refused(item, said.get("properties", {}).get(key, {}), whole)


def test_the_longest_names_fit_every_service(tmp_path: Path) -> None:
    stacks = edited_sandbox({"name": LONGEST, "aws.asr.0.name": "c" * 32, "aws.asr.0.artifacts": True}, tmp_path)
    assert max(len(f"{LONGEST}-{tier}") for tier in stacks) <= STACK_NAME_LENGTH
    not_taken = [
        (resource["Type"], text)
        for stack in stacks.values()
        for resource in stack.template["Resources"].values()
        for whole in [schema(resource["Type"])]
        for name, value in resource.get("Properties", {}).items()
        for text in refused(value, whole["properties"].get(name, {}), whole)
    ]
    assert not_taken == []
    state = stacks["state"]
    # ElastiCache's limit stands in no schema.
    ids = [
        *(each["UserId"] for each in state.properties("ElastiCache::User")),
        *(each["UserGroupId"] for each in state.properties("ElastiCache::UserGroup")),
        state.the("ElastiCache::ReplicationGroup")["ReplicationGroupId"],
    ]
    assert len(set(ids)) == len(ids)
    assert max(map(len, ids)) <= ELASTICACHE_ID_LENGTH


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        ("AWS::CloudWatch::Alarm", "AlarmName", "n" * 256),
        ("AWS::ImageBuilder::ImagePipeline", "Name", "n" * 129),
        ("AWS::Logs::LogGroup", "Tags", [{"Key": "n" * 129}]),
    ],
)
def test_a_text_that_is_too_long_is_found(kind: str, name: str, value: object) -> None:
    whole = schema(kind)
    assert len(list(refused(value, whole["properties"][name], whole))) == 1
