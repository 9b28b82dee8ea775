"""Every launcher of a deployment, by a name that identifies its owner."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import voice_blueprint
from voice_blueprint import Deployment, catalog
from voice_blueprint.engines.launch import Launcher, services
from voice_blueprint.file.model.aws import AsrFleet, Engine
from voice_blueprint.file.model.azure import AggregatedService, AzureService, ChatService, PrefillDecodeCell, TtsService
from voice_blueprint.file.model.serving import Load, Quantization, VllmOptions

ROOT = Path(__file__).parents[3]
DEPLOYMENTS = sorted(path.stem for path in (ROOT / "tests/deployments").glob("*.yaml"))
Named = Iterator[tuple[str, Launcher]]


@cache
def deployment(name: str) -> Deployment:
    return voice_blueprint.load(ROOT / "tests/deployments" / f"{name}.yaml")


def launchers(of: Deployment) -> Named:
    """Yield every process of every service and fleet, except fleets that vLLM does not support."""
    if of.azure_section:
        yield "router", services.create_router_launcher(of.azure_section)
        yield "dcgm", services.create_dcgm_launcher()
        if of.azure_section.has_peers:
            yield "lmcache-coordinator", services.create_coordinator_launcher()
        for service in of.azure_section.services:
            yield from service_processes(of, service)
    for fleet in of.aws_section.asr if of.aws_section else ():
        accelerator = catalog.instance_types()[fleet.instance_type].accelerator
        if accelerator and accelerator.kind == "neuron":
            yield fleet.name, services.create_neuron_launcher(fleet)
        elif fleet.engine is Engine.VLLM:
            yield fleet.name, services.create_fleet_launcher(fleet)


def service_processes(of: Deployment, service: AzureService) -> Named:
    match service:
        case PrefillDecodeCell():
            for part, launcher in vars(services.create_cell_processes(of.azure, service)).items():
                yield f"{service.name}: {part}", launcher
        case AggregatedService():
            for part, launcher in vars(services.create_aggregated_processes(of.azure, service)).items():
                if launcher:
                    yield f"{service.name}: {part}", launcher
        case ChatService():
            for pool in service.pools:
                yield f"{service.name}: {pool}", services.create_chat_launcher(of.azure, service, pool)
        case TtsService():
            yield service.name, services.create_tts_launcher(of.azure, service)


def azure_service(kind: type[AzureService]) -> AzureService:
    """Return the production file's service of a kind."""
    return next(service for service in deployment("cells").azure.services if isinstance(service, kind))


def p5(model: str, load: Load, quantization: Quantization = Quantization.NONE) -> AsrFleet:
    """Return the production file's p5 fleet with vLLM."""
    fleet = next(fleet for fleet in deployment("production-us-east-1").aws.asr if fleet.name == "p5")
    options = VllmOptions(model=model, load=load, quantization=quantization)
    return fleet.model_copy(update={"engine": Engine.VLLM, "vllm": options})


WHISPER_LOAD = Load(sessions=32, session_tokens=448, context_tokens=448)
VOXTRAL_LOAD = Load(sessions=32, session_tokens=1500, context_tokens=32768)
