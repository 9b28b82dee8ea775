"""Our Whisper engine on a host: sessions that it admits, and its worker processes."""

from dataclasses import dataclass

from blueprint import catalog
from blueprint.catalog import Accelerator
from blueprint.contract.environment import DECODERS, ENCODERS, MODEL, SESSIONS
from blueprint.engines.launch.neuron import cores_of
from blueprint.file.model.aws import AsrFleet

DEFAULT_MODELS = {"gpu": "Systran/faster-whisper-large-v2", "neuron": "openai/whisper-large-v2"}
"""By kind of accelerator: converted for CTranslate2, and as Neuron compiles it. Of the large models v2 is the last with
80 mel bins, which is what the VAD tier sends."""


@dataclass(frozen=True)
class WhisperEngine:
    """One engine, which has a whole host.

    Attributes:
        model: Repository of its weights; not read where vLLM serves the host.
        sessions: Most sessions at a time; a full host refuses, and the VAD tier takes another.
        encoders: Worker processes for prefill.
        decoders: Worker processes for decode. As many as encoders, or one more: their shares of the work on these
            devices are not measured.
    """

    model: str
    sessions: int
    encoders: int = 1
    decoders: int = 1

    def environment(self) -> dict[str, str]:
        return {
            MODEL.name: self.model,
            SESSIONS.name: str(self.sessions),
            ENCODERS.name: str(self.encoders),
            DECODERS.name: str(self.decoders),
        }


def whisper_engine(fleet: AsrFleet, sessions: int) -> WhisperEngine:
    """Return the engine of a fleet's hosts; beside vLLM it has no workers of its own to count.

    Args:
        sessions: Calls that a host carries, by ``blueprint.capacity``.

    Raises:
        ValueError: The host has no accelerator, or none that the engine runs on.
    """
    kind = catalog.instance_types()[fleet.instance_type]
    if kind.accelerator is None:
        raise ValueError(f"{kind.name} has no accelerator")
    model = fleet.model or DEFAULT_MODELS[kind.accelerator.kind]
    # vLLM has the accelerators then, and our engine no workers.
    workers = () if fleet.vllm else _workers(kind.accelerator)
    return WhisperEngine(model, sessions, *workers)


def _workers(accelerator: Accelerator) -> tuple[int, int]:
    """Return encoders and decoders: a pair for each GPU, whose processes share it; a core for each on Neuron."""
    if accelerator.kind == "gpu":
        return accelerator.count, accelerator.count
    cores = cores_of(accelerator)
    return cores // 2, cores - cores // 2
