"""Rules on engine probes.

A probe must complete a request, since the HTTP server responds even while the engine hangs.
"""

import json
from collections.abc import Iterator
from urllib.parse import urlsplit

from voice_constructs.azure.kubernetes.files.check_engine import CheckConfig
from voice_stacks.azure.policy.engines import Engine, list_engines
from voice_stacks.azure.policy.pods import PodTemplate
from voice_stacks.azure.policy.rules import Stack, Violation, rule
from voice_stacks.azure.policy.values import Value
from voice_stacks.azure.policy.wiring import find_listening_ports

CHECK_PROGRAM = "check_engine.py"
NETWORK_PROBE_HANDLERS = ("httpGet", "tcpSocket", "grpc")
DEFAULT_TIMEOUT_S = 1
HANG_ISSUE_URL = "https://github.com/vllm-project/vllm/issues/36960"


@rule(
    "engines-answer",
    "Readiness and liveness probes of an engine must test whether it responds to requests.",
    remedy=f"use {CHECK_PROGRAM} as the probe, which requests one token: /health still succeeds if the engine core "
    "hangs",
    source=HANG_ISSUE_URL,
)
def check_probes_send_requests(stack: Stack) -> Iterator[Violation]:
    for engine in list_engines(stack):
        liveness = engine.container.spec["livenessProbe"]
        if any(liveness[handler] for handler in NETWORK_PROBE_HANDLERS):
            yield Violation(
                engine.pod.urn,
                f"livenessProbe of {engine.name} queries its HTTP server, which responds even if the engine core hangs",
            )
        ready = [probe for one in engine.pod.running_containers for probe in _parse_checks(one.spec["readinessProbe"])]
        if engine.container.spec["readinessProbe"] and not any(_targets_engine(check, engine) for check in ready):
            yield Violation(engine.pod.urn, f"no readinessProbe of {engine.pod.name} sends a request to {engine.name}")


@rule(
    "answers-are-of-their-engine",
    "An engine probe must use the engine's model, a port that is open, and a limit below the kubelet's timeout.",
    remedy="render the probe from the engine's launcher",
    source="https://kubernetes.io/docs/concepts/configuration/liveness-readiness-startup-probes",
)
def check_probes_match_engine(stack: Stack) -> Iterator[Violation]:
    for engine in list_engines(stack):
        for container in engine.pod.running_containers:
            for kind in ("livenessProbe", "readinessProbe"):
                probe = container.spec[kind]
                for check in _parse_checks(probe):
                    if container == engine.container or _targets_engine(check, engine):
                        label = f"{kind} of {engine.pod.name}/{container.name}"
                        for problem in _find_probe_problems(check, probe, engine):
                            yield Violation(engine.pod.urn, f"{label} {problem}")


def _find_probe_problems(check: CheckConfig, probe: Value, engine: Engine) -> Iterator[str]:
    served, requested = engine.flags.get("--served-model-name", engine.repository), check.body.get("model")
    if requested != served:
        yield f"requests model {requested}; {engine.name} serves {served}"
    ports = _collect_pod_listening_ports(engine.pod)
    for url in (check.url, *check.metrics):
        port = str(urlsplit(url).port)
        if port not in ports:
            yield f"uses port {port}, on which no container of the pod listens"
    if not _targets_engine(check, engine):
        yield f"reads no counters of {engine.name}"
    published = {metric.name for metric in engine.published_table.metrics}
    for counter in check.counters:
        if counter not in published:
            yield f"reads {counter}, which {engine.name} does not publish"
    timeout_s = probe["timeoutSeconds"].number or DEFAULT_TIMEOUT_S
    if check.limit_s >= timeout_s:
        yield f"may run for {check.limit_s:g} s; the kubelet stops it after {timeout_s:g} s"


def _parse_checks(probe: Value) -> Iterator[CheckConfig]:
    """Yield the configuration of an exec probe that runs our check program."""
    command = [part.text for part in probe.get("exec", "command")]
    if any(part.endswith(CHECK_PROGRAM) for part in command):
        try:
            yield CheckConfig.from_json(command[-1])
        except (json.JSONDecodeError, TypeError):
            return


def _targets_engine(check: CheckConfig, engine: Engine) -> bool:
    port = engine.flags.get("--port", "8000")
    return any(str(urlsplit(url).port) == port for url in check.metrics)


def _collect_pod_listening_ports(pod: PodTemplate) -> set[str]:
    return set().union(*map(find_listening_ports, pod.running_containers))
