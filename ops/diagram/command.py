"""`voice diagram`: the picture of a deployment."""

from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.markup import escape

from blueprint.file.model.deployment import Deployment
from ops.diagram import Graph, derive, mermaid, svg
from ops.exits import FAILED, REFUSED
from ops.options import DeploymentFile
from ops.output import err, load_checked
from ops.synthesis import templates

RENDERERS = {".svg": svg.render, ".mmd": mermaid.render}
OUTPUT_HELP = "Where to write: .svg for a picture, .mmd for Mermaid. Without it, Mermaid goes to stdout."


def diagram(
    file: DeploymentFile,
    output: Annotated[Path | None, typer.Option("--output", metavar="PATH", help=OUTPUT_HELP)] = None,
) -> None:
    """Draw a deployment from its CloudFormation templates: callers, tiers, traffic, scaling signals.

    Needs no credentials and no network.

    Example: voice diagram deployments/production-us-east-1.yaml --output picture.svg
    """
    render = mermaid.render
    if output:
        if output.suffix not in RENDERERS:
            _refuse(f"{output}: the name has to end in {' or '.join(RENDERERS)}")
        if output.is_dir() or not output.parent.is_dir():
            _refuse(f"{output}: {'is a folder' if output.is_dir() else f'there is no folder {output.parent}'}")
        render = RENDERERS[output.suffix]
    deployment = load_checked(file)
    if deployment.aws_half is None:
        _refuse(f"{file}: has no section `aws`; `voice preview azure` shows the tree of its section `azure`")
    graph = graph_of(deployment)
    try:
        text = render(graph)
    except svg.LayoutError as error:
        err.print(f"[red]✗[/] {escape(str(error))}", soft_wrap=True)
        raise typer.Exit(FAILED) from None
    if output is None:
        typer.echo(text, nl=False)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        _refuse(f"{output}: {error.strerror}")


def graph_of(deployment: Deployment) -> Graph:
    """Synthesize a deployment and derive its graph."""
    aws = deployment.aws
    prefix = f"{deployment.name}-"
    by_tier = {stack.removeprefix(prefix): template for stack, template in templates(deployment).items()}
    return derive(f"{deployment.name}: AWS {aws.region}, {len(aws.availability_zones)} zones", by_tier)


def _refuse(reason: str) -> NoReturn:
    err.print(f"[red]✗[/] {escape(reason)}", soft_wrap=True)
    raise typer.Exit(REFUSED)
