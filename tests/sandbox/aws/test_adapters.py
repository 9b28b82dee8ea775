"""The table of resource types covers deployed types, and matches the APIs and the schemas."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import boto3
import pytest

import voice_blueprint
from tests.sandbox.aws.samples import ALL
from tests.synthesized import ROOT, shipped, two_regions
from voice_blueprint import checks
from voice_sandbox.aws.adapters.adapter import Adapter, ResourceScope
from voice_sandbox.aws.adapters.schemas import load_resource_schema
from voice_sandbox.aws.adapters.table import RESOURCE_KINDS
from voice_sandbox.aws.adapters.tagging import TAG_OPERATIONS
from voice_sandbox.aws.clients import set_endpoint
from voice_sandbox.aws.cloudformation.template import parse_template

BOOTSTRAP = ROOT / "node_modules/aws-cdk/lib/api/bootstrap/bootstrap-template.yaml"


def deployed_types() -> Iterator[str]:
    for file in (ROOT / "deployments").glob("*.yaml"):
        deployment = voice_blueprint.load(file)
        if deployment.aws_section is not None and not checks.format_blocking_findings(deployment):
            yield file.stem


def test_the_table_matches_deployed_types() -> None:
    deployed = [*(shipped(name) for name in deployed_types()), two_regions()]
    templates = [stack.template for stacks in deployed for stack in stacks.values()]
    assert len(templates) > 7
    templates.append(parse_template(BOOTSTRAP.read_text(encoding="utf-8")))
    emitted = {body["Type"] for template in templates for body in template["Resources"].values()}
    assert emitted - RESOURCE_KINDS.keys() == set(), "these need a row in voice_sandbox/aws/adapters/table.yaml"
    assert RESOURCE_KINDS.keys() - emitted == set(), "nothing in constructs/voice_constructs/aws makes these"


def test_every_type_is_deployed_by_a_sample() -> None:
    sampled = {body["Type"] for sample in ALL for body in sample().values()}
    assert RESOURCE_KINDS.keys() - sampled == set(), "these need a sample in tests/sandbox/aws/samples"
    assert sampled - RESOURCE_KINDS.keys() == set(), "these need a row in voice_sandbox/aws/adapters/table.yaml"


def adapter(kind: str, **properties: object) -> Adapter:
    """Return an adapter without a server."""
    set_endpoint("http://127.0.0.1:1")
    row = RESOURCE_KINDS[f"AWS::{kind}"]
    made = row.adapter(f"AWS::{kind}", row, ResourceScope("123456789012", "us-east-1", "stack", "id", "Logical"))
    made.properties = properties
    return made


@pytest.mark.parametrize("kind", sorted(RESOURCE_KINDS))
def test_names_in_a_row_exist_in_the_service_and_the_schema(kind: str) -> None:
    row = RESOURCE_KINDS[kind]
    it = adapter(kind.removeprefix("AWS::"))
    client = boto3.client(row.service, region_name="us-east-1")  # type: ignore[call-overload]
    tags = TAG_OPERATIONS.get(row.service)
    operations = {row.create, row.update, row.delete, *row.always, *(row.read or ())[:1], *(row.live or ())[:1]}
    operations |= {name for item in row.settings.values() for name in (item.put, item.remove)}
    operations |= {name for item in row.members.values() for name in (item.add, item.remove)}
    operations |= {tags.tag, tags.untag} if tags else set()
    assert all(hasattr(client, operation) for operation in operations - {""})
    arguments = [(row.delete, row.key), (row.update, "patchOperations" if row.patches else "")]
    arguments += [row.read] if row.read else []
    arguments += [row.live[:2]] if row.live else []
    arguments += [(item.put, item.argument) for item in row.settings.values()]
    arguments += [(item.remove, item.argument) for item in row.members.values()]
    arguments += [(row.update, name) for pair in row.moves.values() for name in pair]
    arguments += [(operation, name) for operation, given in row.always.items() for name in given]
    assert [pair for pair in arguments if all(pair) and not it.accepts_argument(*pair)] == []
    api_names = {api: name for name, api in row.rename.items()}
    named = {
        *row.rename,
        *row.settings,
        *row.members,
        *row.moves,
        *row.patches,
        *row.own_properties,
        *row.ignored,
        row.name,
    }
    assert {api_names.get(name, name) for name in named - {""}} <= load_resource_schema(kind)["properties"].keys()


PREVIOUS_PROPERTIES: dict[str, dict[str, Any]] = {
    "Budgets::Budget": {"Budget": {"BudgetName": "voice", "TimeUnit": "MONTHLY"}},
    "CloudWatch::Alarm": {"AlarmName": "a", "Threshold": 1},
    "EC2::SecurityGroup": {"GroupDescription": "first", "GroupName": "g"},
    "ECS::Cluster": {"ClusterName": "c", "ClusterSettings": []},
    "ECS::Service": {"LaunchType": "FARGATE", "DesiredCount": 2},
    "ElastiCache::UserGroup": {"UserGroupId": "callers", "UserIds": ["a"]},
    "ElasticLoadBalancingV2::TargetGroup": {"Port": 5004, "Tags": []},
    "Route53::RecordSet": {"Name": "a.example.com", "TTL": "60"},
}


@pytest.mark.parametrize(
    ("kind", "change", "replaced"),
    [
        ("EC2::SecurityGroup", {"GroupDescription": "second"}, True),  # according to the schema
        ("EC2::SecurityGroup", {"SecurityGroupIngress": []}, False),
        ("CloudWatch::Alarm", {"AlarmName": "b"}, True),
        ("CloudWatch::Alarm", {"Threshold": 2}, False),
        ("Budgets::Budget", {"Budget": {"BudgetName": "other", "TimeUnit": "MONTHLY"}}, True),  # a nested property
        ("Budgets::Budget", {"Budget": {"BudgetName": "voice", "TimeUnit": "DAILY"}}, False),
        ("ECS::Service", {"LaunchType": "EC2"}, True),  # the schema allows an update, but ECS has no operation for it
        ("ECS::Service", {"DesiredCount": 3}, False),
        ("ECS::Cluster", {"ClusterSettings": [{"Name": "containerInsights"}]}, False),  # with the name in the API
        ("ElastiCache::UserGroup", {"UserIds": ["b"]}, False),
        ("ElasticLoadBalancingV2::TargetGroup", {"Tags": [{"Key": "team", "Value": "voice"}]}, False),
        # according to CloudFormation's guide, not to its schema
        ("Route53::RecordSet", {"Name": "b.example.com"}, True),
        ("Route53::RecordSet", {"TTL": "30"}, False),
    ],
)
def test_a_change_of_an_immutable_property_replaces_the_resource(
    kind: str, change: dict[str, Any], replaced: bool
) -> None:
    old = PREVIOUS_PROPERTIES[kind]
    assert adapter(kind, **old).must_replace({**old, **change}) is replaced
