"""What has to hold before a deployment reaches a cloud."""

from collections.abc import Iterator

from blueprint.checks import (
    azure_capacity,
    azure_models,
    azure_pools,
    azure_sizing,
    azure_topology,
    capacity,
    edge,
    network,
    scaling,
    supply,
    vad_host,
)
from blueprint.checks.base import Check, Finding, Level, Violation
from blueprint.file.loading import suggestion
from blueprint.file.model.deployment import Deployment

__all__ = ["CHECKS", "Check", "Finding", "Level", "Violation", "applicable", "refusals", "run"]


class AcceptedChecksExist(Check):
    """A misspelt acceptance accepts nothing."""

    id = "accepted-checks-exist"
    level = Level.ERROR
    about = "Every accepted check exists."
    source = "blueprint/checks"

    def examine(self, deployment: Deployment) -> Iterator[Violation]:
        """Look each accepted id up."""
        known = [check.id for check in CHECKS]
        for index, accepted in enumerate(deployment.accepted_checks):
            if accepted.id not in known:
                yield Violation(
                    ("accepted_checks", index, "id"),
                    f"there is no check `{accepted.id}`{suggestion(accepted.id, known)}",
                    "`voice checks` lists them",
                )


AWS_CHECKS: tuple[Check, ...] = (
    *vad_host.CHECKS,
    *capacity.CHECKS,
    *network.CHECKS,
    *edge.CHECKS,
    *scaling.CHECKS,
)
AZURE_CHECKS: tuple[Check, ...] = (
    *azure_capacity.CHECKS,
    *azure_pools.CHECKS,
    *azure_topology.CHECKS,
    *azure_sizing.CHECKS,
    *azure_models.CHECKS,
)
COMMON_CHECKS: tuple[Check, ...] = (*supply.CHECKS, AcceptedChecksExist())
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
        Finding(check, violation, reasons.get(check.id))
        for check in applicable(deployment)
        for violation in check.examine(deployment)
    ]
    order = list(Level)
    return sorted(findings, key=lambda finding: order.index(finding.check.level))


def refusals(deployment: Deployment) -> list[str]:
    """Return why a deployment must not go on, a line for each reason; nothing when it may."""
    source = deployment.source
    return [
        f"{source.file}:{source.line(found.violation.location)}: [{found.check.id}] "
        f"{found.violation.message}; {found.violation.remedy}"
        for found in run(deployment)
        if found.blocks
    ]
