"""Which images run where: on the hosts of each fleet, as tasks of the gateway, on the cluster."""

import hashlib
import json
from typing import Literal

from blueprint import catalog
from blueprint.azure.contract import Component
from blueprint.contract.images import Image
from blueprint.file.model.aws import AsrFleet, Engine
from blueprint.file.model.azure import AggregatedService, AzureService, LmcachePool, PrefillDecodeCell, TtsService
from blueprint.file.model.deployment import Deployment

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
"""Every image that some deployment to AWS can run; each has a repository."""
CALLER_TIER_IMAGES = {
    Component.GATEWAY: GATEWAY_IMAGES,
    Component.VAD: (Image.VAD_DATAPLANE, Image.TELEMETRY, Image.GATEWAY),
    Component.ASR: (Image.WHISPER_ENGINE, Image.TELEMETRY, Image.GATEWAY),
}
"""What a cluster on Azure runs for callers, by tier; the gateway's image signs all three in to the state store."""
AGENT_POD_IMAGES = (*AGENT_IMAGES, Image.GATEWAY)
"""The same of the agents."""
CALLER_IMAGES = tuple(dict.fromkeys(image for images in CALLER_TIER_IMAGES.values() for image in images))
CLUSTER_IMAGES = (Image.ROUTER, Image.DEVICE_PLUGIN, Image.DCGM_EXPORTER)
"""What every cluster on Azure runs beside its services."""


def asr_images(fleet: AsrFleet) -> tuple[Image, ...]:
    """Return the images of one ASR fleet's hosts; the first one receives chunks."""
    if catalog.instance_types()[fleet.instance_type].computes_on == "neuron":
        return (Image.ASR_NEURON, Image.TELEMETRY)
    if fleet.engine is Engine.VLLM:
        # Our ingest assembles utterances and posts them to vLLM on the host's loopback.
        return (Image.WHISPER_ENGINE, Image.ASR_VLLM, Image.TELEMETRY)
    return (Image.WHISPER_ENGINE, Image.TELEMETRY)


def fleets_with(deployment: Deployment, accelerator: Literal["neuron", "gpu"]) -> tuple[AsrFleet, ...]:
    """Return the ASR fleets whose hosts have one kind of accelerator."""
    types = catalog.instance_types()
    return tuple(fleet for fleet in deployment.aws.asr if types[fleet.instance_type].computes_on == accelerator)


def service_images(service: AzureService) -> tuple[Image, ...]:
    """Return the images of one service's pods on Azure."""
    match service:
        case PrefillDecodeCell():
            return (Image.ASR_VLLM, Image.LMCACHE, Image.PD_ROUTER)
        case AggregatedService(lmcache=LmcachePool()):
            return (Image.ASR_VLLM, Image.LMCACHE)
        case TtsService():
            return (Image.TTS_OMNI,)
        case _:
            return (Image.ASR_VLLM,)


def images_of(deployment: Deployment) -> tuple[Image, ...]:
    """Return every image that the deployment's hosts, tasks and pods run, without repetition."""
    images: list[Image] = []
    if deployment.aws_half:
        images += [*GATEWAY_IMAGES, *VAD_IMAGES]
        if deployment.aws_half.agents:
            images += AGENT_IMAGES
        for fleet in deployment.aws_half.asr:
            images += asr_images(fleet)
    if deployment.azure_half:
        images += CLUSTER_IMAGES
        if deployment.azure_half.callers:
            images += CALLER_IMAGES
        if deployment.azure_half.agents:
            images += AGENT_IMAGES
        for service in deployment.azure_half.services:
            images += service_images(service)
    return tuple(dict.fromkeys(images))


NO_DIGEST = f"sha256:{'0' * 64}"
"""Stands where an image has no digest yet: no registry has such an image, and nothing that names it is started."""


def digest(deployment: Deployment, image: Image) -> str:
    """Return an image's digest, or ``NO_DIGEST``."""
    return deployment.images.get(image, NO_DIGEST)


def artifacts_name(deployment: Deployment, fleet: AsrFleet) -> str:
    """Return the name of what a fleet's job leaves: it serves hosts of the same type with the same image and model."""
    served = [fleet.vllm.model, fleet.vllm.revision] if fleet.vllm else [fleet.model, fleet.revision]
    images = [digest(deployment, image) for image in asr_images(fleet) if image is not Image.TELEMETRY]
    return hashlib.sha256(json.dumps([fleet.instance_type, *served, *images]).encode()).hexdigest()[:8]


def held_back(deployment: Deployment, images: tuple[Image, ...]) -> bool:
    """Whether hosts or tasks that run these images must wait for a digest."""
    return any(image not in deployment.images for image in images)
