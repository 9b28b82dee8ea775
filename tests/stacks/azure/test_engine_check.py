"""The probe of engines, run like by Kubernetes, with an HTTP server that behaves like vLLM."""

import email
import email.policy
import http.server
import io
import json
import subprocess
import sys
import threading
import time
import wave
from collections.abc import Iterator
from pathlib import Path

import pulumi_kubernetes as k8s
import pytest

from voice_blueprint import catalog
from voice_blueprint.azure.contract import ENGINE_HTTP
from voice_blueprint.catalog import ModelCard
from voice_blueprint.catalog.inference import ModelTask
from voice_constructs.azure.kubernetes.engine_check import ENGINE_COUNTERS, SOURCE_FILE, create_engine_liveness_probe
from voice_constructs.azure.kubernetes.files.check_engine import CheckConfig, read_counters

MAX_S = 30
"""Timeout of a probe on a busy machine, far above its own timeout."""


class Engine:
    """State of the server.

    Attributes:
        tokens: Counter that a request increases.
        status: Status of a response; 0 is no response.
        moves: Whether other requests increase the counters.
        requests: Received bodies, by path.
    """

    def __init__(self) -> None:
        self.tokens, self.failures, self.usage = 0, 0, 0.0
        self.status, self.moves, self.serves_metrics = 200, False, True
        self.requests: list[tuple[str, bytes, str]] = []
        self.ended = threading.Event()
        engine = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if not engine.serves_metrics:
                    engine.ended.wait(MAX_S)
                    return
                engine.tokens += engine.moves
                self._answer(200, engine.exposition().encode())

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                engine.requests.append((self.path, body, self.headers["Content-Type"]))
                if not engine.status:
                    engine.ended.wait(MAX_S)
                    return
                engine.tokens += engine.status == 200
                engine.failures += engine.status >= 500
                self._answer(engine.status, b'{"error": "as told"}')

            def log_message(self, *_: object) -> None:
                """Log nothing."""

            def _answer(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.address = f"http://127.0.0.1:{self._server.server_port}"

    def exposition(self) -> str:
        return (
            "# HELP vllm:generation_tokens_total Number of generation tokens processed.\n"
            "# TYPE vllm:generation_tokens_total counter\n"
            f'vllm:generation_tokens_total{{engine="0",model_name="tiny"}} {float(self.tokens)}\n'
            'vllm:prompt_tokens_total{engine="0",model_name="tiny"} 3.0\n'
            f'vllm:kv_cache_usage_perc{{engine="0",model_name="tiny"}} {self.usage}\n'
            f'http_requests_total{{handler="/v1/completions",method="POST",status="5xx"}} {float(self.failures)}\n'
        )

    def stop(self) -> None:
        self.ended.set()
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def engine() -> Iterator[Engine]:
    found = Engine()
    yield found
    found.stop()


@pytest.fixture
def other() -> Iterator[Engine]:
    found = Engine()
    yield found
    found.stop()


class Prober:
    """The probe of one container."""

    def __init__(self, state: Path, engine: Engine, *others: Engine) -> None:
        self.check = {
            "state": str(state),
            "metrics": [f"{each.address}/metrics" for each in (engine, *others)],
            "counters": [*ENGINE_COUNTERS],
            "url": f"{engine.address}/v1/completions",
            "body": {"model": "tiny", "prompt": ".", "max_tokens": 1},
            "limit_s": 1.0,
        }

    def run(self) -> tuple[bool, str]:
        command = [sys.executable, "-I", "-S", str(SOURCE_FILE), json.dumps(self.check)]
        done = subprocess.run(  # noqa: S603
            command, capture_output=True, text=True, timeout=MAX_S, check=False
        )
        assert not done.stderr
        assert done.stdout.count("\n") == 1
        assert done.returncode in (0, 1)
        return done.returncode == 0, done.stdout.strip()


@pytest.fixture
def probe(tmp_path: Path, engine: Engine) -> Prober:
    return Prober(tmp_path / "state.json", engine)


def test_an_idle_engine_must_answer(engine: Engine, probe: Prober) -> None:
    assert probe.run() == (True, "answered one request")
    ((path, body, _),) = engine.requests
    assert path == "/v1/completions"
    assert json.loads(body) == {"model": "tiny", "prompt": ".", "max_tokens": 1}


def test_a_hanging_engine_fails_although_its_server_responds(engine: Engine, probe: Prober) -> None:
    assert probe.run()[0]
    engine.status = 0
    probe.run()  # the tokens of the previous request
    works, why = probe.run()
    assert not works
    assert "no response within" in why
    engine.status = 200
    assert probe.run()[0]


def test_no_request_is_sent_to_a_busy_engine(engine: Engine, probe: Prober) -> None:
    engine.moves, engine.status = True, 0
    probe.run()
    engine.requests.clear()
    for _ in range(3):
        assert probe.run() == (True, "the engine generates tokens")
    assert not engine.requests


def test_progress_of_a_long_prompt_is_detected_in_kv_cache_usage(engine: Engine, probe: Prober) -> None:
    engine.status = 0
    probe.run()
    for usage in (0.1, 0.2, 0.1):
        engine.usage = usage
        assert probe.run() == (True, "the engine generates tokens")
    assert not probe.run()[0]


@pytest.mark.parametrize("status", [0, 429, 503])
def test_progress_with_a_full_queue_is_detected_by_tokens(engine: Engine, probe: Prober, status: int) -> None:
    """The first probe has no earlier counters, so it must send a request."""
    engine.status, engine.moves = status, True
    works, why = probe.run()
    assert works
    assert "the engine generates tokens, and its queue is full" in why
    engine.moves = False
    probe.run()
    assert not probe.run()[0]


def test_an_engine_that_shuts_down_is_not_ready_while_it_finishes_requests(engine: Engine, probe: Prober) -> None:
    engine.moves = True
    assert probe.run()[0]
    engine.status, engine.failures = 500, engine.failures + 1  # a caller's request
    assert probe.run() == (False, 'HTTP 500 {"error": "as told"}')


def test_refusals_of_a_full_queue_are_not_a_shutdown(engine: Engine, probe: Prober) -> None:
    engine.moves = True
    assert probe.run()[0]
    engine.status, engine.failures = 503, engine.failures + 1
    for _ in range(2):
        works, why = probe.run()
        assert works
        assert "the engine generates tokens" in why


@pytest.mark.parametrize("status", [400, 404, 422])
def test_a_rejected_request_does_not_fail_the_check(engine: Engine, probe: Prober, status: int) -> None:
    engine.status = status
    works, why = probe.run()
    assert works
    assert f"rejects the probe's request: HTTP {status}" in why


def test_a_restarted_container_ignores_the_earlier_state(engine: Engine, probe: Prober) -> None:
    engine.tokens = 100
    assert probe.run()[0]
    engine.tokens, engine.status = 50, 0
    assert not probe.run()[0]


def test_an_old_state_is_ignored(engine: Engine, probe: Prober) -> None:
    assert probe.run()[0]
    state = Path(str(probe.check["state"]))
    saved = json.loads(state.read_text(encoding="utf-8"))
    state.write_text(json.dumps(saved | {"at": saved["at"] - 61}), encoding="utf-8")
    engine.status = 0
    assert not probe.run()[0]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"at": "x", "samples": {}}', '{"at": 1}'])
def test_an_unreadable_state_is_ignored(probe: Prober, text: str) -> None:
    Path(str(probe.check["state"])).write_text(text, encoding="utf-8")
    assert probe.run() == (True, "answered one request")


def test_a_hanging_server_fails_within_the_timeout(engine: Engine, probe: Prober) -> None:
    engine.serves_metrics, engine.status = False, 0
    began = time.monotonic()
    assert not probe.run()[0]
    assert time.monotonic() - began < MAX_S / 2


def test_a_stopped_server_fails(probe: Prober, engine: Engine) -> None:
    engine.stop()
    works, why = probe.run()
    assert not works
    assert "ConnectionRefusedError" in why


def test_both_engines_of_a_cell_must_be_healthy(tmp_path: Path, engine: Engine, other: Engine) -> None:
    """The front's response depends on both engines; progress of one does not prove that the other works."""
    probe = Prober(tmp_path / "state.json", engine, other)
    engine.moves = True
    engine.status = 0
    probe.run()
    assert not probe.run()[0]
    other.moves = True
    assert probe.run() == (True, "the engine generates tokens")


def test_silence_is_sent_as_a_sound_file(engine: Engine, probe: Prober) -> None:
    probe.check |= {"silence_s": 0.5, "body": {"model": "whisper", "language": "en"}}
    assert probe.run()[0]
    ((_, body, content_type),) = engine.requests
    head = f"Content-Type: {content_type}\r\n\r\n".encode()
    parts = {
        part.get_param("name", header="content-disposition"): part
        for part in email.message_from_bytes(head + body, policy=email.policy.HTTP).iter_parts()
    }
    assert {name: str(part.get_content()).strip() for name, part in parts.items() if name != "file"} == {
        "model": "whisper",
        "language": "en",
    }
    with wave.open(io.BytesIO(parts["file"].get_content())) as sound:
        assert sound.getnframes() / sound.getframerate() == 0.5
        assert not any(sound.readframes(sound.getnframes()))


def test_counters_are_summed_over_their_labels() -> None:
    exposition = (
        'a_total{engine="0"} 1.0\na_total{engine="1"} 2.0\na_total_created{engine="0"} 9.0\nb 3\n\n# a_total 5\n'
    )
    assert read_counters(exposition, ("a_total",)) == {"a_total": 3.0}


@pytest.mark.parametrize("model", catalog.models().values(), ids=lambda model: model.name)
def test_each_kind_of_model_gets_a_suitable_request(model: ModelCard) -> None:
    action = create_engine_liveness_probe("engine", ENGINE_HTTP, model).exec_
    assert isinstance(action, k8s.core.v1.ExecActionArgs)
    assert isinstance(action.command, list)
    check = CheckConfig.from_json(str(action.command[-1]))
    path = {
        ModelTask.CHAT: "/v1/completions",
        ModelTask.AUDIO_CHAT: "/v1/completions",
        ModelTask.TRANSCRIPTION: "/v1/audio/transcriptions",
        ModelTask.SPEECH: "/v1/audio/speech",
    }[model.task]
    assert check.url.endswith(path)
    assert bool(check.silence_s) is (model.task is ModelTask.TRANSCRIPTION)
