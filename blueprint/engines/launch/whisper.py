"""Our Whisper engine on a host: sessions that it admits, and its worker processes."""

from dataclasses import dataclass

from blueprint import catalog
from blueprint.catalog import Accelerator, InstanceType
from blueprint.catalog.inference import Gpu
from blueprint.contract.environment import DECODERS, ENCODERS, SESSIONS
from blueprint.engines.launch.neuron import cores_of
from blueprint.engines.sizing.memory import kv_memory, session_bytes
from blueprint.file.model.aws import AsrFleet

MODEL, SESSION_TOKENS = "whisper-large-v3", 448
"""What a host is taken to serve where the file does not say: the largest Whisper, a full decoder."""


@dataclass(frozen=True)
class WhisperEngine:
    """One engine, which has a whole host.

    Attributes:
        sessions: Most sessions at a time; a full host refuses, and the VAD tier takes another.
        sessions_source: Where that number is from.
        encoders: Worker processes for prefill.
        decoders: Worker processes for decode. As many as encoders, or one more: their shares of the work on these
            devices are not measured.
    """

    sessions: int
    sessions_source: str
    encoders: int = 1
    decoders: int = 1

    def environment(self) -> dict[str, str]:
        return {
            SESSIONS.name: str(self.sessions),
            ENCODERS.name: str(self.encoders),
            DECODERS.name: str(self.decoders),
        }


def whisper_engine(fleet: AsrFleet) -> WhisperEngine:
    """Return the engine of a fleet's hosts; beside vLLM it has no workers of its own to count.

    Raises:
        ValueError: The host has no accelerator, or none that the engine runs on.
    """
    if fleet.vllm:
        return WhisperEngine(fleet.vllm.load.sessions, "vllm.load.sessions of the deployment file")
    kind = catalog.instance_types()[fleet.instance_type]
    if kind.accelerator is None:
        raise ValueError(f"{kind.name} has no accelerator")
    if fleet.sessions is None:
        sessions, source = _memory_ceiling(kind, kind.accelerator)
    else:
        sessions, source = fleet.sessions, "sessions of the deployment file"
    return WhisperEngine(sessions, source, *_workers(kind.accelerator))


def _memory_ceiling(kind: InstanceType, accelerator: Accelerator) -> tuple[int, str]:
    chip = catalog.gpus().get(accelerator.model) or Gpu(
        name=accelerator.model, memory_gib=accelerator.memory_gib, compute_capability=(0, 0), source=kind.source
    )
    model = catalog.models()[MODEL]
    each = kv_memory(model, chip).bytes // session_bytes(model, SESSION_TOKENS)
    return (
        each * accelerator.count,
        f"memory of {accelerator.count} x {accelerator.model} for {MODEL}: a ceiling, speed is not measured",
    )


def _workers(accelerator: Accelerator) -> tuple[int, int]:
    """Return encoders and decoders: a pair for each GPU, whose processes share it; a core for each on Neuron."""
    if accelerator.kind == "gpu":
        return accelerator.count, accelerator.count
    cores = cores_of(accelerator)
    return cores // 2, cores - cores // 2
