"""Checks for fleets: availability of types in zones, comparison with the catalogue, and permission to launch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from voice_blueprint.aws.fleets import Fleet, iter_fleets
from voice_blueprint.catalog import InstanceType
from voice_blueprint.file.model.aws import CapacityBlock, CapacityReservation, Spot
from voice_ops.aws.account import REPORT_AREA, Account
from voice_ops.aws.artifacts import find_fleet_artifacts, format_artifacts_instructions
from voice_ops.aws.refusals import get_error_code, is_access_denied
from voice_ops.preflight.aws.machines import find_image_id, get_image_reference
from voice_ops.preflight.questions import extract_first_line
from voice_ops.preflight.report import CheckResult, CheckStatus, create_check_result

if TYPE_CHECKING:
    from types_boto3_ec2.type_defs import InstanceTypeInfoTypeDef


def check_offerings(account: Account) -> Iterator[CheckResult]:
    """Report the zones in which each fleet's type is available."""
    filters = [{"Name": "instance-type", "Values": sorted(_list_instance_types(account))}]
    query = {"LocationType": "availability-zone", "Filters": filters}
    offers = account.iter_paginated_items(
        "ec2", "describe_instance_type_offerings", "InstanceTypeOfferings[]", None, **query
    )
    available = {(offer["InstanceType"], offer["Location"]) for offer in offers}
    for fleet in iter_fleets(account.deployment):
        yield _check_offering(fleet, [zone for zone in fleet.zones if (fleet.instance_type.name, zone) in available])


def _check_offering(fleet: Fleet, zones: list[str]) -> CheckResult:
    missing = [zone for zone in fleet.zones if zone not in zones]
    kind = fleet.instance_type.name
    # If each zone has its own group, other zones cannot compensate for a zone without the type.
    blocks = f"use zones that offer {kind}; {', '.join(missing)} does not" if missing and fleet.group_count > 1 else ""
    return create_check_result(
        REPORT_AREA,
        f"zones of {kind} for {fleet.name}",
        ", ".join(zones) or "not offered in any of them",
        ", ".join(fleet.zones),
        blocks=blocks if zones else "use another region",
        warns=f"set availability_zones of fleet {fleet.name} to {', '.join(zones)}" if missing else "",
    )


def check_catalogue_drift(account: Account) -> Iterator[CheckResult]:
    """Compare ENA Express, EFA and vCPUs for the instance types in the catalogue with those that EC2 reports."""
    types = _list_instance_types(account)
    for live in account.iter_paginated_items(
        "ec2", "describe_instance_types", "InstanceTypes[]", InstanceTypes=sorted(types)
    ):
        yield _compare_instance_type(account, types[live["InstanceType"]], live)


def _compare_instance_type(account: Account, row: InstanceType, live: InstanceTypeInfoTypeDef) -> CheckResult:
    network = live.get("NetworkInfo", {})
    facts = {
        "ENA Express": (row.ena_express, bool(network.get("EnaSrdSupported", False))),
        "EFA": (row.efa, bool(network.get("EfaSupported", False))),
        "vCPU": (row.vcpus, live["VCpuInfo"]["DefaultVCpus"]),
    }
    wrong = [f"{name} {_format_capability(now)}" for name, (expected, now) in facts.items() if expected != now]
    vad = account.deployment.aws.vad
    needs_ena = vad.ena_express.enabled and vad.instance_type == row.name
    blocks = needs_ena and not facts["ENA Express"][1]
    return create_check_result(
        REPORT_AREA,
        f"{row.name} in the catalogue",
        f"the API returns {', '.join(wrong)}" if wrong else "the API returns the same",
        ", ".join(f"{name} {_format_capability(expected)}" for name, (expected, _) in facts.items()),
        blocks="set vad.ena_express.enabled to false, or use a type that supports it" if blocks else "",
        warns=f"correct {row.name} in voice_blueprint/catalog/instance_types.yaml" if wrong else "",
    )


def _format_capability(value: bool | int) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def check_artifacts(account: Account) -> Iterator[CheckResult]:
    """Report whether the bucket contains the artifacts for each ASR fleet.

    The hosts of a fleet do not start without the fleet's artifacts.
    """
    for fleet, location, complete in find_fleet_artifacts(account):
        result, needed = f"{location} is {'' if complete else 'not '}complete", "written by the job of the fleet"
        yield create_check_result(
            REPORT_AREA,
            f"artifacts of {fleet.name}",
            result,
            needed,
            blocks="" if complete else format_artifacts_instructions(account, fleet),
        )


def check_host_launches(account: Account) -> Iterator[CheckResult]:
    """Request a dry-run launch from EC2 for one host in each fleet.

    A dry run requires a subnet, so it is skipped before the first deploy to an account without subnets.
    """
    subnets = account.session.client("ec2").describe_subnets()["Subnets"]
    by_zone = {subnet["AvailabilityZone"]: subnet["SubnetId"] for subnet in subnets}
    for fleet in iter_fleets(account.deployment):
        subnet = next((by_zone[zone] for zone in fleet.zones if zone in by_zone), None)
        image = find_image_id(account, get_image_reference(fleet))
        if subnet is None or image is None:
            missing = "subnet in the zones" if image else "machine image"
            yield CheckResult(
                REPORT_AREA, f"launch of a {fleet.name} host", CheckStatus.SKIPPED, f"the {missing} does not exist yet"
            )
        else:
            yield _check_host_launch(account, fleet, subnet, image)


def _check_host_launch(account: Account, fleet: Fleet, subnet: str, image: str) -> CheckResult:
    question, requirement = f"launch of a {fleet.name} host", f"{fleet.instance_type.name} with {image}"
    request: dict[str, Any] = {
        "DryRun": True,
        "ImageId": image,
        "InstanceType": fleet.instance_type.name,
        "MinCount": 1,
        "MaxCount": 1,
        "SubnetId": subnet,
        **_build_market_options(fleet),
    }
    try:
        account.session.client("ec2").run_instances(**request)
    except ClientError as error:
        if get_error_code(error) == "DryRunOperation":
            return create_check_result(
                REPORT_AREA, question, "the launch would succeed if there is capacity", requirement
            )
        if is_access_denied(error):
            return create_check_result(
                REPORT_AREA, question, "denied", requirement, blocks="allow ec2:RunInstances and iam:PassRole"
            )
        if get_error_code(error).startswith(("Invalid", "Unsupported", "VcpuLimit", "InsufficientInstanceCapacity")):
            message = extract_first_line(str(error.response["Error"].get("Message", "")))
            return create_check_result(
                REPORT_AREA, question, f"{get_error_code(error)}: {message}", requirement, blocks="see the message"
            )
        raise
    raise AssertionError("a dry run always ends in an error")


def _build_market_options(fleet: Fleet) -> dict[str, Any]:
    match fleet.purchase:
        case Spot():
            return {"InstanceMarketOptions": {"MarketType": "spot"}}
        case CapacityReservation(reservation_id=reservation):
            return _build_reservation_target(reservation)
        case CapacityBlock(reservation_id=reservation):
            return {"InstanceMarketOptions": {"MarketType": "capacity-block"}, **_build_reservation_target(reservation)}
        case _:
            return {}


def _build_reservation_target(reservation: str) -> dict[str, Any]:
    target = {"CapacityReservationId": reservation}
    return {"CapacityReservationSpecification": {"CapacityReservationTarget": target}}


def _list_instance_types(account: Account) -> dict[str, InstanceType]:
    return {fleet.instance_type.name: fleet.instance_type for fleet in iter_fleets(account.deployment)}
