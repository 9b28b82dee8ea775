"""`voice new`: create a repository that depends on this package, for a platform team."""

from pathlib import Path
from typing import Annotated

import typer

from voice_ops.exits import INVALID_INPUT
from voice_ops.init.answers import AgentsOption, BudgetOption, CallsOption, CloudOption, RegionOption, collect_answers
from voice_ops.init.command import create_priced_draft
from voice_ops.new.repository import EXECUTABLE_FILES, render_repository_files
from voice_ops.output import create_exit, out

DEPLOYMENT_NAME = "staging"
"""Name of the first deployment and of the deployment file."""


def new(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Path of the repository.")],
    *,
    cloud: CloudOption = None,
    region: RegionOption = None,
    calls: CallsOption = None,
    budget: BudgetOption = None,
    agents: AgentsOption = None,
) -> None:
    """Create a repository with a deployment file, entry points and CI pipelines.

    Creates the same deployment file as `voice init` with the same options. The CDK app and the Pulumi projects call the
    installed package, which is pinned in requirements.txt. Existing files are not overwritten.

    Example: voice new platform --cloud aws --region us-east-1 --calls 500 --budget 20000
    """
    deployment = f"deployments/{DEPLOYMENT_NAME}.yaml"
    texts = render_repository_files(DEPLOYMENT_NAME)
    if folder.exists() and not folder.is_dir():
        raise create_exit(f"{folder} is a file; name a folder", INVALID_INPUT)
    if existing := [path for path in (deployment, *texts) if (folder / path).exists()]:
        raise create_exit(
            f"{folder} has {', '.join(existing)}, and existing files are not overwritten; choose another folder",
            INVALID_INPUT,
        )
    desired = collect_answers(cloud, region, calls, agents=agents)
    draft, usd = create_priced_draft(folder / deployment, desired, budget)
    texts[deployment] = draft.draft.render_text(usd, "schema.json")
    try:
        for path, text in texts.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text, encoding="utf-8")
        for path in EXECUTABLE_FILES:
            (folder / path).chmod(0o755)
    except OSError as error:
        raise create_exit(f"{error.filename or folder}: {error.strerror}", INVALID_INPUT) from None
    out.print(
        f"{len(texts)} files are written: {draft.name}, {draft.price_text} a month; "
        f"README.md in {folder!s} is the next step",
        soft_wrap=True,
    )
