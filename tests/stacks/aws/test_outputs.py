"""What a deploy tells: where callers find the platform, what lets them in, and ids that every service takes."""

import re
from pathlib import Path
from typing import Any

from blueprint.aws.names import ELASTICACHE_ID_LENGTH
from tests.synthesized import Stack, edited_sandbox

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


def test_the_longest_name_fits_elasticache(tmp_path: Path) -> None:
    state = edited_sandbox({"name": LONGEST}, tmp_path)["state"]
    ids = [
        *(each["UserId"] for each in state.properties("ElastiCache::User")),
        *(each["UserGroupId"] for each in state.properties("ElastiCache::UserGroup")),
        state.the("ElastiCache::ReplicationGroup")["ReplicationGroupId"],
    ]
    assert len(set(ids)) == len(ids)
    assert max(map(len, ids)) <= ELASTICACHE_ID_LENGTH
