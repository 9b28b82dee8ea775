"""A create that failed is tried again with the same command: nothing that it leaves behind is in the way.

On every change that is read from the templates: what stays where its own create failed is in the way of the next
(tests/sandbox/aws/test_stacks.py shows it). Nightly the real CDK tries it with each stack of the production file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import blueprint
from ops.sandbox.month import last
from ops.synthesis import synthesize
from sandbox.aws.cdk import ROOT, CdkError
from sandbox.aws.cloudformation.template import in_order
from sandbox.aws.inventory import added, inventory
from sandbox.aws.rehearsal import Rehearsal
from tests.synthesized import shipped

pytestmark = [pytest.mark.sandbox]


@pytest.fixture
def rehearsal() -> Iterator[Rehearsal]:
    deployment = blueprint.load(ROOT / "deployments/production-us-east-1.yaml")
    with Rehearsal(deployment) as running:
        running.bootstrap()
        running.cdk.take(Path(synthesize(deployment, running.home / "cdk.out").directory))
        yield running


@pytest.mark.parametrize("name", ["production-us-east-1", "sandbox", "small"])
def test_nothing_stays_where_its_own_create_has_failed(name: str) -> None:
    policies = {
        f"{tier} {id_}": body.get("DeletionPolicy", "Delete")
        for tier, stack in shipped(name).items()
        for id_, body in stack.template["Resources"].items()
    }
    allowed = {"Delete", "RetainExceptOnCreate", "Snapshot"}
    assert {id_: policy for id_, policy in policies.items() if policy not in allowed} == {}
    assert ("RetainExceptOnCreate" in policies.values()) == (name != "sandbox")


@pytest.mark.nightly
def test_a_stack_of_production_comes_up_at_the_second_try(rehearsal: Rehearsal) -> None:
    assembly = rehearsal.home / "cdk.out"
    for stack in _in_order(assembly):
        before = inventory(rehearsal.session, rehearsal.aws.endpoint)
        template = json.loads((assembly / f"{stack}.template.json").read_text())
        rehearsal.faults.write_text(f"{stack}/{last(template)}\n")
        with pytest.raises(CdkError, match="a fault that a drill asked for"):
            rehearsal.cdk.deploy_only(stack)
        left = added(before, inventory(rehearsal.session, rehearsal.aws.endpoint))
        assert left == {"stack": 1}, f"{stack} leaves {left} behind"
        rehearsal.faults.unlink()
        rehearsal.cdk.deploy_only(stack)


def _in_order(assembly: Path) -> list[str]:
    """Return the stacks, each after those that it needs."""
    artifacts: dict[str, Any] = json.loads((assembly / "manifest.json").read_text())["artifacts"]
    needs = {
        name: {other for other in artifact.get("dependencies", []) if artifacts[other]["type"] == artifact["type"]}
        for name, artifact in artifacts.items()
        if artifact["type"] == "aws:cloudformation:stack"
    }
    return in_order(needs)
