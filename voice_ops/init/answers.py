"""Prompts of `voice init` and `voice new`. Each answer is validated before the next prompt."""

import math
from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, NamedTuple, TypeVar

import typer

from voice_blueprint.file.suggestion import format_suggestion_or_choices
from voice_ops.exits import INVALID_INPUT
from voice_ops.init.sizes import UnsupportedAnswersError, calculate_max_calls, list_supported_regions, offers_gpus
from voice_ops.output import create_exit, out, print_error

if TYPE_CHECKING:
    from voice_ops.init.drafts import PricedDraft

T = TypeVar("T")


class Cloud(StrEnum):
    """Values of `--cloud`. Each has a template with the same name."""

    AWS = "aws"
    AZURE = "azure"


CloudOption = Annotated[Cloud | None, typer.Option("--cloud", help="Target cloud.")]
RegionOption = Annotated[
    str | None, typer.Option("--region", help="Region of the cloud, such as us-east-1 or southcentralus.")
]
CallsOption = Annotated[int | None, typer.Option("--calls", min=1, help="Maximum concurrent calls.")]
BudgetOption = Annotated[int | None, typer.Option("--budget", min=1, help="Monthly budget, USD.")]
AgentsOption = Annotated[
    bool | None, typer.Option("--agents/--no-agents", help="Add voice agents that talk to callers.")
]

DEFAULT_REGION_BY_CLOUD = {Cloud.AWS: "us-east-1", Cloud.AZURE: "southcentralus"}
AGENTS_QUESTION = "Agents that answer callers by speech?"
DEFAULT_MAX_CALLS = 100
BUDGET_HEADROOM_FACTOR = 1.25
"""Ratio of the proposed budget to the expected monthly cost. AWS Budgets sends a notification at 80 % of a budget."""


class Answers(NamedTuple):
    """Validated answers for a new file. ``calls`` is the maximum number of concurrent calls."""

    cloud: Cloud
    region: str
    calls: int
    agents: bool


def collect_answers(cloud: Cloud | None, region: str | None, calls: int | None, *, agents: bool | None) -> Answers:
    """Validate the options, prompt for missing options, and return all answers.

    The prompt for agents only appears if another option is missing as well.

    Raises:
        typer.Exit: An option is invalid, or standard input ends before the last answer.
    """
    is_interactive = cloud is None or region is None or calls is None
    try:
        if cloud is None:
            cloud = _prompt_until_valid(f"Cloud ({', '.join(Cloud)})", Cloud.AWS, _validate_cloud)
        offered_regions = list_supported_regions(cloud)
        if region is None:
            out.print(f"Regions that offer the required hosts: {', '.join(offered_regions)}", soft_wrap=True)
            first = DEFAULT_REGION_BY_CLOUD[cloud]
            region = _prompt_until_valid(
                "Region",
                first if first in offered_regions else offered_regions[0],
                lambda text: _validate_region(text, cloud),
            )
        region = _validate_region(region, cloud)
        agents = _validate_agents(agents, offers_gpus(cloud, region), region, is_interactive=is_interactive)
        maximum = calculate_max_calls(cloud, region, agents=agents)
        if calls is None:
            question = f"Maximum concurrent calls (1 to {maximum:,})"
            calls = _prompt_until_valid(
                question, min(DEFAULT_MAX_CALLS, maximum), lambda text: _validate_calls(text, maximum)
            )
        return Answers(cloud, region, _validate_calls(str(calls), maximum), agents)
    except UnsupportedAnswersError as error:
        raise create_exit(str(error), INVALID_INPUT) from None
    except typer.Abort:
        raise _create_missing_options_error("--cloud, --region and --calls") from None


def select_draft(files: list["PricedDraft"], budget: int | None, region_name: str) -> tuple["PricedDraft", int]:
    """Return the first draft whose expected monthly cost is within the budget, together with the budget.

    If the budget is missing, prompt for it.

    Args:
        files: Drafts in order of preference.
        budget: Value of the option, USD per month.
        region_name: Name of the region, for messages.

    Raises:
        typer.Exit: The budget is too low for all drafts, or standard input ends.
    """

    def find_affordable_draft(text: str) -> tuple["PricedDraft", int]:
        usd = _parse_integer(text)
        if draft := next((each for each in files if each.monthly_usd.expected <= usd), None):
            return draft, usd
        cheapest = min(files, key=lambda each: each.monthly_usd.expected)
        raise UnsupportedAnswersError(
            f"{cheapest.name} cost {cheapest.price_text} per month in {region_name}, more than the budget of {usd:,} "
            f"USD; raise it to {math.ceil(cheapest.monthly_usd.expected):,}, or choose another region or fewer calls"
        )

    try:
        if budget is not None:
            return find_affordable_draft(str(budget))
        for each in files:
            out.print(f"{each.name} cost {each.price_text} a month", soft_wrap=True)
        return _prompt_until_valid(
            "Budget of a month, USD",
            _round_up(files[0].monthly_usd.expected * BUDGET_HEADROOM_FACTOR),
            find_affordable_draft,
        )
    except UnsupportedAnswersError as error:
        raise create_exit(str(error), INVALID_INPUT) from None
    except typer.Abort:
        raise _create_missing_options_error("--budget") from None


def _prompt_until_valid(question: str, default: object, check: Callable[[str], T]) -> T:
    while True:
        text = typer.prompt(question, default=str(default))
        try:
            return check(text.strip())
        except UnsupportedAnswersError as error:
            print_error(str(error))


def _create_missing_options_error(options: str) -> typer.Exit:
    typer.echo(err=True)
    return create_exit(f"answers are missing, and standard input has ended; give {options} as options", INVALID_INPUT)


def _validate_cloud(text: str) -> Cloud:
    if text not in list(Cloud):
        raise UnsupportedAnswersError(f"{text} is not a supported cloud{format_suggestion_or_choices(text, Cloud)}")
    return Cloud(text)


def _validate_region(text: str, cloud: Cloud) -> str:
    offered_regions = list_supported_regions(cloud)
    if text not in offered_regions:
        raise UnsupportedAnswersError(
            f"{text} does not offer the hosts that a first file for {cloud} "
            f"requires{format_suggestion_or_choices(text, offered_regions)}"
        )
    return text


def _validate_agents(is_requested: bool | None, is_possible: bool, region: str, *, is_interactive: bool) -> bool:
    if is_requested and not is_possible:
        raise UnsupportedAnswersError(f"{region} offers no GPUs, which agents require; choose another region")
    if is_requested is None:
        return is_interactive and is_possible and typer.confirm(AGENTS_QUESTION, default=False)
    return is_requested


def _validate_calls(text: str, maximum: int) -> int:
    calls = _parse_integer(text)
    if not 1 <= calls <= maximum:
        raise UnsupportedAnswersError(
            f"{calls:,} calls are outside the range of one deployment in that region, 1 to {maximum:,}; "
            "choose another number or region, or write a file for some of them and set `cells` in it"
        )
    return calls


def _parse_integer(text: str) -> int:
    digits = text.replace(",", "").replace("_", "")
    if not (digits.isascii() and digits.isdecimal()):
        raise UnsupportedAnswersError(f"{text} is not an integer; enter one such as 500")
    return int(digits)


def _round_up(usd: float) -> int:
    """Return USD rounded up to two significant digits."""
    unit = int(10 ** max(0, math.floor(math.log10(usd)) - 1))
    return math.ceil(usd / unit) * unit
