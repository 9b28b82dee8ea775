"""Arguments and options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print JSON for pipelines.")]
DeploymentFile = Annotated[
    Path, typer.Argument(metavar="FILE", help="Deployment file, such as deployments/sandbox.yaml.")
]
Region = Annotated[
    str | None, typer.Option("--region", metavar="NAME", help="Region to work on, of a file that has several.")
]
AcceptReplace = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="Name of a resource that may be replaced or deleted, though it serves or holds state; repeat for more.",
    ),
]
