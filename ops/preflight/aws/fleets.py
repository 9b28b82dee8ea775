"""Fleets: are their types sold in their zones, are they what the catalogue says, would a launch be allowed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from blueprint.aws import machine_images
from blueprint.catalog import InstanceType
from blueprint.checks.fleets import Fleet, fleets
from blueprint.file.model.aws import CapacityBlock, CapacityReservation, Spot
from ops.aws.account import AREA, Account
from ops.aws.artifacts import prepared, remedy
from ops.aws.refusals import code_of, is_denied
from ops.preflight.questions import first_line
from ops.preflight.report import Row, Status, answer

if TYPE_CHECKING:
    from types_boto3_ec2.type_defs import InstanceTypeInfoTypeDef


def offering_rows(account: Account) -> Iterator[Row]:
    """Say in which of its zones each fleet's type is sold."""
    filters = [{"Name": "instance-type", "Values": sorted(_types(account))}]
    asked = {"LocationType": "availability-zone", "Filters": filters}
    offers = account.listed("ec2", "describe_instance_type_offerings", "InstanceTypeOfferings[]", None, **asked)
    sold = {(offer["InstanceType"], offer["Location"]) for offer in offers}
    for fleet in fleets(account.deployment):
        yield _offering(fleet, [zone for zone in fleet.zones if (fleet.instance_type.name, zone) in sold])


def _offering(fleet: Fleet, zones: list[str]) -> Row:
    missing = [zone for zone in fleet.zones if zone not in zones]
    kind = fleet.instance_type.name
    # A group of its own in each zone has nowhere to go from a zone that does not sell its type.
    blocks = f"take zones that sell {kind}; {', '.join(missing)} does not" if missing and fleet.groups > 1 else ""
    return answer(
        AREA,
        f"zones of {kind} for {fleet.name}",
        ", ".join(zones) or "none of them sells it",
        ", ".join(fleet.zones),
        blocks=blocks if zones else "take another region",
        warns=f"give fleet {fleet.name} the availability_zones {', '.join(zones)}" if missing else "",
    )


def drift_rows(account: Account) -> Iterator[Row]:
    """Compare the catalogue's rows with the live API: ENA Express, EFA, vCPUs."""
    types = _types(account)
    for live in account.listed("ec2", "describe_instance_types", "InstanceTypes[]", InstanceTypes=sorted(types)):
        yield _drift(account, types[live["InstanceType"]], live)


def _drift(account: Account, row: InstanceType, live: InstanceTypeInfoTypeDef) -> Row:
    network = live.get("NetworkInfo", {})
    facts = {
        "ENA Express": (row.ena_express, bool(network.get("EnaSrdSupported", False))),
        "EFA": (row.efa, bool(network.get("EfaSupported", False))),
        "vCPU": (row.vcpus, live["VCpuInfo"]["DefaultVCpus"]),
    }
    wrong = [f"{name} {_word(now)}" for name, (ours, now) in facts.items() if ours != now]
    vad = account.deployment.aws.vad
    needs_ena = vad.ena_express.enabled and vad.instance_type == row.name
    blocks = needs_ena and not facts["ENA Express"][1]
    return answer(
        AREA,
        f"{row.name} as the catalogue has it",
        f"the API says {', '.join(wrong)}" if wrong else "the API agrees",
        ", ".join(f"{name} {_word(ours)}" for name, (ours, _) in facts.items()),
        blocks="set vad.ena_express.enabled to false, or take a type that has it" if blocks else "",
        warns=f"correct {row.name} in blueprint/catalog/instance_types.yaml" if wrong else "",
    )


def _word(value: bool | int) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def image_rows(account: Account) -> Iterator[Row]:
    """Say whether the machine images that the fleets boot from exist in the region."""
    for chosen in sorted(set(_images(account).values())):
        public = chosen in machine_images.PUBLIC_PARAMETERS.values()
        asked = f"machine image {'/'.join(chosen.split('/')[-4:-2]) if public else chosen}"
        image = _image(account, chosen)
        remedy = "take another region" if public else "`voice images ami` proposes one that exists"
        yield answer(AREA, asked, image or f"there is no {chosen}", "an image id", blocks="" if image else remedy)


def artifact_rows(account: Account) -> Iterator[Row]:
    """Say whether what the hosts of each ASR fleet fetch is in the bucket; without it none of them starts."""
    for fleet, place, complete in prepared(account):
        found, needed = f"{place} is {'' if complete else 'not '}complete", "left by the job of the fleet"
        yield answer(
            AREA, f"artifacts of {fleet.name}", found, needed, blocks="" if complete else remedy(account, fleet)
        )


def dry_run_rows(account: Account) -> Iterator[Row]:
    """Ask EC2 to launch one host of each fleet without launching it.

    It needs a subnet; before the first deploy to an account without any there is nothing to try in.
    """
    subnets = account.session.client("ec2").describe_subnets()["Subnets"]
    by_zone = {subnet["AvailabilityZone"]: subnet["SubnetId"] for subnet in subnets}
    for fleet in fleets(account.deployment):
        subnet = next((by_zone[zone] for zone in fleet.zones if zone in by_zone), None)
        image = _image(account, _images(account)[fleet.name])
        if subnet is None or image is None:
            lacks = "subnet in its zones" if image else "machine image"
            yield Row(AREA, f"launch of a {fleet.name} host", Status.NOT_ASKED, f"there is no {lacks} yet")
        else:
            yield _dry_run(account, fleet, subnet, image)


def _dry_run(account: Account, fleet: Fleet, subnet: str, image: str) -> Row:
    asked, needed = f"launch of a {fleet.name} host", f"{fleet.instance_type.name} with {image}"
    request: dict[str, Any] = {
        "DryRun": True,
        "ImageId": image,
        "InstanceType": fleet.instance_type.name,
        "MinCount": 1,
        "MaxCount": 1,
        "SubnetId": subnet,
        **_market(fleet),
    }
    try:
        account.session.client("ec2").run_instances(**request)
    except ClientError as error:
        if code_of(error) == "DryRunOperation":
            return answer(AREA, asked, "it would succeed, capacity aside", needed)
        if is_denied(error):
            return answer(AREA, asked, "denied", needed, blocks="allow ec2:RunInstances and iam:PassRole")
        if code_of(error).startswith(("Invalid", "Unsupported", "VcpuLimit", "InsufficientInstanceCapacity")):
            message = first_line(str(error.response["Error"].get("Message", "")))
            return answer(AREA, asked, f"{code_of(error)}: {message}", needed, blocks="see the message")
        raise
    raise AssertionError("a dry run always ends in an error")


def _market(fleet: Fleet) -> dict[str, Any]:
    match fleet.purchase:
        case Spot():
            return {"InstanceMarketOptions": {"MarketType": "spot"}}
        case CapacityReservation(reservation_id=reservation):
            return _target(reservation)
        case CapacityBlock(reservation_id=reservation):
            return {"InstanceMarketOptions": {"MarketType": "capacity-block"}, **_target(reservation)}
        case _:
            return {}


def _target(reservation: str) -> dict[str, Any]:
    target = {"CapacityReservationId": reservation}
    return {"CapacityReservationSpecification": {"CapacityReservationTarget": target}}


def _types(account: Account) -> dict[str, InstanceType]:
    return {fleet.instance_type.name: fleet.instance_type for fleet in fleets(account.deployment)}


def _images(account: Account) -> dict[str, str]:
    """Return what names the machine image of each fleet."""
    return {
        fleet.name: fleet.machine_image or machine_images.public_parameter(fleet.instance_type)
        for fleet in fleets(account.deployment)
    }


def _image(account: Account, chosen: str) -> str | None:
    try:
        if machine_images.is_ami(chosen):
            account.session.client("ec2").describe_images(ImageIds=[chosen])
            return chosen
        return account.session.client("ssm").get_parameter(Name=chosen)["Parameter"]["Value"]
    except ClientError as error:
        if code_of(error) in {"ParameterNotFound", "ParameterVersionNotFound", "InvalidAMIID.NotFound"}:
            return None
        raise
