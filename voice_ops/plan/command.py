"""`voice plan`: check a deployment file, and show its sizes and problems."""

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from voice_blueprint import checks
from voice_blueprint.aws.fleets import iter_fleets
from voice_blueprint.capacity.load import calculate_peak_calls, requires_multiple_deployments
from voice_blueprint.day import resolve_design_load
from voice_blueprint.file.model.deployment import Deployment
from voice_blueprint.file.model.load import CallLoad, Cells
from voice_ops.exits import INVALID_INPUT
from voice_ops.findings import exit_on_outages, load_deployment, print_findings, serialize_finding
from voice_ops.options import AcceptReplaceOption, DeploymentFileArgument, JsonOption
from voice_ops.output import create_exit, create_stack_table, err, out, print_json
from voice_ops.plan.capacity import (
    create_capacity_table,
    create_conversation_tables,
    serialize_capacity,
    serialize_conversations,
)
from voice_ops.plan.cells import CellPlan, create_cell_tables, plan_cells, serialize_cells
from voice_ops.plan.hosts import create_fleet_table, create_pool_table
from voice_ops.plan.sizing import create_sizing_tables, serialize_sizing
from voice_ops.plan.turns import create_turn_tables, serialize_turns
from voice_ops.synthesis import synthesize_templates

CALLS_HELP = "Concurrent calls to size for, instead of `load.calls`."
CONVERSATIONS_HELP = "Concurrent conversations with agents to size for."
AGAINST_HELP = "Compare with the release that --record saved in FOLDER: show replaced and deleted resources."
RECORD_HELP = "Save the file's resources in FOLDER, for a later comparison with --against."
RESOURCES_HELP = "Synthesize the AWS section too, and count its resources by stack and type."


def plan(
    file: DeploymentFileArgument,
    *,
    calls: Annotated[int | None, typer.Option("--calls", metavar="N", min=1, help=CALLS_HELP)] = None,
    conversations: Annotated[
        int | None, typer.Option("--conversations", metavar="N", min=1, help=CONVERSATIONS_HELP)
    ] = None,
    as_json: JsonOption = False,
    resources: Annotated[bool, typer.Option("--resources", help=RESOURCES_HELP)] = False,
    against: Annotated[Path | None, typer.Option("--against", metavar="FOLDER", help=AGAINST_HELP)] = None,
    record: Annotated[Path | None, typer.Option("--record", metavar="FOLDER", help=RECORD_HELP)] = None,
    accept_replace: AcceptReplaceOption = None,
) -> None:
    """Check a deployment file, and show its fleets, pools, sizes and problems.

    Requires no credentials and no network. Exits with 2 if a check refuses the file, or if a deploy over the recorded
    release would replace or delete a resource that serves calls or stores state, or make a change that Azure refuses.
    If one state store cannot support the calls, the plan uses cells (independent copies of the deployment), and shows
    the number of cells, accounts, quotas and the list price.

    Example: voice plan deployments/production-us-east-1.yaml --calls 500
    """
    deployment_with_load = _override_load(load_deployment(file), calls, conversations)
    cells, deployment = plan_cells(deployment_with_load), deployment_with_load.cell
    findings = checks.run_checks(deployment)
    refused = any(finding.is_blocking for finding in findings)
    if resources and not deployment.aws_section:
        raise create_exit(
            f"{file} has no section `aws`; `voice preview azure` shows the resources of the section `azure`",
            INVALID_INPUT,
        )
    counts = count_resources(deployment) if resources and not refused else {}
    comparison = None
    if (against or record) and not refused:
        from voice_ops.plan import release  # noqa: PLC0415  only needed for --against and --record

        comparison = (
            release.ReleaseComparison.from_record(deployment, against, accept_replace or ()) if against else None
        )
        if record and not (comparison and comparison.is_refused):
            release.record_release(deployment, record)
    if as_json:
        print_json(
            {
                "refused": refused,
                "findings": [serialize_finding(deployment, finding) for finding in findings],
                "fleets": list(iter_fleets(deployment)),
                "capacity": serialize_capacity(deployment),
                "conversations": serialize_conversations(deployment),
                "turns": serialize_turns(deployment),
                "pools": deployment.azure_section.pools if deployment.azure_section else (),
                "sizing": serialize_sizing(deployment),
            }
            | ({"cells": serialize_cells(cells)} if cells else {})
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
        raise create_exit(f"refused: {blocking} error(s)", INVALID_INPUT)
    if comparison and comparison.refusals:
        raise create_exit(
            "\n".join(["refused: Azure would refuse requests of a deploy", *comparison.refusals]), INVALID_INPUT
        )
    if comparison:
        exit_on_outages(comparison.outages)


def _override_load(deployment: Deployment, calls: int | None, conversations: int | None) -> Deployment:
    if not (calls or conversations):
        return deployment
    if calls and conversations:
        raise create_exit(
            "--calls and --conversations both set the number of callers; specify one of them", INVALID_INPUT
        )
    if conversations and not any(
        section and section.agents for section in (deployment.aws_section, deployment.azure_section)
    ):
        raise create_exit(
            "the file has no section `agents`, so it supports no conversations; use --calls for the other tiers",
            INVALID_INPUT,
        )
    load_values = deployment.load.model_dump() if deployment.load else {}
    load_values |= {"calls": calls} if calls else {"calls": conversations, "conversation_share": 1.0}
    loaded_deployment = deployment.model_copy(update={"load": CallLoad(**load_values)})
    if deployment.cells or not requires_multiple_deployments(loaded_deployment):
        return loaded_deployment
    # The load exceeds every state store, so it requires several copies of the deployment.
    return loaded_deployment.model_copy(
        update={"cells": Cells(calls=calculate_peak_calls(resolve_design_load(deployment)))}
    )


def count_resources(deployment: Deployment) -> dict[str, Counter[str]]:
    """Synthesize a deployment and count its resources by stack and type."""
    return {
        stack: Counter(resource["Type"] for resource in template["Resources"].values())
        for stack, template in synthesize_templates(deployment).items()
    }


def _print_tables(deployment: Deployment, counts: dict[str, Counter[str]], cells: CellPlan | None) -> None:
    for table in create_cell_tables(cells) if cells else ():
        out.print(table)
    if deployment.aws_section:
        out.print(create_fleet_table(deployment))
    if deployment.azure_section:
        out.print(create_pool_table(deployment))
    if capacity := create_capacity_table(deployment):
        out.print(capacity)
    for table in (*create_conversation_tables(deployment), *create_turn_tables(deployment)):
        out.print(table)
    for table in create_sizing_tables(deployment):
        out.print(table)
    if counts:
        out.print(create_stack_table("resources by stack", counts))
