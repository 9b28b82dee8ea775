"""Images for each host, task and pod: those for fleets, for the gateway, and for the cluster."""

import hashlib
import json
from typing import Literal

from voice_blueprint import catalog
from voice_blueprint.azure.contract import Component
from voice_blueprint.contract.images import Image
from voice_blueprint.file.model.aws import AsrFleet, Engine
from voice_blueprint.file.model.azure import AggregatedService, AzureService, LmcachePool, PrefillDecodeCell, TtsService
from voice_blueprint.file.model.deployment import Deployment

VAD_IMAGES = (Image.VAD_DATAPLANE, Image.TELEMETRY)
GATEWAY_IMAGES = (Image.GATEWAY,)
AGENT_IMAGES = (Image.AGENT,)
AWS_IMAGES = (
    *GATEWAY_IMAGES,
    *AGENT_IMAGES,
    Image.VAD_DATAPLANE,
    Image.WHISPER_ENGINE,
    Image.ASR_NEURON,
    Image.ASR_VLLM,
    Image.TELEMETRY,
)
"""All images in deployments to AWS. Each image has a repository."""
IMAGES_BY_CALLER_TIER = {
    Component.GATEWAY: GATEWAY_IMAGES,
    Component.VAD: (Image.VAD_DATAPLANE, Image.TELEMETRY, Image.GATEWAY),
    Component.ASR: (Image.WHISPER_ENGINE, Image.TELEMETRY, Image.GATEWAY),
}
"""Images for the caller tiers on Azure. In each pod, the gateway's image signs in to the state store."""
AGENT_POD_IMAGES = (*AGENT_IMAGES, Image.GATEWAY)
"""Images in an agent's pod on Azure."""
CALLER_IMAGES = tuple(dict.fromkeys(image for images in IMAGES_BY_CALLER_TIER.values() for image in images))
CLUSTER_IMAGES = (Image.ROUTER, Image.DEVICE_PLUGIN, Image.DCGM_EXPORTER)
"""Images that every cluster on Azure runs in addition to its services."""


def list_asr_images(fleet: AsrFleet) -> tuple[Image, ...]:
    """Return the images of an ASR fleet's hosts. The first image receives chunks."""
    if catalog.instance_types()[fleet.instance_type].compute_kind == "neuron":
        return (Image.ASR_NEURON, Image.TELEMETRY)
    if fleet.engine is Engine.VLLM:
        # Our ingest assembles utterances and sends them to vLLM on the host's loopback.
        return (Image.WHISPER_ENGINE, Image.ASR_VLLM, Image.TELEMETRY)
    return (Image.WHISPER_ENGINE, Image.TELEMETRY)


def list_accelerated_fleets(deployment: Deployment, accelerator: Literal["neuron", "gpu"]) -> tuple[AsrFleet, ...]:
    """Return the ASR fleets whose hosts have this kind of accelerator."""
    types = catalog.instance_types()
    return tuple(fleet for fleet in deployment.aws.asr if types[fleet.instance_type].compute_kind == accelerator)


def list_service_images(service: AzureService) -> tuple[Image, ...]:
    """Return the images of a service's pods on Azure."""
    match service:
        case PrefillDecodeCell():
            return (Image.ASR_VLLM, Image.LMCACHE, Image.PD_ROUTER)
        case AggregatedService(lmcache=LmcachePool()):
            return (Image.ASR_VLLM, Image.LMCACHE)
        case TtsService():
            return (Image.TTS_OMNI,)
        case _:
            return (Image.ASR_VLLM,)


def list_required_images(deployment: Deployment) -> tuple[Image, ...]:
    """Return all images that the deployment's hosts, tasks and pods run, without duplicates."""
    images: list[Image] = []
    if deployment.aws_section:
        images += [*GATEWAY_IMAGES, *VAD_IMAGES]
        if deployment.aws_section.agents:
            images += AGENT_IMAGES
        for fleet in deployment.aws_section.asr:
            images += list_asr_images(fleet)
    if deployment.azure_section:
        images += CLUSTER_IMAGES
        if deployment.azure_section.callers:
            images += CALLER_IMAGES
        if deployment.azure_section.agents:
            images += AGENT_IMAGES
        for service in deployment.azure_section.services:
            images += list_service_images(service)
    return tuple(dict.fromkeys(images))


PLACEHOLDER_DIGEST = f"sha256:{'0' * 64}"
"""Placeholder digest for an image that has no digest. No registry contains it, and services that refer to it are not
started."""


def get_image_digest(deployment: Deployment, image: Image) -> str:
    """Return an image's digest, or ``PLACEHOLDER_DIGEST``."""
    return deployment.images.get(image, PLACEHOLDER_DIGEST)


def add_placeholder_digests(deployment: Deployment) -> Deployment:
    """Return the deployment with placeholder digests, as if all images had been pushed."""
    missing = {
        image: PLACEHOLDER_DIGEST for image in list_required_images(deployment) if image not in deployment.images
    }
    return deployment.model_copy(update={"images": {**deployment.images, **missing}})


def format_artifacts_name(deployment: Deployment, fleet: AsrFleet) -> str:
    """Return the name of a fleet's artifacts, which depends on the host type, the image and the model."""
    model_revision = [fleet.vllm.model, fleet.vllm.revision] if fleet.vllm else [fleet.model, fleet.revision]
    images = [get_image_digest(deployment, image) for image in list_asr_images(fleet) if image is not Image.TELEMETRY]
    return hashlib.sha256(json.dumps([fleet.instance_type, *model_revision, *images]).encode()).hexdigest()[:8]


def lacks_digests(deployment: Deployment, images: tuple[Image, ...]) -> bool:
    """Return True if an image has no digest in the file, so that its hosts or tasks are not started."""
    return any(image not in deployment.images for image in images)
