"""``vllm serve --omni``: text to speech in two stages on one GPU."""

from dataclasses import dataclass

import yaml

from voice_blueprint.catalog.inference import ModelCard
from voice_blueprint.engines.launch.base import ANY_ADDRESS, FlagValue, Launcher, format_flags
from voice_blueprint.engines.launch.vllm import (
    VLLM_SERVE_COMMAND,
    build_cache_environment,
    build_server_flags,
    build_weights_environment,
)
from voice_blueprint.engines.sizing.tts import TtsSizing

DEPLOY_FILE = "/etc/voice/omni.yaml"

STAGE_START_TIMEOUT_S = 600
"""Start-up timeout for a stage; vLLM-Omni's default of 300 s is too short for a first start, which compiles."""
ENGINE_START_TIMEOUT_S = 1200

CHUNK_FRAMES = 25
"""Frames per chunk for the codec: 2 s of audio at 12.5 frames/s."""
FIRST_CHUNK_FRAMES = 5
"""Frames in the first chunk, for which the caller waits: 0.4 s."""
LEFT_CONTEXT_FRAMES = 25
"""Number of preceding frames that the codec processes again, so that chunks join without a click."""

_CONNECTOR_NAME = "between_stages"
_MISTRAL_OPTIONS = {"tokenizer_mode": "mistral", "config_format": "mistral", "load_format": "mistral"}


@dataclass(frozen=True)
class OmniServer(Launcher):
    """A replica of a text-to-speech model.

    The deploy file is vLLM-Omni's own ``vllm_omni/deploy/voxtral_tts.yaml`` (0.30.0) with the values from the sizing.

    Attributes:
        cache_dir: Writable directory for compile caches, which persists across restarts.
        weights_dir: Hugging Face cache that already contains the weights; nothing is downloaded.
    """

    model: ModelCard
    sizing: TtsSizing
    port: int
    cache_dir: str
    weights_dir: str
    revision: str | None = None

    def __post_init__(self) -> None:
        if self.model.served_by != "vllm-omni":
            raise ValueError(f"{self.model.name} is served by {self.model.served_by}: use VllmServer")
        self._build_server_flags()

    def build_command(self) -> tuple[str, ...]:
        """Return the full argument vector. Stage options are only in the deploy file."""
        return (
            *VLLM_SERVE_COMMAND,
            self.model.repository,
            *format_flags(
                {
                    "--omni": True,
                    "--deploy-config": DEPLOY_FILE,
                    **self._build_server_flags(),
                    "--stage-init-timeout": STAGE_START_TIMEOUT_S,
                    "--init-timeout": ENGINE_START_TIMEOUT_S,
                }
            ),
        )

    def _build_server_flags(self) -> dict[str, FlagValue]:
        # 0.30.0 does not start Voxtral TTS with --shutdown-timeout, since no stage supports it (``ValueError`` in
        # ``_validate_global_stage_cli_ownership``, vllm_omni/config/omni_config.py of the wheel). ``OmniBase.shutdown``
        # in entrypoints/omni_base.py ignores its argument, and aborts running requests.
        return build_server_flags(ANY_ADDRESS, self.port, self.model, shutdown_timeout_s=None, revision=self.revision)

    def build_environment(self) -> dict[str, str]:
        """Return the environment variables for vLLM and its libraries."""
        return build_cache_environment(self.cache_dir) | build_weights_environment(self.weights_dir, offline=True)

    def render_files(self) -> dict[str, str]:
        return {DEPLOY_FILE: yaml.safe_dump(self.build_deploy_config(), sort_keys=False)}

    def build_deploy_config(self) -> dict[str, object]:
        """Return the content of the deploy file: the connector and both stages."""
        return {
            "async_chunk": True,
            "connectors": {
                _CONNECTOR_NAME: {
                    "name": "SharedMemoryConnector",
                    "extra": {
                        "codec_streaming": True,
                        "connector_get_sleep_s": 0.01,
                        "connector_get_max_wait_first_chunk": 3000,
                        "connector_get_max_wait": 300,
                        "codec_chunk_frames": CHUNK_FRAMES,
                        "codec_chunk_frames_at_begin": FIRST_CHUNK_FRAMES,
                        "codec_left_context_frames": LEFT_CONTEXT_FRAMES,
                    },
                }
            },
            "stages": [self._build_language_model_stage(), self._build_codec_stage()],
        }

    def _build_language_model_stage(self) -> dict[str, object]:
        """Return the stage that converts text to codes.

        The stage consists of the language model and the flow steps of the acoustic model. It uses CUDA graphs except in
        eager mode.
        """
        return {
            "stage_id": 0,
            "max_num_batched_tokens": 32768,
            "max_num_seqs": self.sizing.max_num_seqs,
            "gpu_memory_utilization": self.sizing.language_model_share,
            "enforce_eager": not self.sizing.cuda_graphs,
            "trust_remote_code": True,
            "enable_prefix_caching": False,
            "async_scheduling": True,
            "max_model_len": self.sizing.max_model_len,
            "devices": "0",
            "output_connectors": {"to_stage_1": _CONNECTOR_NAME},
            "default_sampling_params": {
                **_build_sampling_params(temperature=0.0, top_p=1.0, top_k=-1, repetition_penalty=1.1),
                "extra_args": {"cfg_alpha": 1.2},
            },
            **_MISTRAL_OPTIONS,
            "skip_mm_profiling": True,
            "enable_chunked_prefill": False,
        }

    def _build_codec_stage(self) -> dict[str, object]:
        """Return the stage that converts codes to audio."""
        return {
            "stage_id": 1,
            "max_num_seqs": self.sizing.max_num_seqs,
            "gpu_memory_utilization": self.sizing.codec_share,
            "enforce_eager": True,
            "trust_remote_code": True,
            "enable_prefix_caching": False,
            "async_scheduling": False,
            "max_num_batched_tokens": 65536,
            "max_model_len": 65536,
            "devices": "0",
            "input_connectors": {"from_stage_0": _CONNECTOR_NAME},
            "default_sampling_params": _build_sampling_params(
                temperature=0.9, top_p=0.8, top_k=40, repetition_penalty=1.05
            ),
            **_MISTRAL_OPTIONS,
            "skip_mm_profiling": True,
        }


def _build_sampling_params(
    *, temperature: float, top_p: float, top_k: int, repetition_penalty: float
) -> dict[str, object]:
    return {
        "temperature": temperature,
        "top_p": top_p,
        "top_k": top_k,
        "max_tokens": 2048,
        "seed": 42,
        "repetition_penalty": repetition_penalty,
    }
