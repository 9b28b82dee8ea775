"""Arguments and options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
DeploymentFileArgument = Annotated[
    Path, typer.Argument(metavar="FILE", help="Deployment file, such as deployments/sandbox.yaml.")
]
RegionOption = Annotated[
    str | None, typer.Option("--region", metavar="NAME", help="Region to use, if the file has several.")
]
AcceptReplaceOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="Resource that may be replaced or deleted even if it serves calls or stores state; repeat for more.",
    ),
]
