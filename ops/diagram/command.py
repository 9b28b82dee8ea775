"""`voice diagram`: the picture of a deployment."""

from pathlib import Path
from typing import Annotated

import typer

from blueprint.file.model.deployment import Deployment
from ops.diagram import Graph, derive, mermaid, svg
from ops.exits import FAILED, REFUSED
from ops.findings import load_region
from ops.options import DeploymentFile, Region
from ops.output import stop
from ops.synthesis import templates

RENDERERS = {".svg": svg.render, ".mmd": mermaid.render}
OUTPUT_HELP = "Where to write: .svg for a picture, .mmd for Mermaid. Without it, Mermaid goes to stdout."


def diagram(
    file: DeploymentFile,
    output: Annotated[Path | None, typer.Option("--output", metavar="PATH", help=OUTPUT_HELP)] = None,
    region: Region = None,
) -> None:
    """Draw a deployment from its CloudFormation templates: callers, tiers, traffic, scaling signals.

    Needs no credentials and no network.

    Example: voice diagram deployments/production-us-east-1.yaml --output picture.svg
    """
    render = mermaid.render
    if output:
        if output.suffix not in RENDERERS:
            raise stop(f"{output}: the name has to end in {' or '.join(RENDERERS)}", REFUSED)
        if output.is_dir() or not output.parent.is_dir():
            why = "is a folder" if output.is_dir() else f"there is no folder {output.parent}"
            raise stop(f"{output}: {why}", REFUSED)
        render = RENDERERS[output.suffix]
    deployment = load_region(file, region)
    if deployment.aws_half is None:
        raise stop(f"{file}: has no section `aws`; `voice preview azure` shows its section `azure`", REFUSED)
    graph = graph_of(deployment)
    try:
        text = render(graph)
    except svg.LayoutError as error:
        raise stop(str(error), FAILED) from None
    if output is None:
        typer.echo(text, nl=False)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise stop(f"{output}: {error.strerror}", REFUSED) from None


def graph_of(deployment: Deployment) -> Graph:
    """Synthesize a deployment and derive its graph."""
    aws = deployment.aws
    prefix = f"{deployment.name}-"
    by_tier = {stack.removeprefix(prefix): template for stack, template in templates(deployment).items()}
    return derive(f"{deployment.name}: AWS {aws.region}, {len(aws.availability_zones)} zones", by_tier)
