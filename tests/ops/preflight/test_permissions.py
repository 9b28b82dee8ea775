"""The least permissions: the table is cfn-lint's, covers what is synthesized, and its policies fit into IAM."""

from __future__ import annotations

import json

import pytest

from ops.preflight.aws.permission_table import TABLE, derive
from ops.preflight.aws.permissions import (
    POLICY_CHARACTERS,
    UnknownResourceTypeError,
    actions_of,
    deployer_policy,
    policies,
    simulable,
)
from sandbox.aws.adapters.table import KINDS
from tests.ops.preflight.conftest import templates_of_sandbox

TYPES = {resource["Type"] for made in templates_of_sandbox().values() for resource in made["Resources"].values()}


def test_the_table_is_what_the_schemas_say() -> None:
    table = json.loads(TABLE.read_bytes())
    assert table.keys() == KINDS.keys()
    assert derive(table) == table, "run python -m ops.preflight.aws.permission_table"


def test_the_least_set_covers_the_templates_and_no_more_than_their_services() -> None:
    actions = set(actions_of(TYPES))
    assert {"ec2:CreateVpc", "autoscaling:CreateAutoScalingGroup", "iam:PassRole", "ssm:GetParameters"} <= actions
    # What the schemas of used types name for features of other services.
    assert not any(action.startswith(("appsync:", "cognito-idp:", "s3tables:", "vpc-lattice:")) for action in actions)
    network = set(actions_of({"AWS::EC2::VPC", "AWS::EC2::Subnet"}))
    assert "ec2:CreateSubnet" in network < actions
    assert not any(action.startswith("wafv2:") for action in network)


def test_a_type_that_the_table_lacks_is_refused() -> None:
    with pytest.raises(UnknownResourceTypeError, match="AWS::Glacier::Vault"):
        actions_of({*TYPES, "AWS::Glacier::Vault"})


def test_policies_hold_every_action_and_fit_into_iam() -> None:
    actions = actions_of(TYPES)
    made = list(policies(actions))
    held = [action for policy in json.loads(json.dumps(made)) for action in policy["Statement"][0]["Action"]]
    assert held == actions
    assert len(made) > 1
    assert all(len(json.dumps(policy, separators=(",", ":"))) <= POLICY_CHARACTERS for policy in made)


def test_wildcards_are_not_simulated() -> None:
    actions = actions_of(TYPES)
    assert "ec2:Describe*" in actions
    assert set(actions) - set(simulable(actions)) == {action for action in actions if "*" in action}


def test_the_deployer_takes_on_roles_of_one_account_and_region() -> None:
    (statement,) = json.loads(json.dumps(deployer_policy("123456789012", "eu-west-1")))["Statement"]
    assert statement["Action"] == ["sts:AssumeRole"]
    assert "arn:aws:iam::123456789012:role/cdk-hnb659fds-deploy-role-123456789012-eu-west-1" in statement["Resource"]
