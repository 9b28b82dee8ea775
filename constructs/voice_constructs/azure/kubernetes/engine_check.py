"""Probes for engines: a request for one token, unless the counters show that tokens are generated."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pulumi_kubernetes as k8s

from voice_blueprint.azure.metrics import EngineMetric, SpeechMetric
from voice_blueprint.catalog import ModelCard
from voice_blueprint.catalog.inference import ModelTask
from voice_blueprint.contract.network import Port
from voice_blueprint.engines.launch.base import Launcher, build_http_url
from voice_constructs.azure.kubernetes.pods import EngineProbes, Probe, create_startup_probe

PROGRAM_PATH = "/opt/voice/check_engine.py"
SOURCE_FILE = Path(__file__).parent / "files" / "check_engine.py"

CHECK_TIMEOUT_S = 4.0
"""Time limit of the check, of which the request may use 60 %. This is our choice: an idle engine responds within 0.1
s."""
PROBE_TIMEOUT_S = 5
"""Kubelet timeout, which includes the start of Python."""

READINESS_PERIOD_S = 5
READINESS_FAILURE_THRESHOLD = 2
"""An engine that hangs becomes unready after 20 s: in the worst case, its last tokens satisfy the first probe, and the
next two probes fail. A probe uses 70 ms of CPU time (measured at 2.6 GHz), which is 0.4 % of an engine with 4 cores."""

LIVENESS_PERIOD_S = 15
LIVENESS_FAILURE_THRESHOLD = 8
"""Number of failed probes before a restart. These probes take two minutes. A restart is a cold start, and an engine
that hangs for a shorter time may recover."""
LIVENESS_TERMINATION_GRACE_S = 10
"""Time from the failed liveness probe to SIGKILL. SIGKILL cuts the preStop hook short, since a hanging engine completes
none of the requests that a drain would wait for, and has received no requests for two minutes."""

PROBE_SILENCE_S = 1.0
PROBE_TEXT = "Yes."
PROBE_VOICE = "casual_female"
"""A preset of Voxtral 4B TTS (https://huggingface.co/mistralai/Voxtral-4B-TTS-2603)."""

ENGINE_COUNTERS = (EngineMetric.GENERATION_TOKENS, EngineMetric.PROMPT_TOKENS, EngineMetric.KV_USAGE)
"""Metrics that change while an engine works. A prompt is only counted once it is completely prefilled; until then, the
usage of the KV cache changes."""
SPEECH_COUNTERS = (SpeechMetric.GENERATION_TOKENS, SpeechMetric.PROMPT_TOKENS, SpeechMetric.AUDIO_FRAMES)


@dataclass(frozen=True)
class EngineCheckLauncher(Launcher):
    """A process whose container also contains the check program.

    Attributes:
        process: The process of the container.
    """

    process: Launcher

    def build_command(self) -> tuple[str, ...]:
        return self.process.build_command()

    def build_environment(self) -> dict[str, str]:
        return self.process.build_environment()

    def render_files(self) -> dict[str, str]:
        """Return the files of the process, and the check program."""
        return self.process.render_files() | {PROGRAM_PATH: SOURCE_FILE.read_text(encoding="utf-8")}


def create_engine_probes(name: str, port: Port, model: ModelCard) -> EngineProbes:
    """Return the probes of an engine.

    Args:
        name: Name of the engine's container, and prefix of the files in which the probes store their state.
    """
    return {
        "startup": create_startup_probe(port),
        "liveness": create_engine_liveness_probe(name, port, model),
        "readiness": create_engine_readiness_probe(name, (port,), port, model),
    }


def create_engine_readiness_probe(name: str, engines: tuple[Port, ...], front: Port, model: ModelCard) -> Probe:
    """Return the readiness probe of a pod.

    Args:
        name: Name of the container.
        engines: Ports of the engines, all of which must generate tokens.
        front: Port of the server that forwards requests to all of them.
    """
    return Probe(
        exec_=_create_exec_action(f"{name}-readiness", engines, front, model),
        period_seconds=READINESS_PERIOD_S,
        failure_threshold=READINESS_FAILURE_THRESHOLD,
        timeout_seconds=PROBE_TIMEOUT_S,
    )


def create_engine_liveness_probe(name: str, port: Port, model: ModelCard) -> Probe:
    return Probe(
        exec_=_create_exec_action(f"{name}-liveness", (port,), port, model),
        period_seconds=LIVENESS_PERIOD_S,
        failure_threshold=LIVENESS_FAILURE_THRESHOLD,
        timeout_seconds=PROBE_TIMEOUT_S,
        termination_grace_period_seconds=LIVENESS_TERMINATION_GRACE_S,
    )


def _create_exec_action(
    state: str, engines: tuple[Port, ...], front: Port, model: ModelCard
) -> k8s.core.v1.ExecActionArgs:
    check = {
        "state": f"/tmp/{state}.json",  # noqa: S108  a volume of the pod
        "metrics": [f"{build_http_url(port.number)}/metrics" for port in engines],
        "counters": [*(SPEECH_COUNTERS if model.task is ModelTask.SPEECH else ENGINE_COUNTERS)],
        "limit_s": CHECK_TIMEOUT_S,
        **_build_probe_request(build_http_url(front.number), model),
    }
    # The image's site packages are skipped, since importing them takes longer than the probe.
    return k8s.core.v1.ExecActionArgs(command=["python3", "-I", "-S", PROGRAM_PATH, json.dumps(check)])


def _build_probe_request(server: str, model: ModelCard) -> Mapping[str, object]:
    """Return the smallest request that makes an engine generate output.

    Transcription models receive a moment of silence, since they do not accept text. A language is specified, since
    language detection may fail. Speech is requested in the same way as for callers, since it is unknown how vLLM-Omni
    handles a limit of one frame. One word is only half a second of audio.
    """
    match model.task:
        case ModelTask.SPEECH:
            body = {"model": model.name, "input": PROBE_TEXT, "voice": PROBE_VOICE, "response_format": "pcm"}
            return {"url": f"{server}/v1/audio/speech", "body": body}
        case ModelTask.TRANSCRIPTION:
            body = {"model": model.name, "language": "en", "response_format": "json", "max_completion_tokens": "1"}
            return {"url": f"{server}/v1/audio/transcriptions", "body": body, "silence_s": PROBE_SILENCE_S}
        case ModelTask.CHAT | ModelTask.AUDIO_CHAT:
            return {"url": f"{server}/v1/completions", "body": {"model": model.name, "prompt": ".", "max_tokens": 1}}
