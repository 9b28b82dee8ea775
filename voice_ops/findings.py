"""Loads and checks deployment files for commands, and prints findings."""

from collections.abc import Sequence
from pathlib import Path

import typer
from rich.console import Console

import voice_blueprint
from voice_blueprint import checks
from voice_blueprint.checks import Finding, Severity
from voice_blueprint.file.model.deployment import Deployment
from voice_ops.exits import INVALID_INPUT
from voice_ops.output import create_exit, err, format_markup, print_error, print_json_error
from voice_sandbox.changes import Outage

LEVEL_MARKS = {
    Severity.ERROR: "[red]✗ error[/]",
    Severity.WARNING: "[yellow]! warning[/]",
    Severity.INFO: "[blue]i info[/]",
}


def load_deployment(file: Path) -> Deployment:
    """Load a deployment file. If the file is invalid, print all problems and exit with status 2."""
    try:
        return voice_blueprint.load(file)
    except voice_blueprint.DeploymentFileError as error:
        for problem in error.problems:
            print_error(str(problem))
        print_json_error([str(problem) for problem in error.problems], INVALID_INPUT)
        raise typer.Exit(INVALID_INPUT) from None


def load_checked_deployment(file: Path) -> Deployment:
    """Load and check a deployment file. If a check fails, print the findings and exit with status 2."""
    deployment = load_deployment(file)
    blocking_findings = [finding for finding in checks.run_checks(deployment) if finding.is_blocking]
    if blocking_findings:
        print_findings(err, deployment, blocking_findings)
        print_json_error([finding.format_line(deployment.source) for finding in blocking_findings], INVALID_INPUT)
        raise typer.Exit(INVALID_INPUT)
    return deployment


def load_region_deployment(file: Path, region: str | None) -> Deployment:
    """Load and check a deployment file, and return the deployment in one region. On failure, exit with status 2.

    Args:
        file: Path of the deployment file.
        region: Region of the file. It is required if the file has several regions.
    """
    regions = {
        each.aws.region if each.aws_section else None: each for each in load_checked_deployment(file).split_by_region()
    }
    if region is None and len(regions) == 1:
        return next(iter(regions.values()))
    if region not in regions or region is None:
        named = ", ".join(filter(None, regions)) or "none"
        raise create_exit(f"--region {region or 'is missing'}; the AWS regions of {file}: {named}", INVALID_INPUT)
    return regions[region]


def load_region_deployments(file: Path, region: str | None) -> tuple[Deployment, ...]:
    """Load and check a deployment file, and return the deployment in each region or in the specified region."""
    return (
        load_checked_deployment(file).split_by_region() if region is None else (load_region_deployment(file, region),)
    )


def print_findings(console: Console, deployment: Deployment, findings: list[Finding]) -> None:
    """Print findings with their location in the file, their remedy and their source."""
    for finding in findings:
        check, violation = finding.check, finding.violation
        mark = "[green]✓ accepted[/]" if finding.acceptance_reason else LEVEL_MARKS[check.level]
        location = f"{deployment.source.file}:{deployment.source.find_line(violation.location)}"
        console.print(format_markup(f"{mark} [bold]{{}}[/] {{}}", check.id, location), soft_wrap=True)
        console.print(f"  {violation.message}", soft_wrap=True)
        if finding.acceptance_reason:
            console.print(format_markup("  [dim]accepted: {}[/]", finding.acceptance_reason), soft_wrap=True)
            continue
        console.print(f"  → {violation.remedy}", soft_wrap=True)
        console.print(format_markup("  [dim]{}[/]", check.source), soft_wrap=True)


def serialize_finding(deployment: Deployment, finding: Finding) -> dict[str, object]:
    check, violation = finding.check, finding.violation
    return {
        "check": check.id,
        "level": check.level.value,
        "blocks": finding.is_blocking,
        "location": ".".join(map(str, violation.location)),
        "line": deployment.source.find_line(violation.location),
        "message": violation.message,
        "remedy": violation.remedy,
        "source": check.source,
        "accepted_because": finding.acceptance_reason,
    }


def exit_on_outages(unaccepted: Sequence[Outage]) -> None:
    """Exit if a resource that serves calls or stores state would be replaced or deleted."""
    if unaccepted:
        lines = [
            *(each.format_summary() for each in unaccepted),
            # Resources of different types can have the same name.
            *dict.fromkeys(f"--accept-replace {each.name}" for each in unaccepted),
        ]
        raise create_exit(
            "refused: resources that serve calls or store state would be removed, replaced or deleted\n"
            + "\n".join(lines),
            INVALID_INPUT,
        )
