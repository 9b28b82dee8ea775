"""Text to speech on vLLM-Omni, sized from published operating points: memory does not bind it, GPU time does."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from blueprint.catalog.inference import Gpu, ModelCard, Task
from blueprint.engines.sizing.memory import weights_gib
from blueprint.engines.sizing.result import DoesNotFitError, Limit


@dataclass(frozen=True)
class OperatingPoint:
    """One row of a published measurement.

    Attributes:
        concurrency: Requests at the same time on one GPU.
        first_audio_ms: Time to the first audio, milliseconds.
        real_time_factor: Time to make audio, divided by its length.
        chars_per_s: Characters spoken per second, over all requests.
    """

    concurrency: int
    first_audio_ms: float
    real_time_factor: float
    chars_per_s: float


PUBLISHED_GPU = "H200"
PUBLISHED_POINTS = (
    OperatingPoint(1, 70, 0.103, 119.14),
    OperatingPoint(16, 331, 0.237, 879.11),
    OperatingPoint(32, 552, 0.302, 1430.78),
)
"""Voxtral TTS on one H200 with vLLM 0.18 and texts of 500 characters: arXiv 2603.25551."""
EAGER_FIRST_AUDIO_MS = 133.0
"""The same at concurrency 1 without CUDA graphs; no other eager figure is published."""

LANGUAGE_MODEL_SHARE = 0.8
CODEC_SHARE = 0.1
STAGE_TOKENS = 4096
"""Shares of GPU memory and context of the stages in vllm_omni/deploy/voxtral_tts.yaml, version 0.30.0."""


@dataclass(frozen=True)
class TtsSizing:
    """One replica: both stages on one GPU.

    Attributes:
        sessions: Callers who are spoken to at the same time.
        operating_point: The published row that ``sessions`` is taken from.
        language_model_share: Share of GPU memory of stage 0, which makes the codes.
        codec_share: Share of stage 1, which makes the sound.
        max_num_seqs: Sequences in a batch of stage 0.
        max_model_len: Longest text and its audio, tokens.
        reasons: Why, by attribute.
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
    limit: Limit = Limit.THROUGHPUT
    reasons: Mapping[str, str] = field(default_factory=dict)

    @property
    def arithmetic(self) -> str:
        """The row that it comes from, for people."""
        point = self.operating_point
        return (
            f"published on one {self.gpu}: {point.concurrency} at a time, first audio after "
            f"{point.first_audio_ms:g} ms, real-time factor {point.real_time_factor:g}, "
            f"{point.chars_per_s:g} characters/s"
        )


def size_tts(model: ModelCard, gpu: Gpu, *, cuda_graphs: bool = True) -> TtsSizing:
    """Size one replica of a speech model.

    Raises:
        DoesNotFitError: It is no speech model of vLLM-Omni, or nothing is published for the GPU. Scaling the figures by
            memory or peak arithmetic would be a guess, as the acoustic model's steps run one after the other.
    """
    if model.task is not Task.SPEECH or model.served_by != "vllm-omni":
        raise DoesNotFitError(f"{model.name} makes no speech on vLLM-Omni", "choose voxtral-4b-tts")
    if gpu.name != PUBLISHED_GPU:
        raise DoesNotFitError(
            f"no figure is published for {model.name} on {gpu.name}: one {PUBLISHED_GPU} carries "
            f"{PUBLISHED_POINTS[-1].concurrency} at 552 ms; on an RTX 6000 Ada they take 3.6 s from end to end at "
            "the median (vllm-omni pull request 5175), a different measure",
            f"use a pool of {PUBLISHED_GPU}, or measure with `vllm bench serve --omni` and add the row to "
            "blueprint/engines/sizing/tts.py",
        )
    needed = weights_gib(model)
    budget = LANGUAGE_MODEL_SHARE * gpu.memory_gib
    if needed > budget:
        raise DoesNotFitError(f"{needed:g} GiB of weights exceed the stage's {budget:.1f} GiB", "use a larger GPU")
    point = PUBLISHED_POINTS[-1]
    graphs = (
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
        language_model_share=LANGUAGE_MODEL_SHARE,
        codec_share=CODEC_SHARE,
        max_num_seqs=point.concurrency,
        max_model_len=STAGE_TOKENS,
        cuda_graphs=cuda_graphs,
        reasons={
            "sessions": "the largest published concurrency; its real-time factor of 0.302 leaves room, but first audio "
            "takes 552 ms",
            "language_model_share": "vLLM-Omni's own deploy file",
            "codec_share": "vLLM-Omni's own deploy file; the two stages share the GPU",
            "max_num_seqs": "vLLM-Omni's own deploy file, and the published concurrency",
            "cuda_graphs": graphs,
        },
    )
