"""Our Whisper engine on a host: sessions that it admits, and its worker processes."""

from dataclasses import dataclass

from blueprint import catalog
from blueprint.catalog import InstanceType
from blueprint.contract.environment import DECODERS, ENCODERS, MODEL, MODEL_REVISION, SESSIONS
from blueprint.engines.launch.neuron import cores_of
from blueprint.file.model.aws import AsrFleet

DEFAULT_MODELS = {
    "cpu": "Systran/faster-whisper-tiny.en",
    "gpu": "Systran/faster-whisper-large-v2",
    "neuron": "openai/whisper-large-v2",
}
"""By what hosts compute on: converted for CTranslate2, or as Neuron compiles it. Of the large models v2 is the last
with 80 mel bins, which is what the VAD tier sends. CPUs get the smallest model, which knows English only."""


@dataclass(frozen=True)
class WhisperEngine:
    """One engine, which has a whole host.

    Attributes:
        model: Repository of its weights; not read where vLLM serves the host.
        revision: Commit of the repository; empty for its newest.
        sessions: Most sessions at a time; a full host refuses, and the VAD tier takes another.
        encoders: Worker processes for prefill.
        decoders: Worker processes for decode. As many as encoders, or one more: their shares of the work on these
            devices are not measured.
    """

    model: str
    revision: str
    sessions: int
    encoders: int = 1
    decoders: int = 1

    def environment(self) -> dict[str, str]:
        return {
            MODEL.name: self.model,
            MODEL_REVISION.name: self.revision,
            SESSIONS.name: str(self.sessions),
            ENCODERS.name: str(self.encoders),
            DECODERS.name: str(self.decoders),
        }


def whisper_engine(fleet: AsrFleet, sessions: int) -> WhisperEngine:
    """Return the engine of a fleet's hosts; beside vLLM it has no workers of its own to count.

    Args:
        sessions: Calls that a host carries, by ``blueprint.capacity``.

    Raises:
        ValueError: The engine does not run on the host's accelerators.
    """
    kind = catalog.instance_types()[fleet.instance_type]
    model = fleet.model or DEFAULT_MODELS[kind.computes_on]
    # vLLM has the accelerators then, and our engine no workers.
    workers = () if fleet.vllm else _workers(kind)
    return WhisperEngine(model, fleet.revision or "", sessions, *workers)


def engine_of(fleet: AsrFleet) -> str:
    """Return what transcribes on a fleet's hosts, as our engine is told: some models get audio as it comes."""
    if fleet.vllm and catalog.models()[fleet.vllm.model].hears_live:
        return "vllm-realtime"
    return fleet.engine.value


def _workers(kind: InstanceType) -> tuple[int, int]:
    """Return encoders and decoders: a pair for each GPU, whose processes share it; otherwise a core for each."""
    accelerator = kind.accelerator
    if accelerator is None:
        return max(1, kind.vcpus // 2), max(1, kind.vcpus // 2)
    if accelerator.kind == "gpu":
        return accelerator.count, accelerator.count
    cores = cores_of(accelerator)
    return cores // 2, cores - cores // 2
