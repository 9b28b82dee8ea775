"""A create that failed is tried again with the same command, stack by stack of the production file, by the real CDK."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import blueprint
from ops.synthesis import synthesize
from sandbox.aws.cdk import ROOT, CdkError
from sandbox.aws.cloudformation.template import in_order
from sandbox.aws.inventory import added, inventory
from sandbox.aws.rehearsal import Rehearsal
from tests.sandbox.fleet import last

pytestmark = [pytest.mark.sandbox]


@pytest.fixture
def rehearsal() -> Iterator[Rehearsal]:
    deployment = blueprint.load(ROOT / "deployments/production-us-east-1.yaml")
    with Rehearsal(deployment) as running:
        running.bootstrap()
        running.cdk.take(Path(synthesize(deployment, running.home / "cdk.out").directory))
        yield running


@pytest.mark.parametrize("count", [3, pytest.param(None, marks=pytest.mark.nightly)], ids=["first", "all"])
def test_a_stack_of_production_comes_up_at_the_second_try(rehearsal: Rehearsal, count: int | None) -> None:
    """The first stacks have what a failed create left behind: named log groups, repositories, keys, a snapshot."""
    assembly = rehearsal.home / "cdk.out"
    for stack in _in_order(assembly)[:count]:
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
