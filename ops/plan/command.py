"""`voice plan`: what a deployment file would make, and what speaks against it."""

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from blueprint import checks
from blueprint.checks.fleets import fleets
from blueprint.file.model.deployment import Deployment
from blueprint.file.model.load import CallLoad
from ops.exits import REFUSED
from ops.findings import finding_as_dict, load, print_findings, refuse
from ops.options import AcceptReplace, DeploymentFile, Json
from ops.output import out, print_json, stack_table, stop
from ops.plan.capacity import capacity_as_dict, capacity_table, conversation_tables, conversations_as_dict
from ops.plan.hosts import fleet_table, pool_table
from ops.plan.sizing import sizing_as_dict, sizing_tables
from ops.synthesis import templates

CALLS_HELP = "Size for so many calls at a time (mean of a month) instead of the file's `load.calls`."
CONVERSATIONS_HELP = "The same, and each call is a conversation with an agent."
AGAINST_HELP = "Show what a deploy would replace or delete of the release that `--record` has kept in FOLDER."
RECORD_HELP = "Keep what this file makes now in FOLDER, to compare a later release or file with it."
RESOURCES_HELP = "Synthesize the AWS half too, and count its resources by stack and type."


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
    """Check a deployment file; show its fleets, pools, sizing and what speaks against it.

    Needs no credentials and no network. Exits with 2 when a check refuses the file, and when something of the recorded
    release that serves or holds state would be replaced or deleted.

    Example: voice plan deployments/production-us-east-1.yaml --calls 500
    """
    deployment = load(file)
    if calls or conversations:
        deployment = _with_callers(deployment, calls, conversations)
    findings = checks.run(deployment)
    refused = any(finding.blocks for finding in findings)
    if resources and not deployment.aws_half:
        raise stop(
            f"{file}: has no section `aws`; `voice preview azure` shows the resources of its section `azure`", REFUSED
        )
    counts = resource_counts(deployment) if resources and not refused else {}
    comparison = None
    if (against or record) and not refused:
        from ops.plan import release  # noqa: PLC0415  a plan by itself synthesizes nothing

        comparison = release.Comparison.of(deployment, against, accept_replace or ()) if against else None
        if record and not (comparison and comparison.away):
            release.record(deployment, record)
    if as_json:
        print_json(
            {
                "refused": refused,
                "findings": [finding_as_dict(deployment, finding) for finding in findings],
                "fleets": list(fleets(deployment)),
                "capacity": capacity_as_dict(deployment),
                "conversations": conversations_as_dict(deployment),
                "pools": deployment.azure_half.pools if deployment.azure_half else (),
                "sizing": sizing_as_dict(deployment),
            }
            | ({"resources": counts} if resources else {})
            | ({"outages": [vars(each) for each in comparison.away]} if comparison else {}),
            deployment.name,
        )
    else:
        _print_tables(deployment, counts)
        print_findings(out, deployment, findings)
        if comparison:
            out.print(f"against {against}: {comparison.summary}", soft_wrap=True)
    if refused:
        blocking = sum(finding.blocks for finding in findings)
        raise stop(f"refused: {blocking} error(s)", REFUSED)
    if comparison:
        refuse(comparison.away)


def _with_callers(deployment: Deployment, calls: int | None, conversations: int | None) -> Deployment:
    if calls and conversations:
        raise stop("--calls and --conversations both say how many callers there are; give one of them", REFUSED)
    if conversations and not any(half and half.agents for half in (deployment.aws_half, deployment.azure_half)):
        raise stop("the file has no section `agents`, so nothing holds conversations; --calls sizes the rest", REFUSED)
    typed = deployment.load.model_dump() if deployment.load else {}
    typed |= {"calls": calls} if calls else {"calls": conversations, "conversation_share": 1.0}
    return deployment.model_copy(update={"load": CallLoad(**typed)})


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
    if capacity := capacity_table(deployment):
        out.print(capacity)
    for table in conversation_tables(deployment):
        out.print(table)
    for table in sizing_tables(deployment):
        out.print(table)
    if counts:
        out.print(stack_table("resources by stack", counts))
