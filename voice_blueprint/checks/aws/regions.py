"""Checks on files with several regions."""

from collections.abc import Iterator

from voice_blueprint.aws.fleets import iter_fleets
from voice_blueprint.checks.base import Violation, deployment_check
from voice_blueprint.file.model.aws import AsrFleet, VadFleet
from voice_blueprint.file.model.deployment import Deployment, Environment
from voice_blueprint.file.source import Location

HOURS_PER_MONTH = 730


@deployment_check(
    "regions-share-no-ids",
    "No other region uses the id of a machine image or reservation of the first region.",
    source="docs.aws.amazon.com/AWSEC2/latest/UserGuide/using-regions-availability-zones.html",
)
def check_regions_share_no_ids(deployment: Deployment) -> Iterator[Violation]:
    if deployment.aws_section is None:
        return
    aws = deployment.aws
    for index, other in enumerate(aws.other_regions):
        at: Location = ("aws", "other_regions", index)
        shared_fleets: list[tuple[str, VadFleet | AsrFleet]] = [] if other.vad else [("vad", aws.vad)]
        shared_fleets += [] if other.asr else [("asr", fleet) for fleet in aws.asr]
        for part, fleet in shared_fleets:
            for id_ in _iter_regional_ids(fleet):
                yield Violation(at, f"{id_} exists only in {aws.region}", f"set `{part}` for {other.region}")


def _iter_regional_ids(fleet: VadFleet | AsrFleet) -> Iterator[str]:
    if fleet.machine_image and fleet.machine_image.startswith("ami-"):
        yield fleet.machine_image
    reservation = getattr(getattr(fleet, "purchase", None), "reservation_id", None)
    if reservation:
        yield reservation


@deployment_check(
    "budget-covers-minimum",
    "The budget covers the minimum number of hosts in all regions.",
    source="On-Demand list prices of the catalogue",
)
def check_budget_covers_minimum(deployment: Deployment) -> Iterator[Violation]:
    if deployment.aws_section is None or deployment.environment is Environment.SANDBOX:
        return
    budget = deployment.aws.observability.monthly_budget_usd
    usd = HOURS_PER_MONTH * sum(
        fleet.min_hosts * fleet.instance_type.usd_per_hour.get(region_deployment.aws.region, 0.0)
        for region_deployment in deployment.split_by_region()
        for fleet in iter_fleets(region_deployment)
    )
    if usd > budget:
        yield Violation(
            ("aws", "observability", "monthly_budget_usd"),
            f"the minimum number of hosts costs {usd:,.0f} USD a month, but the budget is {budget:,}",
            # The budget includes more than hosts.
            f"set aws.observability.monthly_budget_usd to {usd * 1.2:.0f} or more, or lower the number of hosts",
        )
