"""How the `voice` command talks: tables for people, JSON for pipelines, messages on stderr."""

import json
from collections import Counter
from pathlib import Path

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import blueprint
from blueprint import checks
from blueprint.checks import Finding, Level
from blueprint.file.model.deployment import Deployment
from ops.exits import REFUSED

out = Console(highlight=False)
if not out.is_terminal:
    out.width = max(out.width, 100)  # rich takes 80 for a pipe or a CI log, which cuts tables short
err = Console(stderr=True, highlight=False)

MARKS = {Level.ERROR: "[red]✗ error[/]", Level.WARNING: "[yellow]! warning[/]", Level.INFO: "[blue]i info[/]"}


def load(file: Path) -> Deployment:
    """Load a deployment file, or print every problem in it and exit with 2."""
    try:
        return blueprint.load(file)
    except blueprint.DeploymentFileError as error:
        for problem in error.problems:
            err.print(f"[red]✗[/] {escape(str(problem))}", soft_wrap=True)
        raise typer.Exit(REFUSED) from None


def load_checked(file: Path) -> Deployment:
    """Load a deployment file that no check refuses, or print the reasons and exit with 2."""
    deployment = load(file)
    blocking = [finding for finding in checks.run(deployment) if finding.blocks]
    if blocking:
        print_findings(err, deployment, blocking)
        raise typer.Exit(REFUSED)
    return deployment


def print_findings(console: Console, deployment: Deployment, findings: list[Finding]) -> None:
    """Print findings with their place in the file, remedy and source."""
    for finding in findings:
        check, violation = finding.check, finding.violation
        mark = "[green]✓ accepted[/]" if finding.accepted_because else MARKS[check.level]
        place = f"{deployment.source.file}:{deployment.source.line(violation.location)}"
        console.print(f"{mark} [bold]{check.id}[/] {escape(place)}", soft_wrap=True)
        console.print(f"  {escape(violation.message)}", soft_wrap=True)
        if finding.accepted_because:
            console.print(f"  [dim]accepted: {escape(finding.accepted_because)}[/]", soft_wrap=True)
            continue
        console.print(f"  → {escape(violation.remedy)}", soft_wrap=True)
        console.print(f"  [dim]{escape(check.source)}[/]", soft_wrap=True)


def finding_as_dict(deployment: Deployment, finding: Finding) -> dict[str, object]:
    check, violation = finding.check, finding.violation
    return {
        "check": check.id,
        "level": check.level.value,
        "blocks": finding.blocks,
        "location": ".".join(map(str, violation.location)),
        "line": deployment.source.line(violation.location),
        "message": violation.message,
        "remedy": violation.remedy,
        "source": check.source,
        "accepted_because": finding.accepted_because,
    }


def print_json(value: object) -> None:
    typer.echo(json.dumps(value, indent=2))


def stack_table(title: str, stacks: dict[str, Counter[str]]) -> Table:
    """Return a table of resource counts by stack and type."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("stack")
    table.add_column("resources", justify="right")
    table.add_column("types")
    for name, types in stacks.items():
        table.add_row(name, str(types.total()), describe_types(types))
    table.add_section()
    table.add_row("", str(sum(types.total() for types in stacks.values())), "")
    return table


def describe_types(types: Counter[str]) -> str:
    """Return a short list such as "9×EC2::Subnet, 1×EC2::VPC", most frequent first."""
    return ", ".join(f"{count}×{kind.removeprefix('AWS::')}" for kind, count in types.most_common())


def span(low: int, high: int) -> str:
    """Return a range such as "3-30"."""
    return f"{low}-{high}"
