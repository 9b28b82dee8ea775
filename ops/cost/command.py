"""`voice cost`: what a deployment file costs."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from blueprint.file.model.deployment import Deployment
from ops.cost.earlier import LAST_RELEASE, NoSuchRevisionError, other
from ops.cost.estimate import Assumptions, Half, halves, price
from ops.cost.model import Estimate, total
from ops.cost.offers import read_offer
from ops.cost.prices import PriceBook, price_book, save_fetched
from ops.cost.report import as_dict, difference_as_dict, print_difference, print_estimate, print_total
from ops.exits import FAILED, REFUSED
from ops.findings import load_checked
from ops.options import DeploymentFile, Json
from ops.output import complain, err, print_json, stop
from sandbox.azure.errors import EngineError

FETCHED = Path(__file__).parents[2] / ".voice/prices.json"
"""Fetched prices; they come before the catalogue's until the file is deleted."""

DIFF_HELP = f"Show what FILE costs more or less than another file, or than itself at a git revision or {LAST_RELEASE}."
PRICE_LIST_HELP = (
    "Read an offer file of AWS's bulk price list first (index.json or index.csv of a service; anybody may download "
    "it), and keep its prices in .voice/prices.json. May be given several times."
)
REFRESH_HELP = "Ask the price APIs first, and keep their answers for later runs in .voice/prices.json."
STRICT_HELP = "Exit with 1 where hosts or nodes have no price in the region, and the sum is a least one."
UTILISATION_HELP = "Place of the expected size between the smallest (0) and the largest (1); by default the load's."


def cost(
    file: DeploymentFile,
    *,
    diff: Annotated[str | None, typer.Option("--diff", metavar="OTHER", help=DIFF_HELP)] = None,
    refresh: Annotated[bool, typer.Option("--refresh-prices", help=REFRESH_HELP)] = False,
    price_lists: Annotated[
        list[Path] | None,
        typer.Option("--price-list", metavar="OFFER", exists=True, dir_okay=False, help=PRICE_LIST_HELP),
    ] = None,
    utilisation: Annotated[float | None, typer.Option("--utilisation", min=0, max=1, help=UTILISATION_HELP)] = None,
    strict: Annotated[bool, typer.Option("--strict", help=STRICT_HELP)] = False,
    as_json: Json = False,
) -> None:
    """Price a deployment from its templates and its Pulumi graph: by tier and by audio hour.

    Low is every size at its minimum, peak at its maximum. List prices with their date and region, without discounts
    and taxes; what is not priced is listed. Needs no credentials and no network but for --refresh-prices.

    Example: voice cost deployments/production-us-east-1.yaml --diff last-release
    """
    assumed = Assumptions(utilisation)
    deployment = load_checked(file)
    against, before = _other(file, diff) if diff else ("", None)
    ours = _halves(deployment, assumed)
    theirs = _halves(before, assumed) if before else []
    _read(price_lists or ())
    fresh = _refresh([*ours, *theirs]) if refresh else True
    book = price_list()
    priced = [price(half, book) for half in ours]
    others = [price(half, book) for half in theirs]
    if as_json:
        report: dict[str, object] = {"clouds": {name: as_dict(each) for name, each in _named(priced).items()}}
        if len(priced) > 1:
            report["usd_per_month"] = total(each.usd for each in priced)
        if before:
            report["diff"] = {
                "other": against,
                "clouds": {cloud: difference_as_dict(our, their) for cloud, our, their in _pairs(priced, others)},
            }
        print_json(report, deployment.name)
    else:
        for estimate in priced:
            print_estimate(estimate)
        if len(priced) > 1:
            print_total(priced)
        for _, our, their in _pairs(priced, others) if before else ():
            print_difference(our, their, against)
    if not fresh or (strict and any(each.hosts for each in priced)):
        raise typer.Exit(FAILED)


def _other(file: Path, asked: str) -> tuple[str, Deployment]:
    try:
        with other(file, asked) as (name, path):
            return name, load_checked(path)
    except NoSuchRevisionError as error:
        raise stop(str(error), REFUSED) from None


def _halves(deployment: Deployment, assumed: Assumptions) -> list[Half]:
    try:
        return halves(deployment, assumed)
    except EngineError as error:
        raise stop(str(error), FAILED) from None


def price_list() -> PriceBook:
    """Return the prices that are in force, or say in a line why they cannot be read and exit with 2."""
    try:
        return price_book(FETCHED)
    except ValueError as error:
        raise stop(str(error), REFUSED) from None


def _read(files: Iterable[Path]) -> None:
    """Keep the prices of offer files."""
    for file in files:
        try:
            prices = read_offer(file)
        except ValueError as error:
            raise stop(str(error), REFUSED) from None
        save_fetched(FETCHED, prices)
        regions = {price.region for price in prices}
        err.print(f"{file}: {len(prices)} prices in {len(regions)} regions", soft_wrap=True)


def _refresh(asked: Iterable[Half]) -> bool:
    """Fetch the prices of what is rented; return whether every API answered."""
    from ops.cost.refresh import PricesUnreachableError, refresh_aws, refresh_azure  # noqa: PLC0415  imports boto3

    answered = True
    for half in asked:
        ask = refresh_aws if half.cloud == "aws" else refresh_azure
        try:
            found = ask(half.items, half.region)
        except PricesUnreachableError as error:
            complain(str(error))
            answered = False
            continue
        save_fetched(FETCHED, found.prices)
        err.print(f"{half.cloud}: {len(found.prices)} prices fetched for {half.region}", soft_wrap=True)
        if found.unknown:
            err.print(f"  without an answer: {', '.join(found.unknown)}", soft_wrap=True)
    return answered


def _pairs(priced: list[Estimate], others: list[Estimate]) -> Iterable[tuple[str, Estimate | None, Estimate | None]]:
    ours, theirs = _named(priced), _named(others)
    return [(cloud, ours.get(cloud), theirs.get(cloud)) for cloud in {**ours, **theirs}]


def _named(estimates: list[Estimate]) -> dict[str, Estimate]:
    """Return estimates by cloud, and by region behind the first of a cloud."""
    named: dict[str, Estimate] = {}
    for each in estimates:
        named[f"{each.cloud} {each.region}" if each.cloud in named else each.cloud] = each
    return named
