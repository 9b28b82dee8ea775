"""Sizing of text to speech on vLLM-Omni from published measurements. The limit is GPU time, not memory."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from voice_blueprint.catalog.inference import Gpu, ModelCard, ModelTask
from voice_blueprint.engines.sizing.memory import calculate_weights_gib
from voice_blueprint.engines.sizing.result import DoesNotFitError, LimitingFactor


@dataclass(frozen=True)
class OperatingPoint:
    """A row from a published measurement.

    Attributes:
        concurrency: Concurrent requests on one GPU.
        first_audio_ms: Time to the first audio, milliseconds.
        real_time_factor: Processing time divided by the duration of the audio.
        chars_per_s: Characters synthesized per second, over all requests.
    """

    concurrency: int
    first_audio_ms: float
    real_time_factor: float
    chars_per_s: float


PUBLISHED_GPU = "H200"
PUBLISHED_OPERATING_POINTS = (
    OperatingPoint(1, 70, 0.103, 119.14),
    OperatingPoint(16, 331, 0.237, 879.11),
    OperatingPoint(32, 552, 0.302, 1430.78),
)
"""Voxtral TTS on one H200 with vLLM 0.18 and texts of 500 characters: arXiv 2603.25551."""
EAGER_FIRST_AUDIO_MS = 133.0
"""Time to the first audio at concurrency 1 without CUDA graphs, the only published figure for eager mode."""

LANGUAGE_MODEL_MEMORY_FRACTION = 0.8
CODEC_MEMORY_FRACTION = 0.1
STAGE_CONTEXT_TOKENS = 4096
"""GPU memory shares and context of the stages in vllm_omni/deploy/voxtral_tts.yaml, version 0.30.0."""


@dataclass(frozen=True)
class TtsSizing:
    """A replica with both stages on one GPU.

    Attributes:
        sessions: Concurrent streams of speech.
        operating_point: The published measurement for ``sessions``.
        language_model_share: Share of GPU memory of stage 0, which generates the codes.
        codec_share: Share of GPU memory of stage 1, which generates the audio.
        max_num_seqs: Maximum sequences per batch of stage 0.
        max_model_len: Maximum length of a text with its audio, tokens.
        reasons: Reasons by attribute.
    """

    model: str
    gpu: str
    sessions: int
    operating_point: OperatingPoint
    language_model_share: float
    codec_share: float
    max_num_seqs: int
    max_model_len: int
    cuda_graphs: bool
    limit: LimitingFactor = LimitingFactor.THROUGHPUT
    reasons: Mapping[str, str] = field(default_factory=dict)

    @property
    def arithmetic(self) -> str:
        """The measurement in readable form."""
        point = self.operating_point
        return (
            f"published on one {self.gpu}: {point.concurrency} at a time, first audio after "
            f"{point.first_audio_ms:g} ms, real-time factor {point.real_time_factor:g}, "
            f"{point.chars_per_s:g} characters/s"
        )


def size_tts(model: ModelCard, gpu: Gpu, *, cuda_graphs: bool = True) -> TtsSizing:
    """Size a replica of a text-to-speech model.

    Raises:
        DoesNotFitError: The model is not a text-to-speech model of vLLM-Omni, or nothing is published for the GPU. The
            figures cannot be scaled by memory or peak compute, as the acoustic model's steps are sequential.
    """
    if model.task is not ModelTask.SPEECH or model.served_by != "vllm-omni":
        raise DoesNotFitError(f"{model.name} makes no speech on vLLM-Omni", "choose voxtral-4b-tts")
    if gpu.name != PUBLISHED_GPU:
        raise DoesNotFitError(
            f"no figure is published for {model.name} on {gpu.name}: one {PUBLISHED_GPU} supports "
            f"{PUBLISHED_OPERATING_POINTS[-1].concurrency} at 552 ms; on an RTX 6000 Ada they take 3.6 s from end to "
            "end at the median (vllm-omni pull request 5175), a different measure",
            f"use a pool of {PUBLISHED_GPU}, or measure with `vllm bench serve --omni` and add the row to "
            "voice_blueprint/engines/sizing/tts.py",
        )
    model_gib = calculate_weights_gib(model)
    budget = LANGUAGE_MODEL_MEMORY_FRACTION * gpu.memory_gib
    if model_gib > budget:
        raise DoesNotFitError(f"{model_gib:g} GiB of weights exceed the stage's {budget:.1f} GiB", "use a larger GPU")
    point = PUBLISHED_OPERATING_POINTS[-1]
    graph_note = (
        "the figures are with CUDA graphs"
        if cuda_graphs
        else f"eager, for comparison: published at concurrency 1 only ({EAGER_FIRST_AUDIO_MS:g} ms instead of 70), "
        "so the sessions are not proved"
    )
    return TtsSizing(
        model=model.name,
        gpu=gpu.name,
        sessions=point.concurrency,
        operating_point=point,
        language_model_share=LANGUAGE_MODEL_MEMORY_FRACTION,
        codec_share=CODEC_MEMORY_FRACTION,
        max_num_seqs=point.concurrency,
        max_model_len=STAGE_CONTEXT_TOKENS,
        cuda_graphs=cuda_graphs,
        reasons={
            "sessions": "the largest published concurrency; its real-time factor of 0.302 leaves room, but first audio "
            "takes 552 ms",
            "language_model_share": "vLLM-Omni's own deploy file",
            "codec_share": "vLLM-Omni's own deploy file; the two stages share the GPU",
            "max_num_seqs": "vLLM-Omni's own deploy file, and the published concurrency",
            "cuda_graphs": graph_note,
        },
    )
