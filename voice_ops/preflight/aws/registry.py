"""Checks for container images: presence in the registry, platforms and signatures."""

from __future__ import annotations

import json
from collections.abc import Iterator

from botocore.exceptions import ClientError

from voice_blueprint import catalog
from voice_blueprint.contract.images import Image
from voice_blueprint.hosts import AGENT_IMAGES, GATEWAY_IMAGES, VAD_IMAGES, list_asr_images
from voice_ops.aws.account import REPORT_AREA, Account
from voice_ops.aws.refusals import get_error_code
from voice_ops.preflight.report import CheckResult, create_check_result

INDEX_MEDIA_TYPES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
MANIFEST_MEDIA_TYPES = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
FARGATE_PLATFORM = "linux/arm64"
"""Platform of gateway and agent tasks (constructs/voice_constructs/aws)."""


def check_registry_images(account: Account) -> Iterator[CheckResult]:
    """Look up each digest from the file in the region's registry.

    Hosts and tasks do not start without their images.
    """
    for image, platforms in _collect_required_platforms(account).items():
        if digest := account.deployment.images.get(image):
            yield _check_registry_image(account, image, digest, platforms)


def _check_registry_image(account: Account, image: Image, digest: str, platforms: set[str]) -> CheckResult:
    signing = account.deployment.image_signing
    question = f"image {image} {digest[:19]}"
    needed = ", ".join([*sorted(platforms), *(["signed"] if signing else [])])
    repository = f"{account.deployment.name}/{image}"
    publish = f"push the image with the commands of `voice images publish {account.deployment.source.file}`"
    try:
        manifest = _fetch_manifest(account, repository, {"imageDigest": digest})
    except ClientError as error:
        if get_error_code(error) != "RepositoryNotFoundException":
            raise
        remedy = f"deploy the stack registry, then {publish}"
        return create_check_result(
            REPORT_AREA, question, f"no repository {repository} in {account.region}", needed, blocks=remedy
        )
    if manifest is None:
        return create_check_result(
            REPORT_AREA, question, f"{repository} in {account.region} has no such digest", needed, blocks=publish
        )
    result, problem, warning = _inspect_manifest(manifest, platforms)
    if signing:
        signature = _fetch_manifest(account, repository, {"imageTag": f"{digest.replace(':', '-')}.sig"})
        result += ", signed" if signature else ", without a signature"
        problem = problem or ("" if signature else "sign it with the key of image_signing; otherwise, hosts reject it")
    return create_check_result(REPORT_AREA, question, f"pushed, {result}", needed, blocks=problem, warns=warning)


def _inspect_manifest(manifest: str, platforms: set[str]) -> tuple[str, str, str]:
    """Return the platforms of an image as text, a blocking problem, and a warning."""
    manifests = json.loads(manifest).get("manifests")
    if manifests is None:
        warning = "the digest is of a single, unknown platform: pin the index that `voice images publish` pushes"
        return "a single platform", "", warning
    has = {f"{each['platform']['os']}/{each['platform']['architecture']}" for each in manifests if "platform" in each}
    has -= {"unknown/unknown"}  # attestations
    missing = ", ".join(sorted(platforms - has))
    problem = f"push an image for {missing}, and pin its digest" if missing else ""
    return ", ".join(sorted(has)) or "no platform", problem, ""


def _fetch_manifest(account: Account, repository: str, image_id: dict[str, str]) -> str | None:
    answered = account.session.client("ecr").batch_get_image(
        repositoryName=repository,
        imageIds=[image_id],  # type: ignore[list-item]
        acceptedMediaTypes=[*INDEX_MEDIA_TYPES, *MANIFEST_MEDIA_TYPES],
    )
    return next((each["imageManifest"] for each in answered["images"]), None)


def _collect_required_platforms(account: Account) -> dict[Image, set[str]]:
    """Return the platforms that hosts and tasks require, by image."""
    aws, types = account.deployment.aws, catalog.instance_types()
    users = [
        (FARGATE_PLATFORM, GATEWAY_IMAGES),
        (_to_oci_platform(types[aws.vad.instance_type].architecture), VAD_IMAGES),
    ]
    users += [(FARGATE_PLATFORM, AGENT_IMAGES)] if aws.agents else []
    users += [(_to_oci_platform(types[fleet.instance_type].architecture), list_asr_images(fleet)) for fleet in aws.asr]
    needs: dict[Image, set[str]] = {}
    for platform, images in users:
        for image in images:
            needs.setdefault(image, set()).add(platform)
    return needs


def _to_oci_platform(architecture: str) -> str:
    return {"arm64": "linux/arm64", "x86_64": "linux/amd64"}[architecture]
