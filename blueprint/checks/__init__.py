"""What has to hold before a deployment reaches a cloud."""

from collections.abc import Iterator
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
CHECKS: tuple[Check, ...] = (*AWS_CHECKS, *AZURE_CHECKS, *COMMON_CHECKS)
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
    findings = [
        Finding(rule, violation, reasons.get(rule.id) if rule.acceptable else None)
        for rule in applicable(deployment)
        for violation in rule.examine(deployment)
    ]
    order = list(Level)
    return sorted(findings, key=lambda finding: order.index(finding.check.level))


def refusals(deployment: Deployment) -> list[str]:
    """Return why a deployment must not go on, a line for each reason; nothing when it may."""
    return [found.text(deployment.source) for found in run(deployment) if found.blocks]
