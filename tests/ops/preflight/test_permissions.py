"""Minimal permissions: the table matches cfn-lint and covers all resources; its policies are within IAM's limits."""

from __future__ import annotations

import json

import pytest

from tests.ops.preflight.conftest import templates_of_sandbox
from voice_ops.preflight.aws.permission_table import PERMISSION_TABLE_FILE, derive_permission_table
from voice_ops.preflight.aws.permissions import (
    MAX_POLICY_CHARACTERS,
    UnknownResourceTypeError,
    build_deployer_policy,
    exclude_wildcard_actions,
    list_required_actions,
    split_into_policies,
)
from voice_sandbox.aws.adapters.table import RESOURCE_KINDS

DEPLOYED_TYPES = {
    resource["Type"] for made in templates_of_sandbox().values() for resource in made["Resources"].values()
}


def test_the_table_matches_the_schemas() -> None:
    table = json.loads(PERMISSION_TABLE_FILE.read_bytes())
    assert table.keys() == RESOURCE_KINDS.keys()
    assert derive_permission_table(table) == table, "run python -m voice_ops.preflight.aws.permission_table"


def test_the_minimal_policy_covers_exactly_the_services_of_the_templates() -> None:
    actions = set(list_required_actions(DEPLOYED_TYPES))
    assert {"ec2:CreateVpc", "autoscaling:CreateAutoScalingGroup", "iam:PassRole", "ssm:GetParameters"} <= actions
    # Actions that the schemas list for features of other services.
    assert not any(action.startswith(("appsync:", "cognito-idp:", "s3tables:", "vpc-lattice:")) for action in actions)
    network = set(list_required_actions({"AWS::EC2::VPC", "AWS::EC2::Subnet"}))
    assert "ec2:CreateSubnet" in network < actions
    assert not any(action.startswith("wafv2:") for action in network)


def test_a_type_missing_from_the_table_is_refused() -> None:
    with pytest.raises(UnknownResourceTypeError, match="AWS::Glacier::Vault"):
        list_required_actions({*DEPLOYED_TYPES, "AWS::Glacier::Vault"})


def test_policies_contain_every_action_within_iam_limits() -> None:
    actions = list_required_actions(DEPLOYED_TYPES)
    made = list(split_into_policies(actions))
    held = [action for policy in json.loads(json.dumps(made)) for action in policy["Statement"][0]["Action"]]
    assert held == actions
    assert len(made) > 1
    assert all(len(json.dumps(policy, separators=(",", ":"))) <= MAX_POLICY_CHARACTERS for policy in made)


def test_wildcards_are_not_simulated() -> None:
    actions = list_required_actions(DEPLOYED_TYPES)
    assert "ec2:Describe*" in actions
    assert set(actions) - set(exclude_wildcard_actions(actions)) == {action for action in actions if "*" in action}


def test_the_deployer_assumes_roles_of_one_account_and_region() -> None:
    (statement,) = json.loads(json.dumps(build_deployer_policy("123456789012", "eu-west-1")))["Statement"]
    assert statement["Action"] == ["sts:AssumeRole"]
    assert "arn:aws:iam::123456789012:role/cdk-hnb659fds-deploy-role-123456789012-eu-west-1" in statement["Resource"]
