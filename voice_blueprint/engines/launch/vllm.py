"""Launcher for ``vllm serve``."""

from collections.abc import Mapping
from dataclasses import dataclass

from voice_blueprint.catalog.inference import ModelArchitecture, ModelCard, ModelTask
from voice_blueprint.contract.media import MAX_AUDIO_INPUTS
from voice_blueprint.contract.metrics import StartPhase
from voice_blueprint.engines.launch.audio import AudioLimits, calculate_audio_limits
from voice_blueprint.engines.launch.base import ANY_ADDRESS, FlagValue, Launcher, format_flags
from voice_blueprint.engines.launch.fabric import HASH_SEED_ENVIRONMENT, NixlFabric
from voice_blueprint.engines.launch.kv_transfer import EngineRole, KvTransfer
from voice_blueprint.engines.launch.placement import Placement
from voice_blueprint.engines.sizing.result import EngineSizing
from voice_blueprint.file.model.serving import KvCacheType, Profile, Quantization

VLLM_SERVE_COMMAND = ("vllm", "serve")

HEALTH_PATH = "/health"
"""Path that responds with 200 once the model is loaded, and also while the engine core hangs or a shutdown rejects new
requests."""

MAX_AUDIO_INPUTS_BY_TASK = {ModelTask.AUDIO_CHAT: MAX_AUDIO_INPUTS, ModelTask.TRANSCRIPTION: 1}
"""Maximum number of audio inputs that Voxtral and Whisper support (``get_supported_mm_limits`` in vLLM's models). Each
request of a conversation contains the earlier turns."""

LOG_PREFIX_BY_START_PHASE: Mapping[StartPhase, str] = {
    StartPhase.WEIGHTS: "Loading weights took ",
    StartPhase.COMPILE: "torch.compile took ",
    StartPhase.GRAPHS: "Graph capturing finished in ",
}
"""Text of vLLM's log that precedes the duration of a phase in seconds (vllm 0.33.0: ``model_loader/default_loader.py``,
``compilation/monitor.py``, ``v1/worker/gpu_model_runner.py``)."""

DEFAULT_MAX_BODY_MIB = 32
"""vLLM's default for ``VLLM_HTTP_MAX_REQUEST_BODY_SIZE``."""

_PARALLEL_LOAD_FORMAT = "fastsafetensors"
"""Loader that reads weight files in parallel. vLLM's CUDA wheel requires it (``fastsafetensors>=0.3.3`` in the metadata
of 0.33.0 on PyPI), so the publisher's image contains it. ``images/asr-vllm`` checks that its base image meets vLLM's
requirements. For CPU builds, the loader is an optional extra. ``runai_streamer`` is an extra in both builds."""


def build_cache_environment(cache_dir: str) -> dict[str, str]:
    """Return the variables for the cache directories of compilers and libraries, which persist across restarts.

    All other paths of a container are read-only.
    """
    return {
        "HOME": cache_dir,
        "XDG_CACHE_HOME": f"{cache_dir}/xdg",
        "VLLM_CACHE_ROOT": f"{cache_dir}/vllm",
        "TORCHINDUCTOR_CACHE_DIR": f"{cache_dir}/torchinductor",
        "TRITON_CACHE_DIR": f"{cache_dir}/triton",
        "CUDA_CACHE_PATH": f"{cache_dir}/cuda",
        "FLASHINFER_WORKSPACE_BASE": cache_dir,
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
    }


def build_weights_environment(weights_dir: str, *, offline: bool) -> dict[str, str]:
    """Return the variables for the weights' directory and for offline mode."""
    return {"HF_HOME": weights_dir, "HF_HUB_OFFLINE": "1" if offline else "0"}


def build_server_flags(
    host: str, port: int, model: ModelCard, shutdown_timeout_s: int | None, revision: str | None
) -> dict[str, FlagValue]:
    """Return the flags of vLLM's HTTP server, which vLLM-Omni shares.

    Args:
        shutdown_timeout_s: Time for requests to finish after SIGTERM; ``None`` for a release that ignores it.

    Raises:
        ValueError: Requests would be aborted at SIGTERM.
    """
    if shutdown_timeout_s is not None and shutdown_timeout_s <= 0:
        raise ValueError("shutdown_timeout_s 0 makes vLLM abort every request at SIGTERM: allow at least 1 s")
    return {
        "--host": host,
        "--port": port,
        "--served-model-name": model.name,
        "--revision": revision,
        "--shutdown-timeout": shutdown_timeout_s,
        # This is vLLM's default. It is set explicitly, since prompts contain callers' speech.
        "--enable-log-requests": False,
    }


@dataclass(frozen=True)
class VllmServer(Launcher):
    """A vLLM engine with its HTTP server.

    Attributes:
        cache_dir: Writable directory for compile caches, which persists across restarts.
        shutdown_timeout_s: Time for requests to finish after SIGTERM; shorter than the launcher's time until SIGKILL.
        weights_dir: Hugging Face cache; ``None`` for a subdirectory of ``cache_dir``.
        revision: Commit of the served repository; ``None`` for the latest.
        is_offline: Whether the weights are already in ``weights_dir``, so that nothing is downloaded.
        fabric: Transports of NIXL for engines of a cell.
    """

    model: ModelCard
    sizing: EngineSizing
    port: int
    cache_dir: str
    shutdown_timeout_s: int
    host: str = ANY_ADDRESS
    weights_dir: str | None = None
    revision: str | None = None
    is_offline: bool = True
    kv_transfer: KvTransfer | None = None
    fabric: NixlFabric | None = None
    placement: Placement | None = None

    def __post_init__(self) -> None:
        name = self.model.name
        if self.model.served_by != "vllm":
            raise ValueError(f"{name} is served by {self.model.served_by}: launch it with OmniServer")
        if self.sizing.model != name:
            raise ValueError(f"the sizing is of {self.sizing.model}, the model is {name}: size what is launched")
        self._build_server_flags()
        if self.kv_transfer and not self._is_decoder_only:
            raise ValueError(
                f"{name} is encoder-decoder, whose KV cache vLLM cannot transfer (an assertion at start): "
                "serve it aggregated and without LMCache"
            )
        if (self.fabric is not None) != (
            self.kv_transfer is not None and self.kv_transfer.role is not EngineRole.AGGREGATED
        ):
            raise ValueError(
                f"{name}: prefill and decode engines need a fabric to hand KV cache over, others have none"
            )

    @property
    def _is_decoder_only(self) -> bool:
        return self.model.architecture is ModelArchitecture.DECODER_ONLY

    @property
    def _is_tuned(self) -> bool:
        return self.sizing.profile is Profile.TUNED

    @property
    def repository(self) -> str:
        """Repository of the served weights, which are in FP8 if FP8 is configured and published."""
        if self.sizing.quantization is Quantization.FP8 and self.model.fp8_repository:
            return self.model.fp8_repository
        return self.model.repository

    @property
    def request_audio_limits(self) -> AudioLimits | None:
        """Audio limits per request, if they differ from vLLM's defaults."""
        return calculate_audio_limits(self.model, self.sizing.max_model_len)

    @property
    def max_body_mib(self) -> int:
        """Maximum HTTP body, MiB. Proxies in front of the engine must allow the same size."""
        return self.request_audio_limits.max_body_mib if self.request_audio_limits else DEFAULT_MAX_BODY_MIB

    def build_command(self) -> tuple[str, ...]:
        """Return the full argument vector."""
        groups = (
            self._build_server_flags(),
            self._build_model_flags(),
            self._build_memory_flags(),
            self._build_scheduler_flags(),
        )
        return (
            *(self.placement.build_command_prefix() if self.placement else ()),
            *VLLM_SERVE_COMMAND,
            self.repository,
            *(argument for group in groups for argument in format_flags(group)),
        )

    def _build_server_flags(self) -> dict[str, FlagValue]:
        return build_server_flags(self.host, self.port, self.model, self.shutdown_timeout_s, self.revision)

    def _build_model_flags(self) -> dict[str, FlagValue]:
        mistral = "mistral" if self.model.file_format == "mistral" else None
        max_audios = MAX_AUDIO_INPUTS_BY_TASK.get(self.model.task)
        quantizes_at_load = self.sizing.quantization is Quantization.FP8 and not self.model.fp8_repository
        return {
            "--tokenizer-mode": mistral,
            "--config-format": mistral,
            "--load-format": mistral or _PARALLEL_LOAD_FORMAT,
            "--quantization": "fp8" if quantizes_at_load else None,
            "--limit-mm-per-prompt": {"audio": max_audios} if max_audios else None,
        }

    def _build_memory_flags(self) -> dict[str, FlagValue]:
        sizing = self.sizing
        return {
            "--tensor-parallel-size": sizing.tensor_parallel,
            "--max-model-len": sizing.max_model_len,
            "--gpu-memory-utilization": sizing.gpu_memory_utilization,
            "--kv-cache-dtype": "fp8" if sizing.kv_cache_type is KvCacheType.FP8 else None,
            "--block-size": sizing.block_size,
            "--kv-transfer-config": self.kv_transfer.build_config() if self.kv_transfer else None,
        }

    def _build_scheduler_flags(self) -> dict[str, FlagValue]:
        sizing = self.sizing
        return {
            "--max-num-seqs": sizing.max_num_seqs,
            "--max-num-batched-tokens": sizing.max_num_batched_tokens,
            "--max-num-queued-reqs": sizing.max_queued_requests,
            "--enable-chunked-prefill": self._is_decoder_only if self._is_tuned else None,
            "--enable-prefix-caching": self._is_decoder_only if self._is_tuned else None,
            "--compilation-config": self._build_compilation_config(),
        }

    def _build_compilation_config(self) -> dict[str, object] | None:
        """Return the CUDA graphs to capture if they differ from vLLM's own choice.

        A decode engine processes few prompts (those with audio), and captures no graphs for them. Models with streaming
        input use piecewise graphs (vLLM's recipe for Voxtral Realtime).
        """
        config: dict[str, object] = {}
        if self._is_tuned and self.kv_transfer and self.kv_transfer.role is EngineRole.DECODE:
            config["cudagraph_mode"] = "FULL_DECODE_ONLY"
        elif self._is_decoder_only and self.model.task is ModelTask.TRANSCRIPTION:
            config["cudagraph_mode"] = "PIECEWISE"
        if self.sizing.cudagraph_capture_sizes:
            config["cudagraph_capture_sizes"] = list(self.sizing.cudagraph_capture_sizes)
        return config or None

    def build_environment(self) -> dict[str, str]:
        """Return the environment variables for vLLM and its libraries."""
        environment = {
            **build_cache_environment(self.cache_dir),
            **build_weights_environment(self.weights_dir or f"{self.cache_dir}/huggingface", offline=self.is_offline),
            # vLLM stores the result of memory profiling next to the compile cache, and ignores it if anything else
            # changes.
            "VLLM_ENABLE_STARTUP_PLAN": "1",
        }
        if not self._is_decoder_only:
            environment["VLLM_WORKER_MULTIPROC_METHOD"] = "spawn"
        for part in (self.request_audio_limits, self.fabric, self.placement):
            environment |= part.build_environment() if part else {}
        if self.kv_transfer:
            environment |= HASH_SEED_ENVIRONMENT
        return environment
