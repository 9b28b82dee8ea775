"""Which images the hosts of each fleet and the tasks of the gateway run."""

from typing import Literal

from blueprint import catalog
from blueprint.contract import Image
from blueprint.model.aws import AsrFleet, Engine
from blueprint.model.deployment import Deployment

VAD_IMAGES = (Image.VAD_DATAPLANE, Image.TELEMETRY)
GATEWAY_IMAGES = (Image.GATEWAY,)


def asr_images(fleet: AsrFleet) -> tuple[Image, ...]:
    """Return the images of one ASR fleet's hosts; the first one receives chunks."""
    accelerator = catalog.instance_types()[fleet.instance_type].accelerator
    if accelerator is not None and accelerator.kind == "neuron":
        return (Image.ASR_NEURON, Image.TELEMETRY)
    if fleet.engine is Engine.VLLM:
        # Our ingest assembles utterances and posts them to vLLM on the host's loopback.
        return (Image.WHISPER_ENGINE, Image.ASR_VLLM, Image.TELEMETRY)
    return (Image.WHISPER_ENGINE, Image.TELEMETRY)


def fleets_with(deployment: Deployment, accelerator: Literal["neuron", "gpu"]) -> tuple[AsrFleet, ...]:
    """Return the ASR fleets whose hosts have one kind of accelerator."""
    types = catalog.instance_types()
    return tuple(
        fleet
        for fleet in deployment.aws.asr
        if (found := types[fleet.instance_type].accelerator) and found.kind == accelerator
    )


def images_of(deployment: Deployment) -> tuple[Image, ...]:
    """Return every image that the deployment's hosts and tasks run, without repetition."""
    images = [*GATEWAY_IMAGES, *VAD_IMAGES]
    for fleet in deployment.aws.asr:
        images.extend(asr_images(fleet))
    return tuple(dict.fromkeys(images))


def held_back(deployment: Deployment, images: tuple[Image, ...]) -> bool:
    """Whether hosts or tasks that run these images must wait for a digest."""
    return any(image not in deployment.images for image in images)
