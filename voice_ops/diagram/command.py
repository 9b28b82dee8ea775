"""`voice diagram`: the diagram of a deployment."""

from pathlib import Path
from typing import Annotated

import typer

from voice_blueprint.file.model.deployment import Deployment
from voice_ops.diagram import Graph, derive_graph, mermaid, svg
from voice_ops.exits import FAILED, INVALID_INPUT
from voice_ops.findings import load_region_deployment
from voice_ops.options import DeploymentFileArgument, RegionOption
from voice_ops.output import create_exit
from voice_ops.synthesis import synthesize_templates

RENDERERS = {".svg": svg.render, ".mmd": mermaid.render}
OUTPUT_HELP = "Output file: .svg, or .mmd for Mermaid. By default Mermaid is printed."


def diagram(
    file: DeploymentFileArgument,
    output: Annotated[Path | None, typer.Option("--output", metavar="PATH", help=OUTPUT_HELP)] = None,
    region: RegionOption = None,
) -> None:
    """Draw a diagram of a deployment from its CloudFormation templates.

    Shows callers, tiers, traffic and scaling signals. Requires no credentials and no network.

    Example: voice diagram deployments/production-us-east-1.yaml --output picture.svg
    """
    render = mermaid.render
    if output:
        if output.suffix not in RENDERERS:
            raise create_exit(f"{output}: the file name must end in {' or '.join(RENDERERS)}", INVALID_INPUT)
        if output.is_dir() or not output.parent.is_dir():
            reason = "is a folder" if output.is_dir() else f"the folder {output.parent} does not exist"
            raise create_exit(f"{output}: {reason}", INVALID_INPUT)
        render = RENDERERS[output.suffix]
    deployment = load_region_deployment(file, region)
    if deployment.aws_section is None:
        raise create_exit(
            f"{file} has no section `aws`; `voice preview azure` shows the section `azure`", INVALID_INPUT
        )
    graph = build_graph(deployment)
    try:
        text = render(graph)
    except svg.LayoutError as error:
        raise create_exit(str(error), FAILED) from None
    if output is None:
        typer.echo(text, nl=False)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise create_exit(f"{output}: {error.strerror}", INVALID_INPUT) from None


def build_graph(deployment: Deployment) -> Graph:
    """Synthesize a deployment and derive its graph."""
    aws = deployment.aws
    prefix = f"{deployment.name}-"
    by_tier = {stack.removeprefix(prefix): template for stack, template in synthesize_templates(deployment).items()}
    return derive_graph(f"{deployment.name}: AWS {aws.region}, {len(aws.availability_zones)} zones", by_tier)
