"""What several regions of one file may not share."""

from collections.abc import Iterator

from blueprint.checks.base import Violation, check
from blueprint.file.model.aws import AsrFleet, VadFleet
from blueprint.file.model.deployment import Deployment
from blueprint.file.source import Location


@check(
    "regions-share-no-ids",
    "No other region takes a machine image or a reservation of the first by its id.",
    source="docs.aws.amazon.com/AWSEC2/latest/UserGuide/using-regions-availability-zones.html",
)
def regions_share_no_ids(deployment: Deployment) -> Iterator[Violation]:
    if deployment.aws_half is None:
        return
    aws = deployment.aws
    for index, other in enumerate(aws.other_regions):
        at: Location = ("aws", "other_regions", index)
        shared: list[tuple[str, VadFleet | AsrFleet]] = [] if other.vad else [("vad", aws.vad)]
        shared += [] if other.asr else [("asr", fleet) for fleet in aws.asr]
        for part, fleet in shared:
            for id_ in _ids(fleet):
                yield Violation(at, f"{id_} exists in {aws.region} alone", f"give {other.region} its own `{part}`")


def _ids(fleet: VadFleet | AsrFleet) -> Iterator[str]:
    if fleet.machine_image and fleet.machine_image.startswith("ami-"):
        yield fleet.machine_image
    reservation = getattr(getattr(fleet, "purchase", None), "reservation_id", None)
    if reservation:
        yield reservation
