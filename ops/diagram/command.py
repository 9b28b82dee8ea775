"""`voice diagram`: the picture of a deployment."""

import typer

from blueprint.file.model.deployment import Deployment
from ops.diagram import svg
from ops.diagram.derive import derive
from ops.diagram.graph import Graph
from ops.exits import FAILED, REFUSED
from ops.findings import load_checked
from ops.options import DeploymentFile
from ops.output import stop
from ops.synthesis import templates


def diagram(file: DeploymentFile) -> None:
    """Draw a deployment from its CloudFormation templates: callers, tiers, traffic, scaling signals.

    Prints an SVG. Needs no credentials and no network.

    Example: voice diagram deployments/production-us-east-1.yaml > picture.svg
    """
    deployment = load_checked(file)
    if deployment.aws_half is None:
        raise stop(f"{file}: has no section `aws`; `voice preview azure` shows its section `azure`", REFUSED)
    try:
        typer.echo(svg.render(graph_of(deployment)), nl=False)
    except svg.LayoutError as error:
        raise stop(str(error), FAILED) from None


def graph_of(deployment: Deployment) -> Graph:
    """Synthesize a deployment and derive its graph."""
    aws = deployment.aws
    prefix = f"{deployment.name}-"
    by_tier = {stack.removeprefix(prefix): template for stack, template in templates(deployment).items()}
    return derive(f"{deployment.name}: AWS {aws.region}, {len(aws.availability_zones)} zones", by_tier)
