"""Checks on models with streaming audio: tokens per call, and published maximums."""

from collections.abc import Iterator
from dataclasses import dataclass

from voice_blueprint import catalog
from voice_blueprint.checks.base import Severity, Violation, deployment_check
from voice_blueprint.engines.sizing.live import calculate_call_tokens
from voice_blueprint.engines.sizing.result import DoesNotFitError, EngineSizing
from voice_blueprint.engines.sizing.service import size_fleet, size_service
from voice_blueprint.file.model.deployment import Deployment
from voice_blueprint.file.model.serving import Load
from voice_blueprint.file.source import Location

EXAMPLE_CALL_DURATION_S = 600


@dataclass(frozen=True)
class _LiveTranscriber:
    """A service or fleet that transcribes streaming audio."""

    name: str
    location: Location
    model: str
    load: Load
    engines: tuple[EngineSizing, ...]


@deployment_check(
    "live-load-is-a-call",
    "A model that transcribes audio as it arrives is configured with the length of calls.",
    source="https://huggingface.co/mistralai/Voxtral-Mini-4B-Realtime-2602 (12.5 tokens per second of a call)",
    is_acceptable=False,
)
def check_live_load_has_call_length(deployment: Deployment) -> Iterator[Violation]:
    for live_fleet in _iter_live_transcribers(deployment):
        if live_fleet.load.longest_call_s is None:
            model, tokens = catalog.models()[live_fleet.model], live_fleet.load.session_tokens
            rate = model.audio_tokens_per_s or 1
            yield Violation(
                (*live_fleet.location, "load"),
                f"{live_fleet.name} is configured for sessions of {tokens} tokens, which {model.name} uses in a call "
                f"of {tokens / rate:.1f} s ({rate:g} tokens per second)",
                f"set longest_call_s; ten minutes need session_tokens of "
                f"{calculate_call_tokens(model, EXAMPLE_CALL_DURATION_S)}",
            )


@deployment_check(
    "live-sessions-were-reached",
    "No GPU is assumed to serve more live calls than the best published figure of its class.",
    source="voice_blueprint/catalog/streams.yaml, each row with its own",
    level=Severity.WARNING,
)
def check_live_session_limit(deployment: Deployment) -> Iterator[Violation]:
    rows = sorted(catalog.live_streams().values(), key=lambda row: (row.memory_gib, row.streams))
    for live_fleet in _iter_live_transcribers(deployment):
        for engine in live_fleet.engines:
            memory_gib = catalog.gpus()[engine.gpu].memory_gib
            best = ([row for row in rows if row.memory_gib <= memory_gib] or rows[:1])[-1]
            claim = engine.sessions // engine.tensor_parallel
            if claim > best.streams:
                yield Violation(
                    (*live_fleet.location, "load"),
                    f"{live_fleet.name} is planned with {claim} calls on one {engine.gpu} ({engine.arithmetic}), but "
                    f"the best published figure is {best.streams} ({best.name}: {best.source})",
                    "measure it with `voice loadtest` before production use, or plan with fewer",
                )


def _iter_live_transcribers(deployment: Deployment) -> Iterator[_LiveTranscriber]:
    azure, models = deployment.azure_section, catalog.models()
    for index, service in enumerate(azure.services if azure else ()):
        load = getattr(service, "load", None)
        if azure and load and models[service.model].hears_live:
            try:
                sizings = tuple(
                    p.engine for p in size_service(azure, service).pools if isinstance(p.engine, EngineSizing)
                )
            except (DoesNotFitError, LookupError):
                sizings = ()
            yield _LiveTranscriber(service.name, ("azure", "services", index), service.model, load, sizings)
    for index, fleet in enumerate(deployment.aws_section.asr if deployment.aws_section else ()):
        if fleet.vllm and models[fleet.vllm.model].hears_live:
            try:
                engine = size_fleet(fleet)
            except DoesNotFitError:
                engine = None
            at = ("aws", "asr", index, "vllm")
            yield _LiveTranscriber(fleet.name, at, fleet.vllm.model, fleet.vllm.load, (engine,) if engine else ())
