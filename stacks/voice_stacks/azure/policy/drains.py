"""Rules on draining: vLLM completes requests after SIGTERM, but vLLM-Omni must complete them before SIGTERM."""

import json
from collections.abc import Iterator
from urllib.parse import urlsplit

from voice_blueprint.azure.metrics import SpeechMetric
from voice_constructs.azure.kubernetes.files.drain_speech import RequestDrain
from voice_stacks.azure.policy.engines import Engine, list_engines
from voice_stacks.azure.policy.rules import Stack, Violation, rule

DRAIN_PROGRAM = "drain_speech.py"
UNFINISHED_REQUEST_GAUGES = (SpeechMetric.RUNNING, SpeechMetric.WAITING)


def parse_drain_hook(engine: Engine) -> RequestDrain | None:
    """Return the configuration of an engine's preStop hook, or ``None`` if it does not run our program."""
    command = [part.text for part in engine.container.spec.get("lifecycle", "preStop", "exec", "command")]
    if any(part.endswith(DRAIN_PROGRAM) for part in command):
        try:
            return RequestDrain.from_json(command[-1])
        except (json.JSONDecodeError, TypeError):
            return None
    return None


def calculate_drain_times_s(engine: Engine) -> tuple[float, float]:
    """Return the time before SIGTERM during which requests still arrive, and the time allowed for them to finish."""
    if not engine.is_omni:
        return engine.container.pre_stop_delay_s, engine.parse_int_flag("--shutdown-timeout", 0)
    waits = parse_drain_hook(engine)
    return (waits.settle_s, waits.limit_s - waits.settle_s) if waits else (engine.container.pre_stop_delay_s, 0)


def format_abort_reason(engine: Engine) -> str:
    """Return the reason why an engine without a drain time drops its requests."""
    if engine.is_omni:
        return f"has no preStop hook that waits for requests: SIGTERM aborts them in {engine.published_table.release}"
    return "has --shutdown-timeout 0: it aborts all requests when it stops"


@rule(
    "drains-see-requests",
    "A preStop hook that waits for requests must read the gauges of unfinished requests on its engine's port.",
    remedy="render the hook with voice_constructs.azure.kubernetes.speech_drain",
    source="vllm-omni, vllm_omni/entrypoints/omni_base.py: shutdown() ignores its time-out",
)
def check_drain_hooks_read_gauges(stack: Stack) -> Iterator[Violation]:
    for engine in list_engines(stack):
        urn, own_port = engine.pod.urn, engine.flags.get("--port", "8000")
        if engine.is_omni and "--shutdown-timeout" in engine.flags:
            yield Violation(
                urn, f"{engine.name} has --shutdown-timeout, which {engine.published_table.release} ignores"
            )
        waits = parse_drain_hook(engine)
        if waits is None:
            continue
        port = str(urlsplit(waits.metrics).port)
        if port != own_port:
            yield Violation(
                urn, f"the preStop hook of {engine.name} reads port {port}; the engine listens on {own_port}"
            )
        for gauge in set(UNFINISHED_REQUEST_GAUGES) - set(waits.gauges):
            yield Violation(
                urn, f"the preStop hook of {engine.name} does not read {gauge}: it ends before those requests do"
            )
        command = [part.text for part in engine.container.spec.get("lifecycle", "preStop", "exec", "command")]
        program = next(part for part in command if part.endswith(DRAIN_PROGRAM))
        if program not in engine.container.volume_by_mount_path:
            yield Violation(urn, f"the preStop hook of {engine.name} runs {program}, which is not on a volume")
