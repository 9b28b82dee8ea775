"""The questions of `voice init` and `voice new`; each answer is validated before the next question."""

import math
from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, NamedTuple, TypeVar

import typer

from voice_blueprint.file.suggestion import choice
from voice_ops.exits import REFUSED
from voice_ops.init.sizes import NoFileForThisError, max_calls, regions, sells_gpus
from voice_ops.output import complain, out, stop

if TYPE_CHECKING:
    from voice_ops.init.drafts import Priced

T = TypeVar("T")


class Cloud(StrEnum):
    """Values of `--cloud`. Each has a template of the same name."""

    AWS = "aws"
    AZURE = "azure"


CloudOption = Annotated[Cloud | None, typer.Option("--cloud", help="Target cloud.")]
RegionOption = Annotated[
    str | None, typer.Option("--region", help="Region of the cloud, such as us-east-1 or southcentralus.")
]
CallsOption = Annotated[int | None, typer.Option("--calls", min=1, help="Maximum concurrent calls.")]
BudgetOption = Annotated[int | None, typer.Option("--budget", min=1, help="Monthly budget, USD.")]
AgentsOption = Annotated[
    bool | None, typer.Option("--agents/--no-agents", help="Add agents that answer callers by speech.")
]

FIRST_REGION = {Cloud.AWS: "us-east-1", Cloud.AZURE: "southcentralus"}
AGENTS_QUESTION = "Agents that answer callers by speech?"
FIRST_CALLS = 100
HEADROOM = 1.25
"""Ratio of the proposed budget to the expected month, since AWS Budgets notifies at 80 % spent."""


class Answers(NamedTuple):
    """Answers for a new file. ``calls`` is the maximum number of concurrent calls."""

    cloud: Cloud
    region: str
    calls: int
    agents: bool


def answers(cloud: Cloud | None, region: str | None, calls: int | None, *, agents: bool | None) -> Answers:
    """Validate the options, and prompt for missing ones, validating each answer at once.

    Without ``--agents``, agents are only included if other options are prompted for as well.

    Raises:
        typer.Exit: An option is invalid, or standard input ends before the last answer.
    """
    asks = cloud is None or region is None or calls is None
    try:
        if cloud is None:
            cloud = _ask(f"Cloud ({', '.join(Cloud)})", Cloud.AWS, _cloud)
        sold = regions(cloud)
        if region is None:
            out.print(f"Regions that sell what a first file needs: {', '.join(sold)}", soft_wrap=True)
            first = FIRST_REGION[cloud]
            region = _ask("Region", first if first in sold else sold[0], lambda typed: _region(typed, cloud))
        region = _region(region, cloud)
        agents = _agents(agents, sells_gpus(cloud, region), region, asks=asks)
        most = max_calls(cloud, region, agents=agents)
        if calls is None:
            question = f"Calls at a time, at most (1 to {most:,})"
            calls = _ask(question, min(FIRST_CALLS, most), lambda typed: _calls(typed, most))
        return Answers(cloud, region, _calls(str(calls), most), agents)
    except NoFileForThisError as error:
        raise stop(str(error), REFUSED) from None
    except typer.Abort:
        raise _unanswered("--cloud, --region and --calls") from None


def budget_for(files: list["Priced"], budget: int | None, where: str) -> tuple["Priced", int]:
    """Return the first draft within the budget for an expected month, and the budget. Prompt for a missing budget.

    Args:
        files: Drafts in order of preference.
        budget: USD per month from the option.
        where: Region, for messages.

    Raises:
        typer.Exit: The budget is too low for all drafts, or standard input ends.
    """

    def covered(typed: str) -> tuple["Priced", int]:
        usd = _whole(typed)
        if chosen := next((each for each in files if each.month.expected <= usd), None):
            return chosen, usd
        cheapest = min(files, key=lambda each: each.month.expected)
        raise NoFileForThisError(
            f"{cheapest.name} cost {cheapest.words} a month in {where}, more than the budget of {usd:,} USD; "
            f"raise it to {math.ceil(cheapest.month.expected):,}, or take another region or fewer calls"
        )

    try:
        if budget is not None:
            return covered(str(budget))
        for each in files:
            out.print(f"{each.name} cost {each.words} a month", soft_wrap=True)
        return _ask("Budget of a month, USD", _rounded_up(files[0].month.expected * HEADROOM), covered)
    except NoFileForThisError as error:
        raise stop(str(error), REFUSED) from None
    except typer.Abort:
        raise _unanswered("--budget") from None


def _ask(question: str, default: object, check: Callable[[str], T]) -> T:
    while True:
        typed = typer.prompt(question, default=str(default))
        try:
            return check(typed.strip())
        except NoFileForThisError as error:
            complain(str(error))


def _unanswered(options: str) -> typer.Exit:
    typer.echo(err=True)
    return stop(f"answers are missing, and standard input has ended; give {options} as options", REFUSED)


def _cloud(typed: str) -> Cloud:
    if typed not in list(Cloud):
        raise NoFileForThisError(f"{typed} is no cloud{choice(typed, Cloud)}")
    return Cloud(typed)


def _region(typed: str, cloud: Cloud) -> str:
    sold = regions(cloud)
    if typed not in sold:
        raise NoFileForThisError(f"{typed} sells nothing that a first file for {cloud} needs{choice(typed, sold)}")
    return typed


def _agents(wanted: bool | None, possible: bool, region: str, *, asks: bool) -> bool:
    if wanted and not possible:
        raise NoFileForThisError(f"{region} sells no GPUs, which agents take; take another region")
    if wanted is None:
        return asks and possible and typer.confirm(AGENTS_QUESTION, default=False)
    return wanted


def _calls(typed: str, most: int) -> int:
    calls = _whole(typed)
    if not 1 <= calls <= most:
        raise NoFileForThisError(
            f"{calls:,} calls are not within what one deployment carries there, 1 to {most:,}; "
            "take another number or region, or write a file for a part of them and set `cells` in it"
        )
    return calls


def _whole(typed: str) -> int:
    digits = typed.replace(",", "").replace("_", "")
    if not (digits.isascii() and digits.isdecimal()):
        raise NoFileForThisError(f"{typed} is no whole number; type one such as 500")
    return int(digits)


def _rounded_up(usd: float) -> int:
    """Return USD rounded up to two significant digits."""
    unit = int(10 ** max(0, math.floor(math.log10(usd)) - 1))
    return math.ceil(usd / unit) * unit
