"""What the contract's rules are given: tables, runbooks, synthesized templates."""

from functools import cache

import blueprint
from blueprint import Deployment
from blueprint.aws.metrics import LOG_METRICS, SERVICE_METRICS
from blueprint.contract.metrics import METRICS
from tests.contract import runbook_rules
from tests.contract.templates import Template
from tests.synthesized import ROOT, Stacks, shipped

DECLARED = (
    *METRICS.values(),
    *SERVICE_METRICS.values(),
    *(counted.metric for counted in LOG_METRICS.values()),
)
RUNBOOKS = runbook_rules.read(ROOT / "docs" / "runbooks")


def templates_of(stacks: Stacks) -> dict[str, Template]:
    """Return the templates alone, by tier."""
    return {tier: stack.template for tier, stack in stacks.items()}


@cache
def deployment(name: str) -> Deployment:
    """Load a shipped deployment file."""
    return blueprint.load(ROOT / "deployments" / f"{name}.yaml")


SANDBOX = templates_of(shipped("sandbox"))
"""Not to be changed: the fixture ``templates`` is a copy."""
