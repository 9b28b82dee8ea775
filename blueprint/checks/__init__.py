"""What has to hold before a deployment reaches a cloud."""

from collections.abc import Iterator
from dataclasses import replace
from types import ModuleType

from blueprint.checks import (
    agents,
    azure_callers,
    azure_capacity,
    azure_models,
    azure_pools,
    azure_sizing,
    azure_topology,
    capacity,
    edge,
    live,
    load,
    network,
    regions,
    scaling,
    supply,
    vad_host,
)
from blueprint.checks.base import Check, Finding, Level, Violation, check
from blueprint.file.loading import suggestion
from blueprint.file.model.deployment import Deployment

__all__ = ["CHECKS", "Check", "Finding", "Level", "Violation", "applicable", "refusals", "run"]


@check(
    "accepted-checks-exist",
    "Every accepted check exists, and can be accepted.",
    source="blueprint/checks",
    acceptable=False,
)
def accepted_checks_exist(deployment: Deployment) -> Iterator[Violation]:
    known = {known.id: known for known in CHECKS}
    for index, accepted in enumerate(deployment.accepted_checks):
        at = ("accepted_checks", index, "id")
        if accepted.id not in known:
            message = f"there is no check `{accepted.id}`{suggestion(accepted.id, list(known))}"
            yield Violation(at, message, "`voice checks` lists them")
        elif not known[accepted.id].acceptable:
            yield Violation(
                at,
                f"`{accepted.id}` cannot be accepted: nothing could be made from the file then",
                "mend what it finds",
            )


def _of(*modules: ModuleType) -> tuple[Check, ...]:
    return tuple(value for module in modules for value in vars(module).values() if isinstance(value, Check))


AWS_CHECKS = _of(vad_host, capacity, load, network, edge, scaling)
AZURE_CHECKS = _of(azure_capacity, azure_pools, azure_topology, azure_sizing, azure_models, azure_callers)
COMMON_CHECKS = (*_of(supply, live, agents), accepted_checks_exist)
REGION_CHECKS = _of(regions)
"""Of all regions together."""
CHECKS: tuple[Check, ...] = (*AWS_CHECKS, *REGION_CHECKS, *AZURE_CHECKS, *COMMON_CHECKS)
"""Every check, in the order of reporting."""


def applicable(deployment: Deployment) -> tuple[Check, ...]:
    """Return the checks of what a deployment has."""
    return (
        *(AWS_CHECKS if deployment.aws_half else ()),
        *(AZURE_CHECKS if deployment.azure_half else ()),
        *COMMON_CHECKS,
    )


def run(deployment: Deployment) -> list[Finding]:
    """Return what the checks find, errors first, each in the order of the file's sections."""
    reasons = {accepted.id: accepted.reason for accepted in deployment.accepted_checks}
    first, *others = deployment.in_regions()
    found = [(rule, violation) for rule in applicable(first) for violation in rule.examine(first)]
    for index, other in enumerate(others):
        # What holds in the first region as well is said once.
        found += [
            (rule, _elsewhere(deployment, index, violation))
            for rule in AWS_CHECKS
            for violation in rule.examine(other)
            if (rule, violation) not in found
        ]
    found += [(rule, violation) for rule in REGION_CHECKS for violation in rule.examine(deployment)]
    findings = [
        Finding(rule, violation, reasons.get(rule.id) if rule.acceptable else None) for rule, violation in found
    ]
    order = list(Level)
    return sorted(findings, key=lambda finding: order.index(finding.check.level))


def _elsewhere(deployment: Deployment, index: int, violation: Violation) -> Violation:
    """Return what another region breaks, at its own line where it has one."""
    other = deployment.aws.other_regions[index]
    at = violation.location
    if other.says(at):
        at = ("aws", "other_regions", index, *at[1:])
    return replace(violation, location=at, message=f"in {other.region} {violation.message}")


def refusals(deployment: Deployment) -> list[str]:
    """Return why a deployment must not go on, a line for each reason; nothing when it may."""
    return [found.text(deployment.source) for found in run(deployment) if found.blocks]
