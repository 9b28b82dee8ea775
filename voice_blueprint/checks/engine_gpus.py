"""Engines on GPUs, independent of the cloud: pods in a cluster, and hosts in an AWS fleet."""

from collections.abc import Iterator
from dataclasses import dataclass

from voice_blueprint import catalog
from voice_blueprint.catalog import Gpu
from voice_blueprint.checks.azure.cluster import Cluster, Engine, FindingLocation, build_configured_cluster
from voice_blueprint.engines.sizing.service import TRANSCRIPTION_TASKS, list_tensor_parallel_sizes
from voice_blueprint.file.model.aws import AsrFleet
from voice_blueprint.file.model.deployment import Deployment
from voice_blueprint.file.source import Location


@dataclass(frozen=True)
class EngineWithGpu:
    """An engine and its GPUs.

    Attributes:
        name: Name of the service or fleet.
        title: Name with the hardware, for messages.
        gpu: GPU model, or ``None`` if the hardware has no GPU, which other checks report.
        location: Section of the engine's options.
        hardware_location: Location of the setting that selects the GPU.
    """

    name: str
    title: str
    engine: Engine
    gpu: Gpu | None
    location: FindingLocation
    hardware_location: Location


def iter_cluster_engines(cluster: Cluster) -> Iterator[EngineWithGpu]:
    """Yield the engines in a cluster's pods."""
    for pod in cluster.pods:
        for engine in pod.engines:
            yield EngineWithGpu(pod.name, pod.title, engine, pod.pool.gpu, pod.location, pod.pool_location)


def iter_deployment_engines(deployment: Deployment) -> Iterator[EngineWithGpu]:
    """Yield the engines in a deployment: vLLM on the hosts in AWS fleets, and the services on Azure."""
    for index, fleet in enumerate(deployment.aws_section.asr if deployment.aws_section else ()):
        if fleet.vllm:
            yield _build_host_engine(fleet, ("aws", "asr", index))
    if deployment.azure_section:
        yield from iter_cluster_engines(build_configured_cluster(deployment.azure_section))


def _build_host_engine(fleet: AsrFleet, at: Location) -> EngineWithGpu:
    options = fleet.vllm
    if options is None:
        raise ValueError(f"fleet {fleet.name} runs {fleet.engine.value}, not vLLM")
    model = catalog.models()[options.model]
    accelerator = catalog.instance_types()[fleet.instance_type].accelerator
    gpu = catalog.gpus().get(accelerator.model) if accelerator else None
    engine = Engine(
        model,
        "vllm",
        TRANSCRIPTION_TASKS,
        # An engine uses as many GPUs of the host as it needs; a model that does not fit all of them does not fit the
        # host.
        list_tensor_parallel_sizes(model, accelerator.count if accelerator else 1)[-1],
        options.load,
        options.kv_cache_type,
        options.quantization,
    )
    title = f"fleet {fleet.name} on {fleet.instance_type}"
    return EngineWithGpu(fleet.name, title, engine, gpu, FindingLocation((*at, "vllm")), (*at, "instance_type"))
