"""Our Whisper engine on a host: maximum sessions, and worker processes."""

from dataclasses import dataclass

from voice_blueprint import catalog
from voice_blueprint.catalog import InstanceType
from voice_blueprint.contract.environment import DECODERS, ENCODERS, MODEL, MODEL_REVISION, SESSIONS
from voice_blueprint.engines.launch.neuron import count_neuron_cores
from voice_blueprint.file.model.aws import AsrFleet

DEFAULT_WHISPER_MODEL_BY_KIND = {
    "cpu": "Systran/faster-whisper-tiny.en",
    "gpu": "Systran/faster-whisper-large-v2",
    "neuron": "openai/whisper-large-v2",
}
"""Default models by the compute of hosts: converted for CTranslate2, or compiled for Neuron. Of the large models, v2 is
the last one with 80 mel bins, which the VAD tier sends. CPUs use the smallest model, which only supports English."""


@dataclass(frozen=True)
class WhisperEngine:
    """An engine that uses a whole host.

    Attributes:
        model: Repository of its weights; ignored if vLLM serves the host's model.
        revision: Commit of the repository; empty for the latest.
        sessions: Maximum number of concurrent sessions. A full host rejects further sessions, and the VAD tier selects
            another host.
        encoder_count: Number of worker processes for encoding.
        decoder_count: Number of worker processes for decoding: as many as encoders, or one more. The best ratio for
            these devices has not been measured.
    """

    model: str
    revision: str
    sessions: int
    encoder_count: int = 1
    decoder_count: int = 1

    def build_environment(self) -> dict[str, str]:
        return {
            MODEL.name: self.model,
            MODEL_REVISION.name: self.revision,
            SESSIONS.name: str(self.sessions),
            ENCODERS.name: str(self.encoder_count),
            DECODERS.name: str(self.decoder_count),
        }


def create_whisper_engine(fleet: AsrFleet, sessions: int) -> WhisperEngine:
    """Return the engine for a fleet's hosts. With vLLM, the engine has no workers of its own.

    Args:
        sessions: Calls per host, calculated by ``voice_blueprint.capacity``.

    Raises:
        ValueError: The engine does not support the host's accelerators.
    """
    kind = catalog.instance_types()[fleet.instance_type]
    model = fleet.model or DEFAULT_WHISPER_MODEL_BY_KIND[kind.compute_kind]
    # With vLLM, our engine has no workers, since vLLM uses the accelerators.
    workers = () if fleet.vllm else _calculate_worker_counts(kind)
    return WhisperEngine(model, fleet.revision or "", sessions, *workers)


def format_engine_variable(fleet: AsrFleet) -> str:
    """Return the value of ``VOICE_ENGINE`` for a fleet.

    With vLLM, the value also depends on whether the model receives streaming audio.
    """
    if fleet.vllm and catalog.models()[fleet.vllm.model].hears_live:
        return "vllm-realtime"
    return fleet.engine.value


def _calculate_worker_counts(kind: InstanceType) -> tuple[int, int]:
    """Return the number of encoder and decoder processes.

    One process of each kind shares a GPU. On CPUs and Neuron, each process uses one core.
    """
    accelerator = kind.accelerator
    if accelerator is None:
        return max(1, kind.vcpus // 2), max(1, kind.vcpus // 2)
    if accelerator.kind == "gpu":
        return accelerator.count, accelerator.count
    cores = count_neuron_cores(accelerator)
    return cores // 2, cores - cores // 2
