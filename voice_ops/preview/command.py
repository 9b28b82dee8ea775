"""`voice preview`: show the resources that a deployment would create, without access to the cloud."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from voice_blueprint.file.model.deployment import Deployment
from voice_blueprint.shipped import WORKING_FOLDER
from voice_ops.exits import EXIT_CODES_HELP, INVALID_INPUT
from voice_ops.findings import exit_on_outages, load_checked_deployment
from voice_ops.options import AcceptReplaceOption, DeploymentFileArgument, JsonOption
from voice_ops.output import create_exit, format_markup, out, print_json
from voice_ops.preview.changes import (
    compare_with_record,
    find_rejected_requests,
    find_unaccepted_outages,
    list_recorded_preview_paths,
    rehearse_deployment,
)
from voice_ops.preview.tree import create_resource_tree, format_resource_counts, print_rejections, print_violations
from voice_sandbox.azure import state
from voice_sandbox.azure.cli_json import build_preview_json
from voice_sandbox.azure.diff import Step
from voice_sandbox.azure.policy import PolicyViolation
from voice_sandbox.azure.refusals import Rejection
from voice_sandbox.changes import summarize_operations
from voice_sandbox.rehearsals.azure import CreatedProject

app = typer.Typer(no_args_is_help=True, add_completion=False)

DEPENDENCIES_HELP = "Show the dependencies of each resource."
STATE_HELP = (
    "Folder whose .voice/ contains the last preview, to compare with. Default: the repository, or the current folder "
    "if voice is installed as a package."
)


@app.callback(epilog=EXIT_CODES_HELP)
def _preview_callback() -> None:
    """Show the resources that a deployment would create, without access to the cloud."""


@app.command("azure", epilog=EXIT_CODES_HELP)
def azure(
    file: DeploymentFileArgument,
    as_json: JsonOption = False,
    dependencies: Annotated[bool, typer.Option("--dependencies", help=DEPENDENCIES_HELP)] = False,
    accept_replace: AcceptReplaceOption = None,
    preview_folder: Annotated[
        Path,
        typer.Option(
            "--state",
            metavar="PATH",
            help=STATE_HELP,
            show_default=False,
        ),
    ] = WORKING_FOLDER,
) -> None:
    """Show the resources that the Pulumi programs would create, and the changes since the last preview.

    The programs run against a local engine. Resources are validated against the installed SDK, the policy pack and
    documented limits of Azure's services; a simulated deployment validates their order. Requires no Pulumi CLI, no
    credentials and no network. Exits with 2 if a resource is refused, or if a resource that serves calls or stores
    state would be replaced.

    Example: voice preview azure deployments/production-azure.yaml --dependencies
    """
    deployment = load_checked_deployment(file)
    if deployment.azure_section is None:
        raise create_exit(f"{file} has no section `azure`, so there is nothing to preview", INVALID_INPUT)
    rehearsed, violations = rehearse_deployment(deployment)
    print_preview(
        deployment,
        rehearsed,
        violations,
        preview_folder,
        as_json=as_json,
        dependencies=dependencies,
        accepted=accept_replace or (),
    )


def print_preview(
    deployment: Deployment,
    rehearsed: list[CreatedProject],
    violations: list[PolicyViolation],
    preview_folder: Path,
    *,
    as_json: bool,
    dependencies: bool,
    accepted: Sequence[str] = (),
) -> None:
    """Print the preview of each project with the changes since the last preview.

    The previews are stored for the next comparison unless a policy or a service rejects the change, or the change would
    cause an outage.
    """
    files = list_recorded_preview_paths(preview_folder, deployment, rehearsed)
    steps = compare_with_record(files, rehearsed)
    outages_found = find_unaccepted_outages(steps, accepted)
    refusals = find_rejected_requests(rehearsed, steps)
    if as_json:
        report = _serialize_report(rehearsed, steps, violations, refusals) | {
            "outages": [vars(each) for each in outages_found]
        }
        print_json(report, deployment.name)
    else:
        for each, changes in zip(rehearsed, steps, strict=True):
            _print_project(each, changes, deployment.source.file, dependencies=dependencies)
        print_violations(out, violations)
        print_rejections(out, refusals)
    mandatory_count = sum(violation.mandatory for violation in violations)
    counts = ((mandatory_count, "mandatory policy violation(s)"), (len(refusals), "request(s) that Azure would refuse"))
    if reasons := [f"{count} {description}" for count, description in counts if count]:
        raise create_exit(f"refused: {' and '.join(reasons)}", INVALID_INPUT)
    exit_on_outages(outages_found)
    for file, each in zip(files, rehearsed, strict=True):
        state.save_graph(file, each.preview.graph)


def _print_project(project: CreatedProject, steps: list[Step], file: Path, *, dependencies: bool) -> None:
    out.print(create_resource_tree(project.preview.graph, steps, dependencies=dependencies))
    out.print(f"  {format_resource_counts(project.preview.graph)}", soft_wrap=True)
    change_text = summarize_operations(step.op for step in steps)
    duration = f"{project.up.duration_s:.1f} s"
    out.print(format_markup("  {}; every resource waits for its dependencies [dim]{}[/]", change_text, duration))
    for message in project.preview.messages:
        # The programs run in their own folders and receive an absolute path; print the given path.
        message_text = message.replace(str(file.resolve()), str(file))
        out.print(format_markup("  [yellow]![/] {}", message_text), soft_wrap=True)


def _serialize_report(
    rehearsed: list[CreatedProject],
    steps: list[list[Step]],
    violations: list[PolicyViolation],
    refusals: list[Rejection],
) -> dict[str, Any]:
    return {
        "projects": {
            each.project.name: build_preview_json(each.project, each.preview, changes)
            for each, changes in zip(rehearsed, steps, strict=True)
        },
        "policies": [vars(violation) for violation in violations],
        "refused": [vars(answer) for answer in refusals],
    }
