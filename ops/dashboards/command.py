"""`voice dashboards`: dashboards of an Azure half as files for a Grafana of one's own."""

import json
from pathlib import Path
from typing import Annotated

import typer

from blueprint.observability.azure_dashboards import dashboards as dashboards_of
from blueprint.observability.grafana import document
from ops.exits import REFUSED
from ops.findings import load_checked
from ops.options import DeploymentFile
from ops.output import out, stop

OUTPUT_HELP = "Folder to write a file for each dashboard into."


def dashboards(
    file: DeploymentFile,
    output: Annotated[Path, typer.Option("--output", metavar="FOLDER", help=OUTPUT_HELP)],
) -> None:
    """Write the dashboards of an Azure half as Grafana's JSON.

    Azure Monitor has them already, as resources of the deployment. A Grafana takes them over its own API alone:
    `az grafana dashboard import --definition FILE`. Needs no credentials and no network.

    Example: voice dashboards deployments/production-azure.yaml --output .
    """
    deployment = load_checked(file)
    if deployment.azure_half is None:
        raise stop(
            f"{file}: has no section `azure`; AWS's dashboards are CloudWatch's, and part of the stacks", REFUSED
        )
    if not output.is_dir():
        raise stop(f"{output}: there is no such folder", REFUSED)
    for dashboard in dashboards_of(deployment):
        written = output / f"{dashboard.topic}.json"
        written.write_text(json.dumps(document(deployment, dashboard), indent=2) + "\n", encoding="utf-8")
        out.print(str(written), soft_wrap=True)
