"""Inputs of the contract's rules: tables, runbooks, synthesized templates."""

from functools import cache

import voice_blueprint
from tests.contract import runbook_rules
from tests.contract.templates import Template
from tests.synthesized import ROOT, Stacks, shipped
from voice_blueprint import Deployment
from voice_blueprint.aws.metrics import LOG_METRICS, SERVICE_METRICS
from voice_blueprint.contract.metrics import METRICS

DECLARED_METRICS = (
    *METRICS.values(),
    *SERVICE_METRICS.values(),
    *(counted.metric for counted in LOG_METRICS.values()),
)
RUNBOOKS = runbook_rules.read(ROOT / "docs" / "runbooks")


def templates_by_tier(stacks: Stacks) -> dict[str, Template]:
    """Return only the templates, by tier."""
    return {tier: stack.template for tier, stack in stacks.items()}


@cache
def deployment(name: str) -> Deployment:
    """Load a shipped deployment file."""
    return voice_blueprint.load(ROOT / "tests/deployments" / f"{name}.yaml")


SANDBOX = templates_by_tier(shipped("sandbox"))
"""Read-only: the fixture ``templates`` is a copy."""
