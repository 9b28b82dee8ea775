"""`voice plan`: check a deployment file, and show its sizes and problems."""

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from voice_blueprint import checks
from voice_blueprint.aws.fleets import fleets
from voice_blueprint.capacity.load import exceeds_one_deployment, peak_calls
from voice_blueprint.day import design_load
from voice_blueprint.file.model.deployment import Deployment
from voice_blueprint.file.model.load import CallLoad, Cells
from voice_ops.exits import REFUSED
from voice_ops.findings import finding_as_dict, load, print_findings, refuse_outages
from voice_ops.options import AcceptReplace, DeploymentFile, Json
from voice_ops.output import err, out, print_json, stack_table, stop
from voice_ops.plan.capacity import capacity_as_dict, capacity_table, conversation_tables, conversations_as_dict
from voice_ops.plan.cells import CellPlan, cell_tables, cells_as_dict, plan_cells
from voice_ops.plan.hosts import fleet_table, pool_table
from voice_ops.plan.sizing import sizing_as_dict, sizing_tables
from voice_ops.plan.turns import turn_tables, turns_as_dict
from voice_ops.synthesis import templates

CALLS_HELP = "Concurrent calls to size for, instead of `load.calls`."
CONVERSATIONS_HELP = "Concurrent conversations with agents to size for."
AGAINST_HELP = "Compare with the release that --record saved in FOLDER: show replaced and deleted resources."
RECORD_HELP = "Save the file's resources in FOLDER, for a later comparison with --against."
RESOURCES_HELP = "Synthesize the AWS section too, and count its resources by stack and type."


def plan(
    file: DeploymentFile,
    *,
    calls: Annotated[int | None, typer.Option("--calls", metavar="N", min=1, help=CALLS_HELP)] = None,
    conversations: Annotated[
        int | None, typer.Option("--conversations", metavar="N", min=1, help=CONVERSATIONS_HELP)
    ] = None,
    as_json: Json = False,
    resources: Annotated[bool, typer.Option("--resources", help=RESOURCES_HELP)] = False,
    against: Annotated[Path | None, typer.Option("--against", metavar="FOLDER", help=AGAINST_HELP)] = None,
    record: Annotated[Path | None, typer.Option("--record", metavar="FOLDER", help=RECORD_HELP)] = None,
    accept_replace: AcceptReplace = None,
) -> None:
    """Check a deployment file, and show its fleets, pools, sizes and problems.

    Requires no credentials and no network. Exits with 2 if a check refuses the file, or if a deploy would replace or
    delete a resource of the recorded release that serves calls or stores state. If one state store cannot support the
    calls, the plan uses cells (independent copies of the deployment), and shows the number of cells, accounts, quotas
    and the list price.

    Example: voice plan deployments/production-us-east-1.yaml --calls 500
    """
    deployment_with_load = _with_load(load(file), calls, conversations)
    cells, deployment = plan_cells(deployment_with_load), deployment_with_load.cell
    findings = checks.run_checks(deployment)
    refused = any(finding.is_blocking for finding in findings)
    if resources and not deployment.aws_section:
        raise stop(
            f"{file} has no section `aws`; `voice preview azure` shows the resources of the section `azure`", REFUSED
        )
    counts = resource_counts(deployment) if resources and not refused else {}
    comparison = None
    if (against or record) and not refused:
        from voice_ops.plan import release  # noqa: PLC0415  only needed for --against and --record

        comparison = release.Comparison.from_record(deployment, against, accept_replace or ()) if against else None
        if record and not (comparison and comparison.outages):
            release.record_release(deployment, record)
    if as_json:
        print_json(
            {
                "refused": refused,
                "findings": [finding_as_dict(deployment, finding) for finding in findings],
                "fleets": list(fleets(deployment)),
                "capacity": capacity_as_dict(deployment),
                "conversations": conversations_as_dict(deployment),
                "turns": turns_as_dict(deployment),
                "pools": deployment.azure_section.pools if deployment.azure_section else (),
                "sizing": sizing_as_dict(deployment),
            }
            | ({"cells": cells_as_dict(cells)} if cells else {})
            | ({"resources": counts} if resources else {})
            | (comparison.as_dict() if comparison else {}),
            deployment.name,
        )
    else:
        _print_tables(deployment, counts, cells)
        for console, blocks in ((out, False), (err, True)):
            print_findings(console, deployment, [each for each in findings if each.is_blocking is blocks])
        if comparison:
            out.print(f"against {against!s}: {comparison.text}", soft_wrap=True)
    if refused:
        blocking = sum(finding.is_blocking for finding in findings)
        raise stop(f"refused: {blocking} error(s)", REFUSED)
    if comparison:
        refuse_outages(comparison.outages)


def _with_load(deployment: Deployment, calls: int | None, conversations: int | None) -> Deployment:
    if not (calls or conversations):
        return deployment
    if calls and conversations:
        raise stop("--calls and --conversations both set the number of callers; specify one of them", REFUSED)
    if conversations and not any(
        section and section.agents for section in (deployment.aws_section, deployment.azure_section)
    ):
        raise stop(
            "the file has no section `agents`, so it supports no conversations; use --calls for the other tiers",
            REFUSED,
        )
    load_values = deployment.load.model_dump() if deployment.load else {}
    load_values |= {"calls": calls} if calls else {"calls": conversations, "conversation_share": 1.0}
    loaded_deployment = deployment.model_copy(update={"load": CallLoad(**load_values)})
    if deployment.cells or not exceeds_one_deployment(loaded_deployment):
        return loaded_deployment
    # The load exceeds every state store, so it requires several copies of the deployment.
    return loaded_deployment.model_copy(update={"cells": Cells(calls=peak_calls(design_load(deployment)))})


def resource_counts(deployment: Deployment) -> dict[str, Counter[str]]:
    """Synthesize a deployment and count its resources by stack and type."""
    return {
        stack: Counter(resource["Type"] for resource in template["Resources"].values())
        for stack, template in templates(deployment).items()
    }


def _print_tables(deployment: Deployment, counts: dict[str, Counter[str]], cells: CellPlan | None) -> None:
    for table in cell_tables(cells) if cells else ():
        out.print(table)
    if deployment.aws_section:
        out.print(fleet_table(deployment))
    if deployment.azure_section:
        out.print(pool_table(deployment))
    if capacity := capacity_table(deployment):
        out.print(capacity)
    for table in (*conversation_tables(deployment), *turn_tables(deployment)):
        out.print(table)
    for table in sizing_tables(deployment):
        out.print(table)
    if counts:
        out.print(stack_table("resources by stack", counts))
