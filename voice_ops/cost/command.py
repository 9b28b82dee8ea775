"""`voice cost`: the cost of a deployment file."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from voice_blueprint.file.model.deployment import Deployment
from voice_blueprint.shipped import WORKING_FOLDER
from voice_ops.cost.estimate import Assumptions, ChargedSection, collect_charged_sections, price_section
from voice_ops.cost.model import Estimate, sum_amounts
from voice_ops.cost.offers import read_offer_prices
from voice_ops.cost.prices import PriceBook, load_price_book, save_downloaded_prices
from voice_ops.cost.report import (
    print_difference,
    print_estimate,
    print_total,
    serialize_difference,
    serialize_estimate,
)
from voice_ops.cost.revisions import LAST_RELEASE, NoSuchRevisionError, open_comparison
from voice_ops.exits import FAILED, INVALID_INPUT
from voice_ops.findings import load_checked_deployment
from voice_ops.options import DeploymentFileArgument, JsonOption
from voice_ops.output import create_exit, err, out, print_error, print_json
from voice_sandbox.azure.errors import EngineError

PRICES_FILE = WORKING_FOLDER / ".voice/prices.json"
"""Downloaded prices, which take precedence over the catalogue's until the file is deleted."""

DIFF_HELP = f"Show the difference in cost from another file, or from FILE at a git revision or {LAST_RELEASE}."
PRICE_LIST_HELP = (
    "Price list file to import (index.json or index.csv of a service from AWS's price list bulk API, which requires no "
    "credentials). Prices are saved in .voice/prices.json; repeat for more."
)
REFRESH_HELP = "Query the price APIs, and save the prices in .voice/prices.json for later runs."
STRICT_HELP = "Exit with 1 if hosts or nodes have no price in the region, and the total is a lower bound."
UTILIZATION_HELP = (
    "Expected size between the minimum (0) and the maximum (1). Default: the mean over the day in `load`."
)


def cost(
    file: DeploymentFileArgument,
    *,
    diff: Annotated[str | None, typer.Option("--diff", metavar="OTHER", help=DIFF_HELP)] = None,
    refresh: Annotated[bool, typer.Option("--refresh-prices", help=REFRESH_HELP)] = False,
    price_lists: Annotated[
        list[Path] | None,
        typer.Option("--price-list", metavar="OFFER", exists=True, dir_okay=False, help=PRICE_LIST_HELP),
    ] = None,
    utilization: Annotated[float | None, typer.Option("--utilization", min=0, max=1, help=UTILIZATION_HELP)] = None,
    strict: Annotated[bool, typer.Option("--strict", help=STRICT_HELP)] = False,
    as_json: JsonOption = False,
) -> None:
    """Estimate the cost of a deployment, by tier and per hour of audio.

    Reads the CloudFormation templates and the Pulumi resources. Low is the cost with every size at its minimum, peak at
    its maximum. Prices are list prices without discounts and taxes, with date and region; resources without a price are
    listed. Requires no credentials, and a network only for --refresh-prices.

    Example: voice cost deployments/production-us-east-1.yaml --diff last-release
    """
    assumed = Assumptions(utilization)
    deployment = load_checked_deployment(file)
    other_name, before = _load_comparison_deployment(file, diff) if diff else ("", None)
    sections = _synthesize_sections(deployment, assumed)
    other_sections = _synthesize_sections(before, assumed) if before else []
    _import_offers(price_lists or ())
    is_fresh = _refresh_prices([*sections, *other_sections]) if refresh else True
    book = load_prices()
    estimates = [price_section(section, book) for section in sections]
    others = [price_section(section, book) for section in other_sections]
    if as_json:
        report: dict[str, object] = {
            "clouds": {name: serialize_estimate(each) for name, each in _group_by_cloud(estimates).items()}
        }
        if len(estimates) > 1:
            report["usd_per_month"] = sum_amounts(each.usd for each in estimates)
        if deployment.cell_count > 1:
            usd = sum_amounts(each.usd for each in estimates) * deployment.cell_count
            report["cells"] = {"count": deployment.cell_count, "usd_per_month": usd}
        if before:
            report["diff"] = {
                "other": other_name,
                "clouds": {
                    cloud: serialize_difference(our, other_estimate)
                    for cloud, our, other_estimate in _pair_estimates(estimates, others)
                },
            }
        print_json(report, deployment.name)
    else:
        for estimate in estimates:
            print_estimate(estimate)
        if len(estimates) > 1:
            print_total(estimates)
        if deployment.cell_count > 1:
            low, expected, peak = (sum_amounts(each.usd for each in estimates) * deployment.cell_count).cases
            out.print(
                f"this is the cost of one cell; {deployment.cell_count:,} cells cost {low:,.0f} to {peak:,.0f} USD a "
                f"month, {expected:,.0f} expected",
                soft_wrap=True,
            )
        for _, own_estimate, compared in _pair_estimates(estimates, others) if before else ():
            print_difference(own_estimate, compared, other_name)
    if not is_fresh or (strict and any(each.unavailable_hosts for each in estimates)):
        raise typer.Exit(FAILED)


def _load_comparison_deployment(file: Path, revision: str) -> tuple[str, Deployment]:
    try:
        with open_comparison(file, revision) as (name, path):
            return name, load_checked_deployment(path)
    except NoSuchRevisionError as error:
        raise create_exit(str(error), INVALID_INPUT) from None


def _synthesize_sections(deployment: Deployment, assumed: Assumptions) -> list[ChargedSection]:
    try:
        return collect_charged_sections(_select_cell(deployment), assumed)
    except EngineError as error:
        raise create_exit(str(error), FAILED) from None


def _select_cell(deployment: Deployment) -> Deployment:
    """Return one cell in the first region, or the unchanged deployment if it has no cells."""
    cell = deployment.cell
    if cell.whole_deployment is None or cell.aws_section is None:
        return cell
    return cell.model_copy(update={"aws_section": cell.aws_section.model_copy(update={"other_regions": ()})})


def load_prices() -> PriceBook:
    """Return the current prices, or exit with status 2 and a message if they cannot be read."""
    try:
        return load_price_book(PRICES_FILE)
    except ValueError as error:
        raise create_exit(str(error), INVALID_INPUT) from None


def _import_offers(files: Iterable[Path]) -> None:
    """Save the prices from offer files for later runs."""
    for file in files:
        try:
            prices = read_offer_prices(file)
        except ValueError as error:
            raise create_exit(str(error), INVALID_INPUT) from None
        save_downloaded_prices(PRICES_FILE, prices)
        regions = {price.region for price in prices}
        err.print(f"{file}: {len(prices)} prices in {len(regions)} regions", soft_wrap=True)


def _refresh_prices(priced_sections: Iterable[ChargedSection]) -> bool:
    """Download the prices of rented items; return True if every API responded."""
    from voice_ops.cost.refresh import PriceApiError, fetch_aws_prices, fetch_azure_prices  # noqa: PLC0415  imports boto3

    all_responded = True
    for section in priced_sections:
        query = fetch_aws_prices if section.cloud == "aws" else fetch_azure_prices
        try:
            refreshed = query(section.charged_items, section.region)
        except PriceApiError as error:
            print_error(str(error))
            all_responded = False
            continue
        save_downloaded_prices(PRICES_FILE, refreshed.prices)
        err.print(f"{section.cloud}: {len(refreshed.prices)} prices fetched for {section.region}", soft_wrap=True)
        if refreshed.unknown_items:
            err.print(f"  no price found: {', '.join(refreshed.unknown_items)}", soft_wrap=True)
    return all_responded


def _pair_estimates(
    estimates: list[Estimate], others: list[Estimate]
) -> Iterable[tuple[str, Estimate | None, Estimate | None]]:
    sections, other_sections = _group_by_cloud(estimates), _group_by_cloud(others)
    return [(cloud, sections.get(cloud), other_sections.get(cloud)) for cloud in {**sections, **other_sections}]


def _group_by_cloud(estimates: list[Estimate]) -> dict[str, Estimate]:
    """Return the estimates by cloud. The key of each additional region contains the name of the region."""
    named: dict[str, Estimate] = {}
    for each in estimates:
        named[f"{each.cloud} {each.region}" if each.cloud in named else each.cloud] = each
    return named
