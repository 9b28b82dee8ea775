"""Checks on a deployment file before a deploy."""

from collections.abc import Iterator
from dataclasses import replace
from types import ModuleType

from voice_blueprint.checks import agents, callers, engines, limits, live, supply
from voice_blueprint.checks.aws import capacity, edge, load, machines, network, regions, scaling, vad_host
from voice_blueprint.checks.azure import callers as azure_callers
from voice_blueprint.checks.azure import capacity as azure_capacity
from voice_blueprint.checks.azure import models, pools, sizing, topology
from voice_blueprint.checks.base import Check, Finding, Severity, Violation, deployment_check
from voice_blueprint.file.model.deployment import Deployment
from voice_blueprint.file.suggestion import format_suggestion

__all__ = [
    "CHECKS",
    "Check",
    "Finding",
    "Severity",
    "Violation",
    "format_blocking_findings",
    "run_checks",
    "select_applicable_checks",
]


@deployment_check(
    "accepted-checks-exist",
    "Every accepted check exists, and can be accepted.",
    source="voice_blueprint/checks",
    is_acceptable=False,
)
def check_accepted_checks_exist(deployment: Deployment) -> Iterator[Violation]:
    checks_by_id = {checks_by_id.id: checks_by_id for checks_by_id in CHECKS}
    for index, accepted in enumerate(deployment.accepted_checks):
        at = ("accepted_checks", index, "id")
        if accepted.id not in checks_by_id:
            message = f"there is no check `{accepted.id}`{format_suggestion(accepted.id, list(checks_by_id))}"
            yield Violation(at, message, "`voice checks` lists them")
        elif not checks_by_id[accepted.id].is_acceptable:
            yield Violation(
                at,
                f"`{accepted.id}` cannot be accepted: no resources can be created from such a file",
                "fix the finding",
            )


def _collect_checks(*modules: ModuleType) -> tuple[Check, ...]:
    return tuple(value for module in modules for value in vars(module).values() if isinstance(value, Check))


AWS_CHECKS = _collect_checks(vad_host, capacity, machines, load, network, edge, scaling)
AZURE_CHECKS = _collect_checks(azure_capacity, pools, topology, sizing, models, azure_callers)
COMMON_CHECKS = (*_collect_checks(engines, callers, supply, live, agents, limits), check_accepted_checks_exist)
REGION_CHECKS = _collect_checks(regions)
"""Checks that compare all regions."""
CHECKS: tuple[Check, ...] = (*AWS_CHECKS, *REGION_CHECKS, *AZURE_CHECKS, *COMMON_CHECKS)
"""All checks in reporting order."""


def select_applicable_checks(deployment: Deployment) -> tuple[Check, ...]:
    """Return the checks that apply to a deployment."""
    return (
        *(AWS_CHECKS if deployment.aws_section else ()),
        *(AZURE_CHECKS if deployment.azure_section else ()),
        *COMMON_CHECKS,
    )


def run_checks(deployment: Deployment) -> list[Finding]:
    """Run all checks that apply to a deployment, and return their findings, errors first."""
    reasons = {accepted.id: accepted.reason for accepted in deployment.accepted_checks}
    first, *other_regions = deployment.split_by_region()
    results = [
        (rule, violation) for rule in select_applicable_checks(first) for violation in rule.check_deployment(first)
    ]
    for index, other in enumerate(other_regions):
        # A finding that also exists in the first region is reported only once.
        results += [
            (rule, _add_region_to_violation(deployment, index, violation))
            for rule in (*AWS_CHECKS, *COMMON_CHECKS)
            for violation in rule.check_deployment(other)
            if (rule, violation) not in results
        ]
    results += [(rule, violation) for rule in REGION_CHECKS for violation in rule.check_deployment(deployment)]
    findings = [
        Finding(rule, violation, reasons.get(rule.id) if rule.is_acceptable else None) for rule, violation in results
    ]
    order = list(Severity)
    return sorted(findings, key=lambda finding: order.index(finding.check.level))


def _add_region_to_violation(deployment: Deployment, index: int, violation: Violation) -> Violation:
    """Return a finding from another region, with the name of the region in its message.

    If the region overrides the setting, the finding refers to the line of the override.
    """
    other = deployment.aws.other_regions[index]
    at = violation.location
    if other.overrides(at):
        at = ("aws", "other_regions", index, *at[1:])
    return replace(violation, location=at, message=f"in {other.region} {violation.message}")


def format_blocking_findings(deployment: Deployment) -> list[str]:
    """Return a line for each finding that prevents a deploy."""
    return [result.format_line(deployment.source) for result in run_checks(deployment) if result.is_blocking]
