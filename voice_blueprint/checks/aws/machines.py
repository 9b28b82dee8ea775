"""Checks on AWS hosts: machine images, disks, capacity reservations, and the version of the store."""

import re
from collections.abc import Iterator

from voice_blueprint import catalog
from voice_blueprint.aws.fleets import Fleet, iter_fleets
from voice_blueprint.catalog import InstanceType
from voice_blueprint.checks.base import Severity, Violation, deployment_check
from voice_blueprint.contract.images import Image
from voice_blueprint.engines.sizing.memory import calculate_weights_gib
from voice_blueprint.file.model.aws import AsrFleet, CapacityBlock, CapacityReservation, StateStore
from voice_blueprint.file.model.deployment import Deployment
from voice_blueprint.file.source import Location
from voice_blueprint.hosts import VAD_IMAGES, list_asr_images
from voice_blueprint.images import load_image_specs

OS_DISK_GIB = 8.0
"""Space on a root volume for the operating system and the accelerator's runtime, GiB. ASSUMED."""
COMPILE_CACHES_GIB = 2.0
"""Space for an engine's compile caches, GiB. ASSUMED."""
WHISPER_WEIGHTS_GIB_BY_COMPUTE = {"cpu": 0.2, "gpu": 3.0, "neuron": 6.0}
"""Size of the weights that our engine downloads by default, GiB. On Neuron, compiled models are included. ASSUMED for
other models."""

_ECS_IMAGE_PARAMETER_PATTERN = re.compile(r"^/aws/service/ecs/optimized-ami/[^/]+/(?:(?P<variant>[^/]+)/)?recommended/")
_ARCHITECTURE_BY_KEYWORD = {"arm64": "arm64", "aarch64": "arm64", "x86_64": "x86_64", "amd64": "x86_64"}
_ACCELERATOR_BY_KEYWORD = {"neuron": "neuron", "inf": "neuron", "gpu": "gpu", "nvidia": "gpu"}


@deployment_check(
    "machine-image-fits-type",
    "The machine image of every fleet matches the architecture of its hosts and contains the runtime of their "
    "accelerators.",
    source="https://docs.aws.amazon.com/AmazonECS/latest/developerguide/retrieve-ecs-optimized_AMI.html (names of the "
    "parameters); an AMI has one architecture: "
    "https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_Image.html",
)
def check_machine_image_fits_type(deployment: Deployment) -> Iterator[Violation]:
    named = [fleet for fleet in iter_fleets(deployment) if fleet.machine_image]
    for fleet in named:
        row, image = fleet.instance_type, fleet.machine_image or ""
        architecture, compute_kind = _infer_public_image_hardware(image)
        for attribute, actual in ((architecture, row.architecture), (compute_kind, row.compute_kind)):
            if attribute and attribute != actual:
                yield Violation(
                    (*fleet.location, "machine_image"),
                    f"{image} is for {attribute}, but the hosts of {fleet.name} are {row.name} ({actual})",
                    "omit machine_image to use the image of AWS, or specify an image for the instance type (`voice "
                    "images ami` proposes one)",
                )
    fleets_by_image: dict[str, Fleet] = {}
    for fleet in named:
        yield from _check_shared_image(fleets_by_image.setdefault(fleet.machine_image or "", fleet), fleet)


def _check_shared_image(first: Fleet, other: Fleet) -> Iterator[Violation]:
    """Yield a violation if two fleets with different architectures use the same machine image."""
    first_type, other_type = first.instance_type, other.instance_type
    if first_type.architecture != other_type.architecture:
        yield Violation(
            (*other.location, "machine_image"),
            f"{other.machine_image} is set for {first.name} ({first_type.name}, {first_type.architecture}) and for "
            f"{other.name} ({other_type.name}, {other_type.architecture}), but an image has one architecture",
            "specify a separate image for each architecture (`voice images ami` proposes one)",
        )


def _infer_public_image_hardware(image: str) -> tuple[str, str]:
    """Infer the architecture and the accelerator of a public image from the name of its parameter.

    Unknown values are empty.
    """
    if not image.startswith("/aws/service/"):
        return "", ""
    words = set(re.split(r"[/:-]", image.replace("x86_64", "amd64")))
    architecture = next((value for word, value in _ARCHITECTURE_BY_KEYWORD.items() if word in words), "")
    accelerator = next((value for word, value in _ACCELERATOR_BY_KEYWORD.items() if word in words), "")
    if match := _ECS_IMAGE_PARAMETER_PATTERN.match(image):
        # The name of the ECS-optimized x86 image without an accelerator contains no variant.
        architecture = architecture or ("x86_64" if match["variant"] != "arm64" else "arm64")
        accelerator = accelerator or "cpu"
    return architecture, accelerator


@deployment_check(
    "images-fit-root-volume",
    "A host's root volume has space for the operating system, all images, and the weights if there is no local disk.",
    source="size of images/*/image.yaml and weights_gib of the catalogue; the operating system's part is assumed",
)
def check_images_fit_root_volume(deployment: Deployment) -> Iterator[Violation]:
    aws, types = deployment.aws, catalog.instance_types()
    hosts: list[tuple[str, Location, int, tuple[Image, ...], float]] = [
        ("vad", ("aws", "vad"), aws.vad.root_volume_gib, VAD_IMAGES, 0.0)
    ]
    hosts += [
        (fleet.name, ("aws", "asr", index), fleet.root_volume_gib, list_asr_images(fleet),
         _calculate_root_volume_weights_gib(fleet, types[fleet.instance_type]))
        for index, fleet in enumerate(aws.asr)
    ]  # fmt: skip
    image_specs = load_image_specs()
    for name, at, volume_gib, images, weights in hosts:
        sizes = {str(image): image_specs[image].size.budget_gib for image in images}
        required_gib = OS_DISK_GIB + sum(sizes.values()) + weights
        if required_gib > volume_gib:
            parts = [f"{image} {gib:g}" for image, gib in sizes.items()] + [f"weights {weights:g}"] * bool(weights)
            yield Violation(
                (*at, "root_volume_gib"),
                f"{name}: the root volume has {volume_gib} GiB, but the operating system {OS_DISK_GIB:g}, "
                f"{', '.join(parts)} need {required_gib:.1f} GiB",
                f"set root_volume_gib to {int(required_gib * 1.25) + 1} or more",
            )


def _calculate_root_volume_weights_gib(fleet: AsrFleet, row: InstanceType) -> float:
    if row.instance_store_gb:
        return 0.0
    if fleet.vllm:
        return calculate_weights_gib(catalog.models()[fleet.vllm.model], fleet.vllm.quantization) + COMPILE_CACHES_GIB
    return WHISPER_WEIGHTS_GIB_BY_COMPUTE[row.compute_kind]


@deployment_check(
    "reservation-fits-fleet",
    "A fleet with a capacity reservation is in one zone, and fleets that share a reservation have the same instance "
    "type.",
    source="https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/capacity-reservation-overview.html (one "
    "instance type in one zone)",
)
def check_reservation_fits_fleet(deployment: Deployment) -> Iterator[Violation]:
    fleets_by_image: dict[str, Fleet] = {}
    for fleet in iter_fleets(deployment):
        if not isinstance(fleet.purchase, CapacityReservation | CapacityBlock):
            continue
        id_, at = fleet.purchase.reservation_id, (*fleet.location, "purchase")
        if isinstance(fleet.purchase, CapacityReservation) and len(fleet.zones) != 1:
            yield Violation(
                at,
                f"{id_} is in one zone, but fleet {fleet.name} uses {len(fleet.zones)} ({', '.join(fleet.zones)}): "
                "launches in the other zones fail",
                "set the fleet's availability_zones to the reservation's zone",
            )
        first = fleets_by_image.setdefault(id_, fleet)
        if first.instance_type != fleet.instance_type:
            yield Violation(
                at,
                f"{id_} is set for {first.name} ({first.instance_type.name}) and for {fleet.name} "
                f"({fleet.instance_type.name}), but a reservation has one instance type",
                f"specify a reservation of {fleet.instance_type.name}, or set purchase to on-demand",
            )
        elif first.zones != fleet.zones:
            yield Violation(
                at,
                f"{id_} is set for {first.name} in {', '.join(first.zones)} and for {fleet.name} in "
                f"{', '.join(fleet.zones)}, but a reservation is in one zone",
                "set availability_zones of both fleets to the reservation's zone",
            )


LATEST_STORE_VERSION = str(StateStore.model_fields["engine_version"].default)


@deployment_check(
    "store-version-is-newest",
    "The state store runs the newest version that this release deploys, since ElastiCache has no downgrade.",
    source="https://docs.aws.amazon.com/AmazonElastiCache/latest/dg/VersionManagement.HowTo.html (no downgrade)",
    level=Severity.WARNING,
)
def check_store_version_is_newest(deployment: Deployment) -> Iterator[Violation]:
    version = deployment.aws.state.engine_version
    if version != LATEST_STORE_VERSION:
        yield Violation(
            ("aws", "state", "engine_version"),
            f"Valkey {version} is older than {LATEST_STORE_VERSION}: ElastiCache rejects a downgrade, so the deploy "
            "fails if the store runs a newer version",
            f"set engine_version to {LATEST_STORE_VERSION}, or accept this check while the store runs {version} or "
            "older (`voice preflight` shows its version)",
        )
