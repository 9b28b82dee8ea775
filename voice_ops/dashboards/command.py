"""`voice dashboards`: write the dashboards for an Azure section as files for another Grafana."""

import json
from pathlib import Path
from typing import Annotated

import typer

from voice_blueprint.observability.azure.dashboards import build_dashboards as dashboards_of
from voice_blueprint.observability.azure.grafana import build_dashboard_document
from voice_ops.exits import INVALID_INPUT
from voice_ops.findings import load_checked_deployment
from voice_ops.options import DeploymentFileArgument
from voice_ops.output import create_exit, out

OUTPUT_HELP = "Folder for the files, one per dashboard."


def dashboards(
    file: DeploymentFileArgument,
    output: Annotated[Path, typer.Option("--output", metavar="FOLDER", help=OUTPUT_HELP)],
) -> None:
    """Write the dashboards of an Azure section as Grafana JSON.

    The deployment creates the same dashboards in Azure Monitor. Import the files into a Grafana with `az grafana
    dashboard import --definition FILE`. Requires no credentials and no network.

    Example: voice dashboards deployments/production-azure.yaml --output .
    """
    deployment = load_checked_deployment(file)
    if deployment.azure_section is None:
        raise create_exit(
            f"{file} has no section `azure`; the stacks of the section `aws` create CloudWatch dashboards",
            INVALID_INPUT,
        )
    if not output.is_dir():
        raise create_exit(f"{output}: the folder does not exist", INVALID_INPUT)
    for dashboard in dashboards_of(deployment):
        target = output / f"{dashboard.topic}.json"
        target.write_text(
            json.dumps(build_dashboard_document(deployment, dashboard), indent=2) + "\n", encoding="utf-8"
        )
        out.print(str(target), soft_wrap=True)
