"""`voice plan`: what a deployment file would make, and what speaks against it."""

from collections import Counter

import typer

from blueprint import checks
from blueprint.checks.fleets import fleets
from blueprint.file.model.deployment import Deployment
from ops.exits import REFUSED
from ops.options import DeploymentFile, Json
from ops.output import err, finding_as_dict, load, out, print_findings, print_json, stack_table
from ops.plan.fleets import fleet_as_dict, fleet_table
from ops.plan.pools import pool_as_dict, pool_table, pools
from ops.plan.sizing import sizing_as_dict, sizing_tables
from ops.synthesis import templates


def plan(file: DeploymentFile, as_json: Json = False) -> None:
    """Check a deployment file; show its fleets, pools, sizing, resources and what speaks against it.

    Needs no credentials and no network. Exits with 2 when a check refuses the file.

    Example: voice plan deployments/production-us-east-1.yaml
    """
    deployment = load(file)
    findings = checks.run(deployment)
    refused = any(finding.blocks for finding in findings)
    counts = {} if refused or not deployment.aws_half else resource_counts(deployment)
    if as_json:
        print_json(
            {
                "deployment": deployment.name,
                "refused": refused,
                "findings": [finding_as_dict(deployment, finding) for finding in findings],
                "fleets": [fleet_as_dict(deployment, fleet) for fleet in fleets(deployment)],
                "pools": [pool_as_dict(deployment.azure, pool) for pool in pools(deployment)],
                "sizing": sizing_as_dict(deployment),
                "resources": {stack: dict(types) for stack, types in counts.items()},
            }
        )
    else:
        _print_tables(deployment, counts)
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


def _print_tables(deployment: Deployment, counts: dict[str, Counter[str]]) -> None:
    if deployment.aws_half:
        out.print(fleet_table(deployment))
    if deployment.azure_half:
        out.print(pool_table(deployment))
    for table in sizing_tables(deployment):
        out.print(table)
    if counts:
        out.print(stack_table("resources by stack", counts))
