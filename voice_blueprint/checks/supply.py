"""Checks on machine and container images, and on accepted checks."""

from collections.abc import Iterator

from voice_blueprint import catalog
from voice_blueprint.aws.fleets import iter_fleets
from voice_blueprint.aws.machine_images import is_mutable_image, may_be_custom_built
from voice_blueprint.checks.base import Severity, Violation, deployment_check
from voice_blueprint.contract.network import Tier
from voice_blueprint.engines.launch.whisper import DEFAULT_WHISPER_MODEL_BY_KIND
from voice_blueprint.file.model.aws import DataPathMode
from voice_blueprint.file.model.deployment import Deployment, Environment
from voice_blueprint.file.source import Location
from voice_blueprint.hosts import VAD_IMAGES, lacks_digests, list_asr_images, list_required_images
from voice_blueprint.signing import format_digest_manifest, is_signature_valid


@deployment_check(
    "production-protected",
    "A production deployment has deletion protection after its first deploy.",
    source="https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/using-cfn-protect-stacks.html",
    level=Severity.WARNING,
)
def check_production_protected(deployment: Deployment) -> Iterator[Violation]:
    aws = deployment.aws_section
    if aws and deployment.environment is Environment.PRODUCTION and not aws.deletion_protection:
        yield Violation(
            ("aws", "deletion_protection"),
            "stacks and load balancers of production can be deleted",
            "after the first deploy has succeeded, set deletion_protection to true and deploy again",
        )


@deployment_check(
    "images-have-digests",
    "Every image that a fleet, the gateway or a service on Azure runs has a digest in the deployment file.",
    source="https://github.com/opencontainers/distribution-spec/blob/main/spec.md#pulling-manifests",
    level=Severity.WARNING,
)
def check_images_have_digests(deployment: Deployment) -> Iterator[Violation]:
    missing = [image for image in list_required_images(deployment) if image not in deployment.images]
    if missing:
        yield Violation(
            ("images",),
            f"there is no digest for {', '.join(missing)}: their hosts, tasks or replicas are kept at 0",
            "deploy the registry first, push the images (`voice images build-args`), and add their digests here",
        )


@deployment_check(
    "images-signed",
    "In production, image digests are signed with the pipeline's key; elsewhere, only if the file has a key.",
    source="https://docs.sigstore.dev/cosign/signing/signing_with_blobs/",
)
def check_images_signed(deployment: Deployment) -> Iterator[Violation]:
    signing = deployment.image_signing
    instructions = "sign the output of `voice images manifest` with `cosign sign-blob`, and add the signature here"
    if signing is None:
        if deployment.environment is Environment.PRODUCTION and deployment.images:
            yield Violation(
                ("images",),
                f"there is no signature for the digests of {', '.join(sorted(deployment.images))}",
                f"add the pipeline's public key to image_signing, and {instructions}",
            )
    elif not is_signature_valid(
        signing.public_key, signing.signature, format_digest_manifest(deployment.images).encode()
    ):
        yield Violation(
            ("image_signing", "signature"),
            "the signature does not match the key and the digests under `images`",
            f"if these digests are intended, {instructions}",
        )


@deployment_check(
    "machine-images-pinned",
    "In production, a fleet whose images have digests boots from a machine image that the file pins.",
    source="https://docs.aws.amazon.com/AmazonECS/latest/developerguide/retrieve-ecs-optimized_AMI.html",
)
def check_machine_images_pinned(deployment: Deployment) -> Iterator[Violation]:
    if deployment.aws_section is None or deployment.environment is not Environment.PRODUCTION:
        return
    images = {fleet.name: list_asr_images(fleet) for fleet in deployment.aws_section.asr}
    for fleet in iter_fleets(deployment):
        if is_mutable_image(fleet.machine_image) and not lacks_digests(deployment, images.get(fleet.name, VAD_IMAGES)):
            yield Violation(
                (*fleet.location, "machine_image"),
                f"the hosts of {fleet.name} boot from {fleet.machine_image or 'the newest image of AWS'}: after its "
                "next release, any deploy replaces all of them",
                "pin an image; `voice images ami` proposes one",
            )


@deployment_check(
    "vfio-image-baked",
    "VAD hosts on the vfio data path boot from a machine image that was built for it.",
    source="https://github.com/amzn/amzn-drivers/tree/master/userspace/dpdk (vfio-pci with write combining)",
)
def check_vfio_image_baked(deployment: Deployment) -> Iterator[Violation]:
    if deployment.aws_section is None:
        return
    vad = deployment.aws_section.vad
    if vad.data_path.mode is DataPathMode.VFIO and not may_be_custom_built(vad.machine_image):
        yield Violation(
            ("aws", Tier.VAD.value, "data_path", "mode"),
            f"mode vfio is set with {vad.machine_image or 'the newest image of AWS'}, whose kernel has no vfio-pci "
            "with write combining: no host would start",
            "build an image with a pipeline (host_images: {vfio: true}) and set it as machine_image, or set mode: "
            "af_xdp",
        )


@deployment_check(
    "model-revision-pinned",
    "In production, every model is downloaded at a fixed commit.",
    source="https://huggingface.co/docs/huggingface_hub/guides/download (revision)",
    level=Severity.WARNING,
)
def check_model_revision_pinned(deployment: Deployment) -> Iterator[Violation]:
    if deployment.environment is not Environment.PRODUCTION:
        return
    models = catalog.models()
    for index, fleet in enumerate(deployment.aws_section.asr if deployment.aws_section else ()):
        kind = catalog.instance_types()[fleet.instance_type].compute_kind
        repository = fleet.model or DEFAULT_WHISPER_MODEL_BY_KIND[kind]
        model_revision = (
            (models[fleet.vllm.model].repository, fleet.vllm.revision) if fleet.vllm else (repository, fleet.revision)
        )
        yield from _check_revision(("aws", "asr", index), fleet.name, *model_revision)
    for index, service in enumerate(deployment.azure_section.services if deployment.azure_section else ()):
        yield from _check_revision(
            ("azure", "services", index), service.name, models[service.model].repository, service.revision
        )


def _check_revision(at: Location, name: str, repository: str, revision: str | None) -> Iterator[Violation]:
    if revision is None:
        yield Violation(
            at,
            f"{name} downloads the newest commit of {repository}: hosts that start on different days may differ",
            "set revision to the tested commit",
        )
