"""Our Whisper engine on a host: sessions that it admits, and its worker processes."""

from dataclasses import dataclass

from blueprint import catalog
from blueprint.catalog import Accelerator, InstanceType
from blueprint.catalog.inference import Gpu
from blueprint.contract.environment import DECODERS, ENCODERS, MODEL, SESSIONS
from blueprint.engines.launch.neuron import cores_of
from blueprint.engines.sizing.memory import kv_memory, session_bytes
from blueprint.file.model.aws import AsrFleet

DEFAULT_MODELS = {"gpu": "Systran/faster-whisper-large-v2", "neuron": "openai/whisper-large-v2"}
"""By kind of accelerator: converted for CTranslate2, and as Neuron compiles it. Of the large models v2 is the last with
80 mel bins, which is what the VAD tier sends."""

LARGEST_MODEL, SESSION_TOKENS = "whisper-large-v3", 448
"""What a host's memory is shared out for, whatever it serves: the largest Whisper, a full decoder."""


@dataclass(frozen=True)
class WhisperEngine:
    """One engine, which has a whole host.

    Attributes:
        model: Repository of its weights; not read where vLLM serves the host.
        sessions: Most sessions at a time; a full host refuses, and the VAD tier takes another.
        sessions_source: Where that number is from.
        encoders: Worker processes for prefill.
        decoders: Worker processes for decode. As many as encoders, or one more: their shares of the work on these
            devices are not measured.
    """

    model: str
    sessions: int
    sessions_source: str
    encoders: int = 1
    decoders: int = 1

    def environment(self) -> dict[str, str]:
        return {
            MODEL.name: self.model,
            SESSIONS.name: str(self.sessions),
            ENCODERS.name: str(self.encoders),
            DECODERS.name: str(self.decoders),
        }


def whisper_engine(fleet: AsrFleet) -> WhisperEngine:
    """Return the engine of a fleet's hosts; beside vLLM it has no workers of its own to count.

    Raises:
        ValueError: The host has no accelerator, or none that the engine runs on.
    """
    kind = catalog.instance_types()[fleet.instance_type]
    if kind.accelerator is None:
        raise ValueError(f"{kind.name} has no accelerator")
    model = fleet.model or DEFAULT_MODELS[kind.accelerator.kind]
    if fleet.vllm:
        return WhisperEngine(model, fleet.vllm.load.sessions, "vllm.load.sessions of the deployment file")
    if fleet.sessions is None:
        sessions, source = _memory_ceiling(kind, kind.accelerator)
    else:
        sessions, source = fleet.sessions, "sessions of the deployment file"
    return WhisperEngine(model, sessions, source, *_workers(kind.accelerator))


def _memory_ceiling(kind: InstanceType, accelerator: Accelerator) -> tuple[int, str]:
    chip = catalog.gpus().get(accelerator.model) or Gpu(
        name=accelerator.model, memory_gib=accelerator.memory_gib, compute_capability=(0, 0), source=kind.source
    )
    model = catalog.models()[LARGEST_MODEL]
    each = kv_memory(model, chip).bytes // session_bytes(model, SESSION_TOKENS)
    return (
        each * accelerator.count,
        f"memory of {accelerator.count} x {accelerator.model} for {LARGEST_MODEL}: a ceiling, speed is not measured",
    )


def _workers(accelerator: Accelerator) -> tuple[int, int]:
    """Return encoders and decoders: a pair for each GPU, whose processes share it; a core for each on Neuron."""
    if accelerator.kind == "gpu":
        return accelerator.count, accelerator.count
    cores = cores_of(accelerator)
    return cores // 2, cores - cores // 2
