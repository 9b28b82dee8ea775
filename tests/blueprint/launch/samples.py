"""Every launcher that a deployment leads to, by a name that says whose it is."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import blueprint
from blueprint import Deployment, catalog
from blueprint.engines.launch import Launcher, services
from blueprint.file.model.aws import AsrFleet, Engine
from blueprint.file.model.azure import AggregatedService, AzureService, ChatService, PrefillDecodeCell, TtsService
from blueprint.file.model.serving import Load, Quantization, VllmOptions

ROOT = Path(__file__).parents[3]
DEPLOYMENTS = sorted(path.stem for path in (ROOT / "deployments").glob("*.yaml"))
Named = Iterator[tuple[str, Launcher]]


@cache
def deployment(name: str) -> Deployment:
    return blueprint.load(ROOT / "deployments" / f"{name}.yaml")


def launchers(of: Deployment) -> Named:
    """Yield every process of every service and fleet; a fleet that vLLM cannot run on has none."""
    if of.azure_half:
        yield "router", services.router_launch(of.azure_half)
        yield "dcgm", services.dcgm_launch()
        for service in of.azure_half.services:
            yield from of_service(of, service)
    for fleet in of.aws_half.asr if of.aws_half else ():
        accelerator = catalog.instance_types()[fleet.instance_type].accelerator
        if accelerator and accelerator.kind == "neuron":
            yield fleet.name, services.neuron_launch(fleet)
        elif fleet.engine is Engine.VLLM:
            yield fleet.name, services.fleet_launch(fleet)


def of_service(of: Deployment, service: AzureService) -> Named:
    match service:
        case PrefillDecodeCell():
            for part, launcher in vars(services.cell_launch(of.azure, service)).items():
                yield f"{service.name}: {part}", launcher
        case AggregatedService():
            for part, launcher in vars(services.aggregated_launch(of.azure, service)).items():
                if launcher:
                    yield f"{service.name}: {part}", launcher
        case ChatService():
            for pool in service.pools:
                yield f"{service.name}: {pool}", services.chat_launch(of.azure, service, pool)
        case TtsService():
            yield service.name, services.tts_launch(of.azure, service)


def azure_service(kind: type[AzureService]) -> AzureService:
    """The production file's service of one kind."""
    return next(service for service in deployment("cells").azure.services if isinstance(service, kind))


def p5(model: str, load: Load, quantization: Quantization = Quantization.NONE) -> AsrFleet:
    """The production file's p5 fleet, with vLLM."""
    fleet = next(fleet for fleet in deployment("production-us-east-1").aws.asr if fleet.name == "p5")
    options = VllmOptions(model=model, load=load, quantization=quantization)
    return fleet.model_copy(update={"engine": Engine.VLLM, "vllm": options})


WHISPER_LOAD = Load(sessions=32, session_tokens=448, context_tokens=448)
VOXTRAL_LOAD = Load(sessions=32, session_tokens=1500, context_tokens=32768)
