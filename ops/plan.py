"""`voice plan`: what a deployment file would make, and what speaks against it."""

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.table import Table

from blueprint import checks
from blueprint.checks.fleets import Fleet, fleets
from blueprint.model.deployment import Deployment
from ops.exits import REFUSED
from ops.output import err, finding_as_dict, load, out, print_findings, print_json, stack_table
from ops.synthesis import templates

Json = Annotated[bool, typer.Option("--json", help="Print JSON for pipelines.")]
DeploymentFile = Annotated[
    Path, typer.Argument(metavar="FILE", help="Deployment file, such as deployments/sandbox.yaml.")
]


def plan(file: DeploymentFile, as_json: Json = False) -> None:
    """Check a deployment file; show its fleets, resources and what speaks against it.

    Needs no credentials and no network. Exits with 2 when a check refuses the file.

    Example: voice plan deployments/production-us-east-1.yaml
    """
    deployment = load(file)
    findings = checks.run(deployment)
    refused = any(finding.blocks for finding in findings)
    counts = {} if refused else resource_counts(deployment)
    if as_json:
        print_json(
            {
                "deployment": deployment.name,
                "refused": refused,
                "findings": [finding_as_dict(deployment, finding) for finding in findings],
                "fleets": [_fleet_as_dict(deployment, fleet) for fleet in fleets(deployment)],
                "resources": {stack: dict(types) for stack, types in counts.items()},
            }
        )
    else:
        out.print(_fleet_table(deployment))
        if counts:
            out.print(stack_table("resources by stack", counts))
        print_findings(out, deployment, findings)
    if refused:
        blocking = sum(finding.blocks for finding in findings)
        err.print(f"[red]refused[/]: {blocking} error(s); nothing was synthesized")
        raise typer.Exit(REFUSED)


def resource_counts(deployment: Deployment) -> dict[str, Counter[str]]:
    """Synthesize a deployment and count its resources by stack and type."""
    return {
        stack: Counter(resource["Type"] for resource in template["Resources"].values())
        for stack, template in templates(deployment).items()
    }


def _fleet_as_dict(deployment: Deployment, fleet: Fleet) -> dict[str, object]:
    price = fleet.instance_type.usd_per_hour.get(deployment.aws.region)
    return {
        "fleet": fleet.name,
        "instance_type": fleet.instance_type.name,
        "groups": fleet.groups,
        "zones": list(fleet.zones),
        "min_hosts": fleet.min_hosts,
        "max_hosts": fleet.max_hosts,
        "purchase": fleet.purchase.option if fleet.purchase else "on-demand",
        "usd_per_host_hour": price,
        "price_date": fleet.instance_type.price_date,
    }


def _fleet_table(deployment: Deployment) -> Table:
    aws = deployment.aws
    table = Table(
        title=f"{deployment.name} ({deployment.environment}): fleets in {aws.region}",
        title_justify="left",
        box=box.SIMPLE_HEAD,
    )
    for heading in ("fleet", "instance type", "accelerators"):
        table.add_column(heading, no_wrap=True)
    for heading in ("hosts", "vCPU", "USD/h"):
        table.add_column(heading, justify="right", no_wrap=True)
    for fleet in fleets(deployment):
        row = fleet.instance_type
        price = row.usd_per_hour.get(aws.region)
        table.add_row(
            fleet.name,
            row.name,
            f"{row.accelerator.count} x {row.accelerator.model}" if row.accelerator else "-",
            _range(fleet.min_hosts, fleet.max_hosts),
            _range(fleet.min_hosts * row.vcpus, fleet.max_hosts * row.vcpus),
            f"{price * fleet.min_hosts:,.2f}-{price * fleet.max_hosts:,.2f}" if price else "not listed",
        )
    table.caption = "USD/h: On-Demand list price of the hosts alone, minimum to maximum"
    table.caption_justify = "left"
    return table


def _range(low: int, high: int) -> str:
    return f"{low}-{high}"
