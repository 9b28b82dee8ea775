"""Checks for machine images, reservations and the existing state store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from voice_blueprint.aws import machine_images, names
from voice_blueprint.aws.fleets import Fleet, iter_fleets
from voice_blueprint.file.model.aws import CapacityBlock, CapacityReservation
from voice_ops.aws.account import REPORT_AREA, Account
from voice_ops.aws.refusals import get_error_code
from voice_ops.preflight.report import CheckResult, create_check_result
from voice_sandbox.aws.diff import is_older_version

if TYPE_CHECKING:
    from types_boto3_ec2.type_defs import CapacityReservationTypeDef, ImageTypeDef


def check_machine_images(account: Account) -> Iterator[CheckResult]:
    """Report whether the fleets' machine images exist with the required architecture and volume size."""
    chosen: dict[str, list[Fleet]] = {}
    for fleet in iter_fleets(account.deployment):
        chosen.setdefault(get_image_reference(fleet), []).append(fleet)
    for name, users in sorted(chosen.items()):
        public = name in machine_images.PUBLIC_IMAGE_PARAMETERS.values()
        question = f"machine image {'/'.join(name.split('/')[-4:-2]) if public else name}"
        if (id_ := find_image_id(account, name)) is None:
            remedy = "use another region" if public else "`voice images ami` proposes one that exists"
            yield create_check_result(REPORT_AREA, question, f"{name} does not exist", "an image id", blocks=remedy)
        elif public:
            # For AWS's own image, the parameter is derived from the hosts' compute.
            yield create_check_result(REPORT_AREA, question, id_, "an image id")
        else:
            yield _check_machine_image(account, question, id_, users)


def _check_machine_image(account: Account, question: str, id_: str, users: list[Fleet]) -> CheckResult:
    needs = {fleet.name: (fleet.instance_type.architecture, _get_root_volume_gib(account, fleet)) for fleet in users}
    needed = "; ".join(f"{arch}, at most {gib} GiB for {name}" for name, (arch, gib) in needs.items())
    image = _describe_image(account, id_)
    if image is None:
        remedy = "`voice images ami` proposes one that exists in this region"
        return create_check_result(
            REPORT_AREA, question, f"{id_} does not exist in {account.region}", needed, blocks=remedy
        )
    has, state, gib = image.get("Architecture", "unknown"), image.get("State", "available"), _get_snapshot_gib(image)
    problems = [
        f"the hosts of {name} are {arch}: specify an image for {arch}"
        for name, (arch, _) in needs.items()
        if has not in {arch, "unknown"}
    ]
    problems += [f"set root_volume_gib of {name} to {gib} or more" for name, (_, root) in needs.items() if gib > root]
    if state != "available":
        problems.append("wait until it is available, or specify another image")
    size = f", {gib} GiB" if gib else ""
    return create_check_result(
        REPORT_AREA, question, f"{id_}, {has}, {state}{size}", needed, blocks="; ".join(problems)
    )


def _get_root_volume_gib(account: Account, fleet: Fleet) -> int:
    aws = account.deployment.aws
    volume_sizes = {names.VAD_FLEET: aws.vad.root_volume_gib} | {each.name: each.root_volume_gib for each in aws.asr}
    return volume_sizes[fleet.name]


def _get_snapshot_gib(image: ImageTypeDef) -> int:
    """Return the size of the root volume snapshot, which is the minimum size of the volume."""
    root = image.get("RootDeviceName")
    disks = [each for each in image.get("BlockDeviceMappings", []) if each.get("DeviceName") == root]
    return max((each.get("Ebs", {}).get("VolumeSize", 0) for each in disks), default=0)


def get_image_reference(fleet: Fleet) -> str:
    """Return the AMI of a fleet, or the SSM parameter that contains the AMI."""
    return fleet.machine_image or machine_images.get_public_image_parameter(fleet.instance_type)


def find_image_id(account: Account, reference: str) -> str | None:
    """Return the id of an AMI or the value of an SSM parameter, or ``None`` if it does not exist."""
    if machine_images.is_ami_id(reference):
        return reference if _describe_image(account, reference) else None
    try:
        return account.session.client("ssm").get_parameter(Name=reference)["Parameter"]["Value"]
    except ClientError as error:
        if get_error_code(error) in {"ParameterNotFound", "ParameterVersionNotFound"}:
            return None
        raise


def _describe_image(account: Account, id_: str) -> ImageTypeDef | None:
    try:
        return next(iter(account.session.client("ec2").describe_images(ImageIds=[id_])["Images"]), None)
    except ClientError as error:
        if get_error_code(error) in {"InvalidAMIID.NotFound", "InvalidAMIID.Unavailable", "InvalidAMIID.Malformed"}:
            return None
        raise


def check_reservations(account: Account) -> Iterator[CheckResult]:
    """Compare the fleets' reservations with those in EC2."""
    for fleet in iter_fleets(account.deployment):
        if isinstance(fleet.purchase, CapacityReservation | CapacityBlock):
            yield _check_reservation(account, fleet, fleet.purchase)


def _check_reservation(account: Account, fleet: Fleet, purchase: CapacityReservation | CapacityBlock) -> CheckResult:
    id_ = purchase.reservation_id
    question = f"reservation {id_} of {fleet.name}"
    needed = f"active, {fleet.instance_type.name} in {', '.join(fleet.zones)}, {fleet.min_hosts} to {fleet.max_hosts}"
    try:
        result = account.session.client("ec2").describe_capacity_reservations(CapacityReservationIds=[id_])
        reservation = next(iter(result["CapacityReservations"]), None)
    except ClientError as error:
        if not get_error_code(error).startswith("InvalidCapacityReservationId"):
            raise
        reservation = None
    if reservation is None:
        remedy = f"specify one that exists in {account.region}, or set purchase to on-demand"
        return create_check_result(
            REPORT_AREA, question, f"it does not exist in {account.region}", needed, blocks=remedy
        )
    total = reservation.get("TotalInstanceCount", 0)
    host_type = f"{reservation.get('InstanceType')} in {reservation.get('AvailabilityZone')}"
    state = f"{reservation.get('State')}, {host_type}, {total} hosts"
    blocks = "; ".join(_find_reservation_mismatches(fleet, purchase, reservation))
    warns = ""
    if total < fleet.max_hosts:
        warns = f"set hosts.max to {total}: launches beyond the reservation fail"
    return create_check_result(REPORT_AREA, question, state, needed, blocks=blocks, warns=warns)


def _find_reservation_mismatches(
    fleet: Fleet, purchase: CapacityReservation | CapacityBlock, reservation: CapacityReservationTypeDef
) -> Iterator[str]:
    kind, zone = reservation.get("InstanceType"), reservation.get("AvailabilityZone", "")
    if reservation.get("State") != "active":
        yield f"it is {reservation.get('State')}: specify an active one, or wait until it is active"
    if kind != fleet.instance_type.name:
        yield f"it is for {kind}: specify one for {fleet.instance_type.name}"
    if fleet.zones != (zone,):
        yield f"set availability_zones of {fleet.name} to [{zone}]"
    if (total := reservation.get("TotalInstanceCount", 0)) < fleet.min_hosts:
        yield (
            f"it has {total} of the minimum of {fleet.min_hosts} hosts: set hosts.min to {total}, or increase the "
            "reservation"
        )
    is_block = reservation.get("ReservationType", "default") == "capacity-block"
    if is_block != isinstance(purchase, CapacityBlock):
        yield f"set purchase.option to {'capacity-block' if is_block else 'capacity-reservation'}"


def check_state_store_version(account: Account) -> Iterator[CheckResult]:
    """Compare the version of the deployed state store with that in the file, since a store cannot be downgraded."""
    stack = names.build_stack_name(account.deployment, "state")
    ids = set(account.fetch_physical_ids(stack).values()) if stack in account.fetch_stack_statuses() else set()
    clusters = account.iter_paginated_items("elasticache", "describe_cache_clusters", "CacheClusters[]")
    running = {each["EngineVersion"] for each in clusters if each.get("ReplicationGroupId") in ids}
    desired = account.deployment.aws.state.engine_version
    for version in sorted(running):
        short = ".".join(version.split(".")[:2])
        remedy = (
            f"set aws.state.engine_version to {short}; ElastiCache has no downgrade, and an older store requires a "
            "snapshot of its version"
        )
        blocks = remedy if is_older_version(desired, version) else ""
        yield create_check_result(
            REPORT_AREA, "version of the state store", f"Valkey {version}", f"Valkey {desired}", blocks=blocks
        )
