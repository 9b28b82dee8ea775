"""Arguments and options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
DeploymentFile = Annotated[
    Path, typer.Argument(metavar="FILE", help="Deployment file, such as deployments/sandbox.yaml.")
]
Region = Annotated[str | None, typer.Option("--region", metavar="NAME", help="Region to use, if the file has several.")]
AcceptReplace = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="Resource that may be replaced or deleted even if it serves calls or stores state; repeat for more.",
    ),
]
