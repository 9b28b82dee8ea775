"""A failed create can be retried with the same command; no remaining resource blocks it.

On every change the templates are checked: resources with names that stay after their own create failed block the next
one (see tests/sandbox/aws/test_stacks.py). Only the role of API Gateway's logs stays: it has no fixed name, and the
setting of the account, which other deployments use, names it. Nightly the real CDK tries it with each stack of the
production file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import voice_blueprint
from tests.nonempty import nonempty
from tests.synthesized import shipped
from voice_blueprint.shipped import ROOT
from voice_ops.sandbox.month import find_last_created_resource
from voice_ops.synthesis import synthesize
from voice_sandbox.aws.cloudformation.template import sort_by_dependency
from voice_sandbox.aws.inventory import collect_resource_ids, count_added_resources
from voice_sandbox.rehearsals.aws import Rehearsal
from voice_sandbox.rehearsals.cdk import CdkError

pytestmark = [pytest.mark.sandbox]


@pytest.fixture
def rehearsal() -> Iterator[Rehearsal]:
    deployment = voice_blueprint.load(ROOT / "tests/deployments/production-us-east-1.yaml")
    with Rehearsal(deployment) as running:
        running.bootstrap()
        running.cdk.use_assembly(Path(synthesize(deployment, running.home / "cdk.out").directory))
        yield running


@pytest.mark.parametrize("name", ["production-us-east-1", "sandbox", "small"])
def test_only_the_role_of_api_logs_is_retained_after_a_failed_create(name: str) -> None:
    policies = {
        f"{tier} {id_}": body.get("DeletionPolicy", "Delete")
        for tier, stack in shipped(name).items()
        for id_, body in stack.template["Resources"].items()
    }
    allowed = {"Delete", "RetainExceptOnCreate", "Snapshot"}
    retained = {id_: policy for id_, policy in policies.items() if policy not in allowed}
    kept = _api_log_resources(shipped(name)["edge"].template)
    assert retained == {f"edge {id_}": "Retain" for id_ in kept}
    assert ("RetainExceptOnCreate" in policies.values()) == (name != "sandbox")


@pytest.mark.nightly
def test_a_production_stack_is_created_at_the_second_attempt(rehearsal: Rehearsal) -> None:
    assembly = rehearsal.home / "cdk.out"
    for stack in nonempty(_stacks_in_order(assembly)):
        before = collect_resource_ids(rehearsal.session, rehearsal.aws.endpoint)
        template = json.loads((assembly / f"{stack}.template.json").read_text())
        rehearsal.faults.write_text(f"{stack}/{find_last_created_resource(template)}\n")
        with pytest.raises(CdkError, match="a fault injected by a drill"):
            rehearsal.cdk.deploy_only(stack)
        left = count_added_resources(before, collect_resource_ids(rehearsal.session, rehearsal.aws.endpoint))
        kept = {"role": 1} if _api_log_resources(template) else {}
        assert left == {"stack": 1, **kept}, f"{stack} leaves {left} behind"
        rehearsal.faults.unlink()
        rehearsal.cdk.deploy_only(stack)


def _api_log_resources(template: dict[str, Any]) -> set[str]:
    """Return the ids of the account's setting and of the role that it names."""
    settings = {
        id_: body["Properties"]["CloudWatchRoleArn"]["Fn::GetAtt"][0]
        for id_, body in template["Resources"].items()
        if body["Type"] == "AWS::ApiGateway::Account"
    }
    return {*settings, *settings.values()}


def _stacks_in_order(assembly: Path) -> list[str]:
    """Return the stacks in the order of their dependencies."""
    artifacts: dict[str, Any] = json.loads((assembly / "manifest.json").read_text())["artifacts"]
    needs = {
        name: {other for other in artifact.get("dependencies", []) if artifacts[other]["type"] == artifact["type"]}
        for name, artifact in artifacts.items()
        if artifact["type"] == "aws:cloudformation:stack"
    }
    return sort_by_dependency(needs)
