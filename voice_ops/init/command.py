"""`voice init`: write a first deployment file from a few answers."""

import json
import os
import shlex
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import typer

from voice_blueprint import checks
from voice_blueprint.shipped import IS_INSTALLED, ROOT
from voice_ops.exits import FAILED, INVALID_INPUT
from voice_ops.init.answers import (
    AgentsOption,
    Answers,
    BudgetOption,
    CallsOption,
    CloudOption,
    RegionOption,
    collect_answers,
    select_draft,
)
from voice_ops.init.drafts import PricedDraft, create_drafts, derive_deployment_name, price_drafts
from voice_ops.init.sizes import UnsupportedAnswersError
from voice_ops.output import create_exit, out
from voice_sandbox.azure.errors import EngineError

SCHEMA_FILE = ROOT / "deployments/schema.json"
"""Schema for editors. The first line of the deployment file refers to it."""


def init(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Path of the new file, such as deployments/mine.yaml.")],
    *,
    cloud: CloudOption = None,
    region: RegionOption = None,
    calls: CallsOption = None,
    budget: BudgetOption = None,
    agents: AgentsOption = None,
) -> None:
    """Write a deployment file for a cloud, region, number of calls and budget.

    Prompts for missing options, and shows the price before it writes the file. The file is commented, sized for the
    calls, passes every check, and names the deployment after itself. Existing files are not overwritten.

    Example: voice init deployments/mine.yaml --cloud aws --region us-east-1 --calls 500 --budget 20000
    """
    if file.exists():
        raise create_exit(f"{file} exists, and is not overwritten; name another file", INVALID_INPUT)
    if not file.parent.is_dir():
        raise create_exit(
            f"{file}: the folder {file.parent} does not exist; create it, or choose another", INVALID_INPUT
        )
    desired = collect_answers(cloud, region, calls, agents=agents)
    draft, usd = create_priced_draft(file, desired, budget)
    schema = _select_schema_file_name(file.parent) if IS_INSTALLED else os.path.relpath(SCHEMA_FILE, file.parent)
    with file.open("x", encoding="utf-8") as new:  # this mode also rejects a file that was created in the meantime
        new.write(draft.draft.render_text(usd, quote(schema)))
    if IS_INSTALLED:
        # The schema is stored next to the file, since the package's folder differs between environments.
        (file.parent / schema).write_bytes(SCHEMA_FILE.read_bytes())
    named = derive_deployment_name(file)
    out.print(
        f"{file!s} is written: deployment {named}, {draft.name}, {draft.price_text} a month; "
        f"next: voice plan {shlex.quote(str(file))}",
        soft_wrap=True,
    )


def create_priced_draft(file: Path, requirements: Answers, budget: int | None) -> tuple[PricedDraft, int]:
    """Return the priced draft for these answers, together with the budget. Prompt for a missing budget.

    Raises:
        typer.Exit: No file fits the answers or the budget.
    """
    try:
        candidates = list(price_drafts(create_drafts(requirements, derive_deployment_name(file))))
    except UnsupportedAnswersError as error:
        raise create_exit(str(error), INVALID_INPUT) from None
    except EngineError as error:
        raise create_exit(str(error), FAILED) from None
    draft, usd = select_draft(candidates, budget, requirements.region)
    with draft.draft.load(usd) as deployment:
        blocking = [finding.violation for finding in checks.run_checks(deployment) if finding.is_blocking]
    if blocking:
        raise create_exit("\n".join(f"{each.message}\n→ {each.remedy}" for each in blocking), INVALID_INPUT)
    return draft, usd


def _select_schema_file_name(folder: Path) -> str:
    """Return a file name for the schema in a folder that does not belong to another file."""
    name, packaged_schema = "schema.json", SCHEMA_FILE.read_bytes()
    schema_file = folder / name
    if not schema_file.exists() or json.loads(packaged_schema)["description"].encode() in schema_file.read_bytes():
        return name
    return f"voice-{name}"
