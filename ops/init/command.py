"""`voice init`: a first deployment file, from four answers."""

import os
from enum import StrEnum
from pathlib import Path
from string import Template
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from rich.markup import escape

import blueprint
from blueprint import checks
from ops.exits import REFUSED
from ops.init.sizes import NoFileForThisError, aws_values, azure_values
from ops.output import complain, out, stop

SCHEMA = Path(__file__).parents[2] / "deployments/schema.json"
"""What the file's first line leads editors to."""


class Cloud(StrEnum):
    """What `--cloud` takes; each has a template of its name."""

    AWS = "aws"
    AZURE = "azure"


def init(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File to write, such as deployments/mine.yaml.")],
    cloud: Annotated[Cloud, typer.Option(prompt="Cloud", help="Where it runs.")],
    region: Annotated[str, typer.Option(prompt="Region", help="Such as us-east-1, or southcentralus on Azure.")],
    calls: Annotated[int, typer.Option(prompt="Calls at a time, at most", min=1, help="Most calls at the same time.")],
    budget: Annotated[int, typer.Option(prompt="Budget of a month, USD", min=1, help="USD a month, for everything.")],
) -> None:
    """Write a first deployment file from four answers: cloud, region, calls, budget.

    What no option answers is asked for. The file is commented, and no check refuses it; an existing file is never
    overwritten. Sizes are ceilings of memory and list prices: `voice simulate` and `voice cost` say more.

    Example: voice init deployments/mine.yaml --cloud aws --region us-east-1 --calls 500 --budget 20000
    """
    if file.exists():
        raise stop(f"{file} exists, and is not overwritten; name another file", REFUSED)
    if not file.parent.is_dir():
        raise stop(f"{file}: there is no folder {file.parent}; make it, or name a file in another", REFUSED)
    try:
        values = (aws_values if cloud is Cloud.AWS else azure_values)(region, calls, budget)
    except NoFileForThisError as error:
        raise stop(str(error), REFUSED) from None
    schema = os.path.relpath(SCHEMA, file.parent)
    template = Template((Path(__file__).parent / f"{cloud}.yaml").read_text(encoding="utf-8"))
    text = template.substitute(values, name=file.stem, region=region, calls=calls, budget=budget, schema=schema)
    _refuse_what_checks_refuse(file, text)
    with file.open("x", encoding="utf-8") as new:  # not even one that came while this ran
        new.write(text)
    out.print(f"{escape(str(file))} is written; next: voice plan {escape(str(file))}", soft_wrap=True)


def _refuse_what_checks_refuse(file: Path, text: str) -> None:
    with TemporaryDirectory(prefix="voice-init-") as folder:
        draft = Path(folder) / file.name
        draft.write_text(text, encoding="utf-8")
        try:
            deployment = blueprint.load(draft)
        except blueprint.DeploymentFileError as error:
            for problem in error.problems:
                complain(f"{file}: {problem.message}")
            raise typer.Exit(REFUSED) from None
    blocking = [finding.violation for finding in checks.run(deployment) if finding.blocks]
    for violation in blocking:
        complain(f"{violation.message}\n→ {violation.remedy}")
    if blocking:
        raise typer.Exit(REFUSED)
