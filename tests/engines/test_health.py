"""Rendered probes on real engines: a hanging engine is removed within 20 s and returns, a busy one is not removed."""

import asyncio
import concurrent.futures
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx2
import pulumi_kubernetes as k8s
import pytest

from tests.blueprint.launch.samples import VOXTRAL_LOAD, WHISPER_LOAD, p5
from tests.engines.conftest import Bench, chat_service
from voice_blueprint.azure.contract import ENGINE_HTTP
from voice_blueprint.engines.launch.base import build_http_url
from voice_blueprint.engines.launch.services import create_chat_launcher, create_fleet_launcher
from voice_blueprint.engines.launch.vllm import VllmServer
from voice_blueprint.file.model.azure import Azure
from voice_constructs.azure.kubernetes.engine_check import SOURCE_FILE, create_engine_probes
from voice_constructs.azure.kubernetes.pods import ENGINE_PRE_STOP_S
from voice_sandbox.engines.processes import EngineProcess, run_processes
from voice_whisper.vllm_backend import VllmTranscriber

BUSY_S = 25.0
UNREADY_WITHIN_S = 20.0
IN_FLIGHT_S = 20.0
PATIENCE_S = 300.0


@dataclass
class Kubelet:
    """Runs one probe like Kubernetes, in a thread.

    Attributes:
        engine: Probed engine; waiting ends if it exits.
        said: Output and result of each run.
        changes: Times of readiness changes on the monotonic clock.
    """

    engine: EngineProcess
    command: list[str]
    period_s: float
    timeout_s: float
    failures: int
    said: list[tuple[bool, str]] = field(default_factory=list)
    changes: list[tuple[float, bool]] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def ready(self) -> bool:
        return bool(self.changes) and self.changes[-1][1]

    def wait(self, ready: bool, within_s: float = PATIENCE_S) -> float:
        """Wait for a readiness state, and return the duration in seconds."""
        began = time.monotonic()
        while self.ready is not ready:
            assert not ready or self.engine.get_exit_code() is None, self.engine.read_log_tail()
            assert time.monotonic() - began < within_s, self.said[-5:]
            time.sleep(0.1)
        return time.monotonic() - began

    def stop(self) -> None:
        self.ended.set()
        self._thread.join()

    def _run(self) -> None:
        failed = 0
        while not self.ended.is_set():
            began = time.monotonic()
            works, why = self.probe()
            self.said.append((works, why))
            failed = 0 if works else failed + 1
            if works is not self.ready and (works or failed >= self.failures):
                self.changes.append((time.monotonic(), works))
            self.ended.wait(max(0.0, self.period_s - (time.monotonic() - began)))

    def probe(self) -> tuple[bool, str]:
        """Run the probe once."""
        try:
            done = subprocess.run(  # noqa: S603  the rendered command
                self.command, capture_output=True, text=True, timeout=self.timeout_s, check=False
            )
        except subprocess.TimeoutExpired:
            return False, "the kubelet gave it up"
        return done.returncode == 0, done.stdout.strip() + done.stderr


def kubelet(engine: EngineProcess, launcher: VllmServer, folder: Path, kind: str = "readiness") -> Kubelet:
    """Return a kubelet that runs an engine's rendered probe on the local port."""
    probes = create_engine_probes("engine", ENGINE_HTTP, launcher.model)
    probe = probes["readiness" if kind == "readiness" else "liveness"]
    assert isinstance(probe.exec_, k8s.core.v1.ExecActionArgs)
    assert isinstance(probe.exec_.command, list)
    check: dict[str, Any] = json.loads(str(probe.exec_.command[-1]))
    check = json.loads(json.dumps(check).replace(build_http_url(ENGINE_HTTP.number), engine.url))
    check["state"] = str(folder / f"{engine.name}-{kind}.json")
    command = [sys.executable, "-I", "-S", str(SOURCE_FILE), json.dumps(check)]
    period_s, timeout_s, failures = probe.period_seconds, probe.timeout_seconds, probe.failure_threshold
    assert isinstance(period_s, int)
    assert isinstance(timeout_s, int)
    assert isinstance(failures, int)
    return Kubelet(engine, command, period_s, timeout_s, failures)


@pytest.fixture(scope="module")
def launcher(azure: Azure) -> VllmServer:
    """Return the text model's launcher, with one request at a time and a queue of three."""
    service = chat_service(azure)
    rendered = create_chat_launcher(azure, service, service.pools[0])
    return replace(rendered, sizing=replace(rendered.sizing, max_num_seqs=1, max_queued_requests=4))


@pytest.fixture(scope="module")
def engine(launcher: VllmServer, bench: Bench) -> Iterator[EngineProcess]:
    with run_processes(bench.engine(launcher, "narrow")) as (found,):
        yield found


@pytest.fixture
def node(engine: EngineProcess, launcher: VllmServer, tmp_path: Path) -> Iterator[Kubelet]:
    found = kubelet(engine, launcher, tmp_path)
    found.wait(ready=True)
    yield found
    found.stop()


def ask(engine: EngineProcess, tokens: int, timeout_s: float = PATIENCE_S) -> int:
    body = {"model": "qwen3-8b", "prompt": "hello world", "max_tokens": tokens, "ignore_eos": True}
    return httpx2.post(f"{engine.url}/v1/completions", json=body, timeout=timeout_s).status_code


def test_a_hung_engine_is_removed_in_time_and_returns(engine: EngineProcess, node: Kubelet) -> None:
    engine.suspend_engine_cores()
    try:
        left_s = node.wait(ready=False)
        assert engine.fetch_health_status() == 200, "and yet its server says that all is well"
    finally:
        engine.resume_processes()
    back_s = node.wait(ready=True)
    print(f"out of rotation after {left_s:.1f} s, back {back_s:.1f} s after it works again: {node.said[-3:]}")
    assert left_s < UNREADY_WITHIN_S
    assert back_s < UNREADY_WITHIN_S


def test_a_hung_server_is_removed_in_time_and_returns(engine: EngineProcess, node: Kubelet) -> None:
    engine.suspend_processes()
    try:
        left_s = node.wait(ready=False)
    finally:
        engine.resume_processes()
    node.wait(ready=True)
    assert left_s < UNREADY_WITHIN_S


def test_a_saturated_engine_is_not_removed(engine: EngineProcess, node: Kubelet) -> None:
    """Saturate the engine with one request at a time, a full queue, and rejected requests."""
    ends_at, statuses, node_changes = time.monotonic() + BUSY_S, [], list(node.changes)

    def send_load() -> None:
        while time.monotonic() < ends_at:
            statuses.append(ask(engine, 20))
            time.sleep(0.2)

    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        for future in [threads.submit(send_load) for _ in range(8)]:
            future.result()
    assert node.changes == node_changes, node.said
    assert {200, 503} == set(statuses), "the queue was full"
    print(f"saturated for {BUSY_S:.0f} s: {sorted({why for _, why in node.said})}")


def test_requests_are_served_until_the_router_stops_sending_and_then_complete(
    engine: EngineProcess, node: Kubelet, launcher: VllmServer
) -> None:
    """The last test of this engine, whose pod is deleted. Kubernetes waits for preStop, and then sends SIGTERM."""
    deleted_at, statuses = time.monotonic(), []
    while time.monotonic() - deleted_at < ENGINE_PRE_STOP_S:
        statuses.append(ask(engine, 4))
        time.sleep(0.5)
    assert set(statuses) == {200}
    began = time.monotonic()
    ask(engine, 20)
    # A busy machine generates three tokens a second, an idle one three hundred.
    tokens = round(IN_FLIGHT_S * 20 / (time.monotonic() - began))
    with concurrent.futures.ThreadPoolExecutor() as threads:
        asked = threads.submit(ask, engine, tokens)
        while not engine.fetch_metrics()["vllm:num_requests_running"]:
            time.sleep(0.05)
        engine.terminate()
        time.sleep(1)
        late = ask(engine, 1, 10)
        verdict = node.probe()
        began = time.monotonic()
        assert asked.result() == 200
    assert engine.wait(launcher.shutdown_timeout_s) == 0
    print(f"late: HTTP {late}, probe: {verdict}, end {time.monotonic() - began:.1f} s after the last request")
    assert late == 500
    assert not verdict[0]
    assert "HTTP 500" in verdict[1]


@pytest.fixture(scope="module", params=["whisper-large-v3", "voxtral-small-24b"])
def vllm_on_host(request: pytest.FixtureRequest, bench: Bench) -> Iterator[tuple[EngineProcess, VllmServer]]:
    """Start the vLLM of a p5 host."""
    load = WHISPER_LOAD if request.param.startswith("whisper") else VOXTRAL_LOAD
    launcher = create_fleet_launcher(p5(request.param, load))
    with run_processes(bench.engine(launcher, request.param)) as (engine,):
        yield engine, launcher


def test_an_audio_model_answers_the_probe(vllm_on_host: tuple[EngineProcess, VllmServer], tmp_path: Path) -> None:
    """Whisper receives silence, Voxtral text. A refused request would also pass, and is reported."""
    node = kubelet(*vllm_on_host, tmp_path)
    node.wait(ready=True)
    node.stop()
    assert (True, "answered one request") in node.said, node.said


async def test_the_whisper_engine_detects_a_hanging_vllm_on_its_host(
    vllm_on_host: tuple[EngineProcess, VllmServer],
) -> None:
    engine, _ = vllm_on_host
    transcriber = VllmTranscriber(engine.url)
    running_ = asyncio.create_task(transcriber.run())
    async with asyncio.timeout(PATIENCE_S):
        await transcriber.wait_until_ready()
        before = engine.fetch_metrics()["vllm:generation_tokens_total"]
        await asyncio.sleep(15)
        assert not transcriber.is_stuck
        assert engine.fetch_metrics()["vllm:generation_tokens_total"] > before, "silence makes it generate"
        engine.suspend_engine_cores()
        try:
            began = time.monotonic()
            while not transcriber.is_stuck:
                await asyncio.sleep(0.1)
            stuck_s = time.monotonic() - began
        finally:
            engine.resume_processes()
        while transcriber.is_stuck:
            await asyncio.sleep(0.1)
    running_.cancel()
    print(f"stuck after {stuck_s:.1f} s")
    assert stuck_s < UNREADY_WITHIN_S + 5
