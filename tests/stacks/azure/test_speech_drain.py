"""The preStop hook of speech, run like by Kubernetes, with an HTTP server that publishes metrics."""

import http.server
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from prometheus_client import CollectorRegistry, Gauge, generate_latest

from tests.stacks.azure.manifests import DIGESTS, engine_pods, workloads
from tests.stacks.azure.recorded import edit_deployment
from voice_blueprint.azure.contract import ENGINE_HTTP
from voice_blueprint.azure.metrics import SpeechMetric
from voice_blueprint.engines.published.release import load_published_table
from voice_constructs.azure.kubernetes.files.drain_speech import RequestDrain, read_gauge
from voice_constructs.azure.kubernetes.pods import ENGINE_PRE_STOP_S
from voice_constructs.azure.kubernetes.speech_drain import PROGRAM_PATH, SOURCE_FILE, build_drain_hook_command
from voice_sandbox.azure.graph import Graph

MAX_S = 60
"""Timeout of a program on a busy machine, far above its own timeouts."""
GAUGES = (SpeechMetric.RUNNING, SpeechMetric.WAITING)


@dataclass
class Engine:
    """Fake engine server with gauges and responses."""

    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    status: int = 200
    readings: int = 0
    address: str = ""
    on_reading: Callable[["Engine"], None] = lambda _: None

    def __post_init__(self) -> None:
        self.gauges = {
            name: Gauge(name, "Requests.", ["model_name"], registry=self.registry).labels(model_name="tts")
            for name in GAUGES
        }


@pytest.fixture
def engine() -> Iterator[Engine]:
    served = Engine()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            served.readings += 1
            served.on_reading(served)
            body = generate_latest(served.registry)
            self.send_response(served.status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    served.address = f"http://127.0.0.1:{server.server_port}/metrics"
    yield served
    server.shutdown()
    server.server_close()


ONE_READING: dict[str, object] = {"limit_s": 3, "period_s": 3}
"""On a busy machine, a second reading shortly before the limit would time out."""


def hook(engine: Engine, **changes: object) -> subprocess.Popen[str]:
    """Start the program like the kubelet, with short times."""
    drain = {"metrics": engine.address, "gauges": GAUGES, "settle_s": 0, "limit_s": MAX_S, "period_s": 0.05, **changes}
    return subprocess.Popen(  # noqa: S603  a program of this project
        [sys.executable, "-I", "-S", str(SOURCE_FILE), json.dumps(drain)], stderr=subprocess.PIPE, text=True
    )


def wait_for_exit(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, reason = process.communicate(timeout=MAX_S)
    return process.returncode, reason


def until_read(engine: Engine, times: int) -> None:
    """Wait until the hook has read the metrics again."""
    end, seen = time.monotonic() + MAX_S, engine.readings
    while engine.readings < seen + times:
        assert time.monotonic() < end, "the program reads no metrics"
        time.sleep(0.01)


def test_an_idle_engine_is_stopped_at_once(engine: Engine) -> None:
    assert wait_for_exit(hook(engine)) == (0, "")
    assert engine.readings == 2


@pytest.mark.parametrize("gauge", GAUGES)
def test_sigterm_waits_for_running_and_queued_requests(engine: Engine, gauge: SpeechMetric) -> None:
    engine.gauges[gauge].set(2)
    process = hook(engine)
    until_read(engine, 5)
    assert process.poll() is None
    engine.gauges[gauge].set(0)
    assert wait_for_exit(process) == (0, "")


def test_the_drain_waits_for_a_request_between_two_readings(engine: Engine) -> None:
    """A reading may show no request while the engine parses the next one."""

    def alternate_requests(served: Engine) -> None:
        served.gauges[SpeechMetric.RUNNING].set({1: 0, 2: 1, 3: 1}.get(served.readings, 0))

    engine.on_reading = alternate_requests
    assert wait_for_exit(hook(engine)) == (0, "")
    assert engine.readings == 5


def test_the_drain_waits_for_requests_that_the_router_still_sends(engine: Engine) -> None:
    process = hook(engine, settle_s=0.5)
    time.sleep(0.2)
    assert engine.readings == 0
    engine.gauges[SpeechMetric.RUNNING].set(1)
    until_read(engine, 3)
    assert process.poll() is None
    engine.gauges[SpeechMetric.RUNNING].set(0)
    assert wait_for_exit(process) == (0, "")


def test_a_request_that_does_not_end_is_abandoned_after_the_timeout(engine: Engine) -> None:
    engine.gauges[SpeechMetric.RUNNING].set(3)
    began = time.monotonic()
    code, reason = wait_for_exit(hook(engine, **ONE_READING))
    assert code == 1
    assert "3 requests are unfinished after 3 s" in reason
    assert time.monotonic() - began >= 3


def test_the_drain_does_not_wait_for_an_exited_engine(engine: Engine) -> None:
    assert wait_for_exit(hook(engine, metrics="http://127.0.0.1:9/metrics")) == (0, "")


@pytest.mark.parametrize("gauge", ["vllm_omni:num_requests_runing", "vllm_omni:num_requests"])
def test_a_gauge_that_is_not_published_counts_as_unfinished(engine: Engine, gauge: str) -> None:
    code, reason = wait_for_exit(hook(engine, gauges=[gauge], **ONE_READING))
    assert code == 1
    assert f"{gauge} is not published" in reason


def test_a_temporarily_failing_engine_is_polled_again(engine: Engine) -> None:
    engine.status = 500
    process = hook(engine)
    until_read(engine, 3)
    assert process.poll() is None
    engine.status = 200
    assert wait_for_exit(process) == (0, "")


def test_a_permanently_failing_engine_is_abandoned_after_the_timeout(engine: Engine) -> None:
    engine.status = 500
    code, reason = wait_for_exit(hook(engine, **ONE_READING))
    assert code == 1
    assert "HTTP 500" in reason


def test_a_gauge_is_the_sum_over_its_labels() -> None:
    text = "\n".join(
        ["# HELP x:a Requests.", 'x:a{stage="0"} 1.0', 'x:a{stage="a b"} 2.0', "x:ab 8.0", "x:b{} 1e+01", ""]
    )
    assert read_gauge(text, "x:a") == 3
    assert read_gauge(text, "x:b") == 10


# --- As deployed ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def graph() -> Graph:
    return workloads(edit_deployment({"images": DIGESTS}))


def test_the_release_publishes_the_metrics_of_the_hook() -> None:
    kinds = {metric.name: metric.kind for metric in load_published_table("vllm-omni").metrics}
    assert [kinds[name] for name in GAUGES] == ["gauge", "gauge"]


def test_only_speech_engines_wait_before_sigterm(graph: Graph) -> None:
    hooks = {
        each.name: one["lifecycle"]["preStop"] for each in engine_pods(graph) for one in each.main if "lifecycle" in one
    }
    assert [name for name, stop in hooks.items() if "exec" in stop] == ["speech"]
    (speech,) = (each for each in engine_pods(graph) if each.name == "speech")
    (engine,) = speech.main
    command = hooks["speech"]["exec"]["command"]
    assert command == list(build_drain_hook_command(ENGINE_HTTP, settle_s=ENGINE_PRE_STOP_S, drain_s=585))
    drain = RequestDrain.from_json(command[-1])
    assert drain.limit_s + 60 <= speech.spec["terminationGracePeriodSeconds"]
    assert PROGRAM_PATH in [mount["mountPath"] for mount in engine["volumeMounts"]]
    assert "--shutdown-timeout" not in engine["command"]
