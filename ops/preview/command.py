"""`voice preview`: what a deployment would create, without its cloud."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from blueprint.file.model.deployment import Deployment
from ops.exits import HELP, REFUSED
from ops.findings import load_checked, refuse
from ops.options import AcceptReplace, DeploymentFile, Json
from ops.output import out, print_json, stop
from ops.preview.changes import recordings, rehearse, steps_since, unaccepted
from ops.preview.tree import describe_counts, print_violations, tree
from sandbox.azure import state
from sandbox.azure.cli_json import preview_json
from sandbox.azure.diff import Step
from sandbox.azure.policy import PolicyViolation
from sandbox.azure.rehearsal import ROOT, Rehearsed
from sandbox.changes import describe

app = typer.Typer(no_args_is_help=True, add_completion=False)

DEPENDENCIES_HELP = "Show what each resource waits for."
STATE_HELP = "Folder in whose .voice/ the last preview is kept, against which changes are shown."


@app.callback(epilog=HELP)
def _clouds() -> None:
    """Show what a deployment would create in a cloud, without asking the cloud."""


@app.command("azure", epilog=HELP)
def azure(
    file: DeploymentFile,
    as_json: Json = False,
    dependencies: Annotated[bool, typer.Option("--dependencies", help=DEPENDENCIES_HELP)] = False,
    accept_replace: AcceptReplace = None,
    keep_in: Annotated[
        Path, typer.Option("--state", metavar="PATH", help=STATE_HELP, show_default="this repository")
    ] = ROOT,
) -> None:
    """Run the Pulumi programs against a local engine; show what they would create and what changed since last time.

    Every resource is checked against the installed SDK and the policy pack, and a simulated deployment proves that it
    waits for what it needs. Needs no Pulumi CLI, no credentials and no network. Exits with 2 when a policy or the
    engine refuses something, and when something that serves or holds state would be replaced.

    Example: voice preview azure deployments/production-azure.yaml --dependencies
    """
    deployment = load_checked(file)
    if deployment.azure_half is None:
        raise stop(f"{file}: has no azure section, so there is nothing to preview there", REFUSED)
    done, violations = rehearse(deployment)
    report(
        deployment,
        done,
        violations,
        keep_in,
        as_json=as_json,
        dependencies=dependencies,
        accepted=accept_replace or (),
    )


def report(
    deployment: Deployment,
    done: list[Rehearsed],
    violations: list[PolicyViolation],
    keep_in: Path,
    *,
    as_json: bool,
    dependencies: bool,
    accepted: Sequence[str] = (),
) -> None:
    """Print previews with what changed since the last one; keep them for the next unless something is refused."""
    files = recordings(keep_in, deployment, done)
    steps = steps_since(files, done)
    away = unaccepted(steps, accepted)
    if as_json:
        report = _as_json(done, steps, violations) | {"outages": [vars(each) for each in away]}
        print_json(report, deployment.name)
    else:
        for each, changes in zip(done, steps, strict=True):
            _print_project(each, changes, dependencies=dependencies)
        print_violations(out, violations)
    refusing = sum(violation.mandatory for violation in violations)
    if refusing:
        raise stop(f"refused: {refusing} mandatory policy violation(s)", REFUSED)
    refuse(away)
    for kept, each in zip(files, done, strict=True):
        state.save(kept, each.preview.graph)


def _print_project(each: Rehearsed, steps: list[Step], *, dependencies: bool) -> None:
    out.print(tree(each.preview.graph, steps, dependencies=dependencies))
    out.print(f"  {describe_counts(each.preview.graph)}", soft_wrap=True)
    changed = describe(step.op for step in steps)
    out.print(f"  {changed}; every resource waits for what it needs [dim]{each.up.duration_s:.1f} s[/]")
    for message in each.preview.messages:
        out.print(f"  [yellow]![/] {escape(message)}", soft_wrap=True)


def _as_json(done: list[Rehearsed], steps: list[list[Step]], violations: list[PolicyViolation]) -> dict[str, Any]:
    return {
        "projects": {
            each.project.name: preview_json(each.project, each.preview, changes)
            for each, changes in zip(done, steps, strict=True)
        },
        "policies": [vars(violation) for violation in violations],
    }
