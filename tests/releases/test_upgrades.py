"""Upgrades from the last release do not replace serving or stateful resources unintentionally."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from voice_blueprint import checks, load
from voice_ops.plan.release import ReleaseComparison
from voice_sandbox.aws import diff
from voice_sandbox.azure import state
from voice_sandbox.azure.diff import diff_graphs
from voice_sandbox.azure.graph import Graph, Resource
from voice_sandbox.rehearsals import aws_outages as aws
from voice_sandbox.rehearsals import azure_outages as azure

ROOT = Path(__file__).parents[2]
RELEASED_VERSIONS = re.findall(
    r"^## ([\d.]+), \d{4}-\d\d-\d\d$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M
)
BASELINE = Path(__file__).parent / RELEASED_VERSIONS[0]
FILES = sorted(BASELINE.glob("*.yaml"))
AWS, AZURE = "production-us-east-1", "production-azure"

Template = dict[str, Any]
Change = Callable[[dict[str, Any]], None]


def test_the_last_release_has_a_baseline_of_each_cloud() -> None:
    assert {AWS, AZURE} <= {file.stem for file in FILES}


REFUSED_SINCE = {"production-us-east-1": {"load-fits-tiers"}}
"""Checks that refuse a file of the last release, according to CHANGELOG.md: its store has no headroom at the peak."""


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_file_of_the_last_release_can_be_upgraded(file: Path) -> None:
    deployment = load(file)
    refused = {finding.check.id for finding in checks.run_checks(deployment) if finding.is_blocking}
    assert refused == REFUSED_SINCE.get(file.stem, set())
    found = ReleaseComparison.from_record(deployment, BASELINE, [])
    assert not found.is_refused, "\n".join([*(each.format_summary() for each in found.outages), *found.refusals])


def templates() -> dict[str, Template]:
    files = (BASELINE / ".voice/aws" / AWS).glob("*.template.json")
    return {file.name.partition(".")[0].removeprefix(f"{AWS}-"): json.loads(file.read_text()) for file in files}


def first_resource(template: Template, kind: str) -> tuple[str, dict[str, Any]]:
    """Return the first resource of a type."""
    return next((name, body) for name, body in template["Resources"].items() if body["Type"].endswith(f"::{kind}"))


def set_property(stack: str, kind: str, name: str, value: object) -> Change:
    def change(found: dict[str, Template]) -> None:
        properties = first_resource(found[stack], kind)[1]["Properties"]
        assert properties.get(name) != value
        properties[name] = value

    return change


def remove_resource(stack: str, kind: str) -> Change:
    def change(found: dict[str, Template]) -> None:
        del found[stack]["Resources"][first_resource(found[stack], kind)[0]]

    return change


def rename(stack: str, kind: str) -> Change:
    """Change the logical id of a resource, as if its construct was moved."""

    def change(found: dict[str, Template]) -> None:
        name, _ = first_resource(found[stack], kind)
        found[stack] = json.loads(json.dumps(found[stack]).replace(f'"{name}"', f'"Moved{name}"'))

    return change


def exchange_names(found: dict[str, Template]) -> None:
    """Give an alarm the name of another one, and that one a new name."""
    alarms = [each for each in found["observability"]["Resources"].values() if each["Type"].endswith("::Alarm")]
    alarms[0]["Properties"]["AlarmName"] = alarms[1]["Properties"]["AlarmName"]
    alarms[1]["Properties"]["AlarmName"] = "another"


def change_type(found: dict[str, Template]) -> None:
    found["observability"]["Resources"][first_resource(found["observability"], "Alarm")[0]] = {
        "Type": "AWS::SQS::Queue"
    }


def drop_stack(found: dict[str, Template]) -> None:
    del found["asr-inf2"]


def add_queue(found: dict[str, Template]) -> None:
    found["edge"]["Resources"]["Queue"] = {"Type": "AWS::SQS::Queue"}


DANGEROUS_CHANGES: dict[str, tuple[Change, str]] = {
    "an older version of the store": (
        set_property("state", "ReplicationGroup", "EngineVersion", "7.2"),
        "does not support downgrades",
    ),
    "another address range": (
        set_property("network", "VPC", "CidrBlock", "10.50.0.0/16"),
        "every host, task and store",
    ),
    "another zone of a subnet": (
        set_property("network", "Subnet", "AvailabilityZone", "us-east-1f"),
        "every host, task and store",
    ),
    "another key of the store": (
        set_property("state", "ReplicationGroup", "KmsKeyId", "arn:aws:kms:us-east-1:1:key/2"),
        "all sessions",
    ),
    "the store in another construct": (rename("state", "ReplicationGroup"), "all sessions"),
    "a password in another construct": (rename("state", "Secret"), "the password or key"),
    "no key of the logs": (remove_resource("asr", "Key"), "the data that it encrypts"),
    "no bucket of artifacts": (remove_resource("registry", "Bucket"), "its objects"),
    "a repository of another name": (
        set_property("registry", "Repository", "RepositoryName", "another"),
        "all images",
    ),
    "an internal load balancer": (set_property("edge", "LoadBalancer", "Scheme", "internal"), "the address"),
    "no fleet": (drop_stack, "its hosts"),
    "another group of targets": (set_property("vad", "TargetGroup", "Port", 5005), "calls through it"),
    "a replacement that keeps its name": (
        set_property("registry", "Repository", "EncryptionConfiguration", {"EncryptionType": "AES256"}),
        "cannot replace a resource with an explicit name",
    ),
    "an alarm with another logical id": (
        rename("observability", "Alarm"),
        "cannot create a resource whose name another one has",
    ),
    "a topic with another logical id": (
        rename("observability", "Topic"),
        "cannot create a resource whose name another one has",
    ),
    "the name of another alarm": (exchange_names, "cannot create a resource whose name another one has"),
    "another type under the same id": (change_type, "cannot change the type of a resource"),
}
HARMLESS_CHANGES: dict[str, Change] = {
    "another version of the store": set_property("state", "ReplicationGroup", "EngineVersion", "8.2"),
    "a larger store": set_property("state", "ReplicationGroup", "CacheNodeType", "cache.r7g.2xlarge"),
    "more replicas": set_property("state", "ReplicationGroup", "ReplicasPerNodeGroup", 3),
    "logs kept for longer": set_property("asr", "LogGroup", "RetentionInDays", 400),
    "more hosts": set_property("asr-inf2", "AutoScalingGroup", "MaxSize", "99"),
    "a longer grace": set_property("vad", "AutoScalingGroup", "HealthCheckGracePeriod", 1),
    "other user data": set_property("vad", "LaunchTemplate", "LaunchTemplateData", {"UserData": "x"}),
    "another task": set_property("edge", "TaskDefinition", "Cpu", "4096"),
    "other tags": set_property("network", "VPC", "Tags", []),
    "another threshold": set_property("observability", "Alarm", "Threshold", 1),
    "no alarm": remove_resource("observability", "Alarm"),
    "something new": add_queue,
}


def bake(data: str, version: str) -> dict[str, Template]:
    properties = {"Name": "bake", "Version": version, "Platform": "Linux", "Data": data}
    return {"images": {"Resources": {"Part": {"Type": "AWS::ImageBuilder::Component", "Properties": properties}}}}


def test_a_component_cannot_be_replaced_under_its_version() -> None:
    (found,) = aws.find_outages(diff.diff_stacks(bake("first", "1.0.0"), bake("second", "1.0.0")))
    assert "cannot replace a resource with an explicit name" in found.down
    assert aws.find_outages(diff.diff_stacks(bake("first", "1.0.0"), bake("second", "1.0.1"))) == []


def test_a_rest_api_with_another_logical_id_may_keep_its_name() -> None:
    """API Gateway accepts several APIs of one name."""
    steps = diff.diff_stacks(*_old_and_new(rename("edge", "RestApi")))
    assert not any(
        step.keeps_name or step.has_name_conflict for step in steps if step.kind == "AWS::ApiGateway::RestApi"
    )


def _old_and_new(change: Change) -> tuple[dict[str, Template], dict[str, Template]]:
    old = templates()
    new = deepcopy(old)
    change(new)
    return old, new


@pytest.mark.parametrize("name", DANGEROUS_CHANGES)
def test_a_dangerous_upgrade_is_refused_with_the_affected_resources(name: str) -> None:
    change, down = DANGEROUS_CHANGES[name]
    steps = diff.diff_stacks(*_old_and_new(change))
    found = aws.find_outages(steps)
    assert any(down in each.down for each in found), [each.format_summary() for each in found]
    assert aws.find_outages(steps, [each.name for each in found]) == []


@pytest.mark.parametrize("name", HARMLESS_CHANGES)
def test_a_harmless_upgrade_passes(name: str) -> None:
    old, new = _old_and_new(HARMLESS_CHANGES[name])
    assert old != new
    assert aws.find_outages(diff.diff_stacks(old, new)) == []


def test_dependents_of_a_replaced_resource_are_replaced() -> None:
    """Replacing a network replaces its subnets and their resources."""
    steps = diff.diff_stacks(*_old_and_new(DANGEROUS_CHANGES["another address range"][0]))
    (vpc,) = [each for each in aws.find_outages(steps) if "VPC " in each.label]
    assert vpc.changes == ("CidrBlock",)
    subnets = [step for step in steps if step.kind == "AWS::EC2::Subnet"]
    assert len(subnets) == 9
    assert all(step.op.value == "replace" and step.replaced_references for step in subnets)
    stacks = {step.key[0] for step in steps if step.op.value == "replace"}
    assert {"network", "vad", "edge"} <= stacks, "exports carry it to other stacks"
    assert vpc.also_replaced > 30


def graph() -> Graph:
    found = state.load_graph(state.get_state_file(BASELINE, AZURE, "voice-cluster"))
    assert found
    return found


def change_resource(kind: str, change: Callable[[Resource], Resource | None]) -> Graph:
    """Change or remove the first resource of a type."""
    old = graph()
    first = next(each for each in old.resources if each.type.endswith(f":{kind}"))
    made = [change(each) if each is first else each for each in old.resources]
    return replace(old, resources=tuple(each for each in made if each))


def inputs(**values: object) -> Callable[[Resource], Resource]:
    return lambda resource: replace(resource, inputs={**resource.inputs, **values})


@pytest.mark.parametrize(
    ("kind", "change", "down"),
    [
        ("AgentPool", inputs(vmSize="Standard_NC48ads_A100_v4"), "the pods on the pool"),
        ("AgentPool", lambda _: None, "the pods on the pool"),
        ("Registry", lambda _: None, "all images"),
        ("VirtualNetwork", inputs(location="westeurope"), "every service"),
    ],
)
def test_a_dangerous_upgrade_of_azure_is_refused(
    kind: str, change: Callable[[Resource], Resource | None], down: str
) -> None:
    found = azure.find_outages(diff_graphs(graph(), change_resource(kind, change)))
    assert any(down in each.down for each in found), [each.format_summary() for each in found]


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("AgentPool", inputs(maxCount=9)),
        ("Workspace", inputs(retentionInDays=400)),
        ("RoleAssignment", lambda _: None),
        ("ManagedCluster", inputs(tags={"a": "b"})),
    ],
)
def test_a_harmless_upgrade_of_azure_passes(kind: str, change: Callable[[Resource], Resource | None]) -> None:
    assert azure.find_outages(diff_graphs(graph(), change_resource(kind, change))) == []
