"""Publishing to CloudWatch (moto) and Prometheus in bounded memory."""

import asyncio
import contextlib
import os
import runpy
import signal
import socket
import sys
import time
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from botocore.exceptions import EndpointConnectionError
from botocore.stub import Stubber
from moto import mock_aws
from pydantic import ValidationError

from images.telemetry.tests.stand_ins import control_socket, counters
from voice_blueprint.contract.metrics import METRICS, NAMESPACE
from voice_runtime.store import StoreSettings
from voice_sandbox.loopback import find_free_port
from voice_telemetry import __main__ as telemetry
from voice_telemetry.__main__ import SourceReader, _create_cloudwatch_publisher, create_source, run
from voice_telemetry.cloudwatch import CloudWatchPublisher
from voice_telemetry.prometheus import LatestSampleCollector, start_server
from voice_telemetry.sample import Sample
from voice_telemetry.settings import Settings, SourceName
from voice_telemetry.sources import engine
from voice_telemetry.sources.dataplane import DataPlaneSource
from voice_telemetry.sources.engine import EngineSource
from voice_telemetry.sources.gpu import GpuSource
from voice_telemetry.sources.neuron import NeuronSource
from voice_telemetry.sources.nic import NicSource

DEPLOYMENT, FLEET = "production", "vad"


@pytest.fixture
def aws() -> Iterator[None]:
    with mock_aws():
        yield


@pytest.mark.usefixtures("aws")
async def test_values_are_published_in_the_declared_unit() -> None:
    cloud = boto3.client("cloudwatch", region_name="us-east-1")
    cloudwatch = CloudWatchPublisher(cloud, deployment=DEPLOYMENT, fleet=FLEET)
    cloudwatch.add([Sample("RxRingOccupancy", 5.0)])
    await cloudwatch.publish()
    now = datetime.now(UTC)
    statistics = cloud.get_metric_statistics(
        Namespace=NAMESPACE,
        MetricName="RxRingOccupancy",
        Dimensions=[{"Name": "Deployment", "Value": "production"}, {"Name": "Fleet", "Value": "vad"}],
        StartTime=now - timedelta(minutes=5),
        EndTime=now + timedelta(minutes=5),
        Period=60,
        Statistics=["Maximum"],
        Unit="Percent",
    )
    assert [point["Maximum"] for point in statistics["Datapoints"]] == [5.0]


async def test_values_are_buffered_during_a_cloudwatch_outage() -> None:
    sent: list[float] = []
    away = True

    class Away:
        def put_metric_data(self, **request: object) -> None:
            if away:
                raise EndpointConnectionError(endpoint_url="https://monitoring")
            assert isinstance(request["MetricData"], list)
            assert len(request["MetricData"]) <= 1000, "PutMetricData accepts no more"
            sent.extend(datum["Value"] for datum in request["MetricData"])

    cloudwatch = CloudWatchPublisher(Away(), deployment=DEPLOYMENT, fleet=FLEET, max_buffered=2500)  # type: ignore[arg-type]
    assert cloudwatch.calculate_next_pause_s(5) == 5
    for start in range(0, 3000, 500):
        cloudwatch.add([Sample("VadSessions", value) for value in range(start, start + 500)])
        await cloudwatch.publish()
    assert (cloudwatch.unsent_count, cloudwatch.lost_count) == (2500, 500)
    away = False
    await cloudwatch.publish()
    assert sent == list(range(500, 3000))
    assert cloudwatch.calculate_next_pause_s(5) == 5


@pytest.mark.parametrize(
    ("code", "status", "kept"),
    [
        ("InvalidParameterValue", 400, 0),
        ("RequestEntityTooLarge", 413, 0),
        ("RequestHeaderFieldsTooLarge", 431, 0),
        ("TooManyRequests", 429, 1),
        ("Throttling", 400, 1),
        ("ExpiredToken", 403, 1),
        ("InternalServiceFault", 500, 1),
        ("ServiceUnavailable", 503, 1),
    ],
)
async def test_refused_values_do_not_block_later_ones(code: str, status: int, kept: int) -> None:
    cloud = boto3.client("cloudwatch", region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="x")
    cloudwatch = CloudWatchPublisher(cloud, deployment=DEPLOYMENT, fleet=FLEET)
    with Stubber(cloud) as stub:
        stub.add_client_error("put_metric_data", code, http_status_code=status)
        cloudwatch.add([Sample("VadSessions", 1)])
        await cloudwatch.publish()
    assert (cloudwatch.unsent_count, cloudwatch.lost_count) == (kept, 1 - kept)


async def test_pauses_double_up_to_a_minute_while_cloudwatch_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("voice_telemetry.cloudwatch.random.uniform", lambda least, most: (least, most))
    cloud = boto3.client("cloudwatch", region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="x")
    cloudwatch = CloudWatchPublisher(cloud, deployment=DEPLOYMENT, fleet=FLEET)
    pauses: list[Any] = []
    cloudwatch.add([Sample("VadSessions", 1)])
    with Stubber(cloud) as stub:
        for _ in range(5):
            stub.add_client_error("put_metric_data", "InternalServiceFault", http_status_code=500)
            await cloudwatch.publish()
            pauses.append(cloudwatch.calculate_next_pause_s(5))
    assert pauses == [(5, 10), (10, 20), (20, 40), (30, 60), (30, 60)]


async def test_each_batch_is_sent_once_per_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library would repeat a request within the pause."""
    requests = 0

    async def fail(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal requests
        await reader.readuntil(b"\r\n\r\n")
        requests += 1
        writer.write(b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(fail, "127.0.0.1", 0) as server:
        for name, value in (("ENDPOINT_URL", f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"),
                            ("ACCESS_KEY_ID", "x"), ("SECRET_ACCESS_KEY", "x")):  # fmt: skip
            monkeypatch.setenv(f"AWS_{name}", value)
        cloudwatch = _create_cloudwatch_publisher(Settings(**OWN | {"prometheus_port": 9400}))  # type: ignore[arg-type]
        cloudwatch.add([Sample("VadSessions", 1)])
        await cloudwatch.publish()
    assert (requests, cloudwatch.unsent_count) == (1, 1)


def test_the_publisher_needs_no_type_stubs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The image does not contain them."""
    monkeypatch.setitem(sys.modules, "types_boto3_cloudwatch", None)
    monkeypatch.delitem(sys.modules, "voice_telemetry.cloudwatch")
    runpy.run_module("voice_telemetry.cloudwatch")


def scrape(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        return str(answer.read().decode())


def test_prometheus_exports_the_newest_values_until_they_expire() -> None:
    newest, port = LatestSampleCollector(deployment=DEPLOYMENT, fleet=FLEET), find_free_port()
    server = start_server(newest, port)
    now = time.time()
    newest.update([Sample("RxDropped", 4, "shed", now), Sample("VadSessions", 3, read_at=now)], now - 10)
    newest.update([Sample("RxDropped", 1, "shed", now), Sample("VadSessions", 2, read_at=now)], now - 10)
    shown = scrape(port)
    assert 'voice_rx_dropped_total{Deployment="production",Fleet="vad",Reason="shed"} 5.0' in shown, "between scrapes"
    assert 'voice_vad_sessions{Deployment="production",Fleet="vad"} 2.0' in shown
    newest.update([Sample("VadSessions", 9, read_at=now + 20)], now + 20)
    shown = scrape(port)
    server.shutdown()
    assert 'voice_vad_sessions{Deployment="production",Fleet="vad"} 9.0' in shown
    assert "voice_rx_dropped_total{" not in shown


def test_names_follow_prometheus_style() -> None:
    assert METRICS["RxRingOccupancy"].prometheus_name == "voice_rx_ring_occupancy"
    assert METRICS["RxDropped"].prometheus_name == "voice_rx_dropped_total"


async def program(**environment: str) -> asyncio.subprocess.Process:
    root = Path(__file__).parents[3]
    path = os.pathsep.join(str(root / part) for part in ("", "images/runtime/src", "images/telemetry/src"))
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "voice_telemetry", stderr=asyncio.subprocess.PIPE,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": path, "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x",
             **environment},
    )  # fmt: skip


GOOD = {
    "VOICE_DEPLOYMENT": "production", "VOICE_FLEET": "vad", "VOICE_HOST": "i-1", "VOICE_REGION": "us-east-1",
    "VOICE_TELEMETRY_SOURCES": "dataplane", "VOICE_CONTROL_SOCKET": "/nowhere/control.sock",
    "VOICE_VALKEY_HOST": "127.0.0.1", "VOICE_VALKEY_PORT": "1", "VOICE_VALKEY_USER": "vad",
}  # fmt: skip
OWN = {key.removeprefix("VOICE_").lower(): value for key, value in GOOD.items() if "VALKEY" not in key}


@pytest.mark.parametrize("region", ["us-east-1", ""])
async def test_program_publishes_to_the_configured_target_and_stops(region: str, tmp_path: Path) -> None:
    port, called = find_free_port(), asyncio.Event()

    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        called.set()
        writer.close()

    async with (
        control_socket(tmp_path / "control.sock", [counters()] * 1000),
        await asyncio.start_server(hang_up, "127.0.0.1", 0) as cloudwatch,
    ):
        own = {
            "VOICE_REGION": region,
            "VOICE_PROMETHEUS_PORT": str(port),
            "VOICE_PUBLISH_EVERY_S": "0.1",
            "VOICE_CONTROL_SOCKET": str(tmp_path / "control.sock"),
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{cloudwatch.sockets[0].getsockname()[1]}",
        }
        process = await program(**GOOD | own)
        async with asyncio.timeout(60):
            while True:
                with contextlib.suppress(OSError):
                    if "voice_vad_sessions{" in await asyncio.to_thread(scrape, port):
                        break
                await asyncio.sleep(0.1)
            if region:
                await called.wait()
        process.send_signal(signal.SIGTERM)
        _, errors = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, errors.decode()
    assert called.is_set() is bool(region), "without a region CloudWatch is not called"


async def test_remaining_values_are_sent_before_the_end(tmp_path: Path) -> None:
    sent: list[object] = []

    class Client:
        def put_metric_data(self, **request: object) -> None:
            time.sleep(0.5)
            sent.append(request)

    often = {"read_every_s": 60, "publish_every_s": 60, "control_socket": tmp_path / "s", "prometheus_port": 9400}
    settings, stop = Settings(**OWN | often), asyncio.Event()  # type: ignore[arg-type]
    cloudwatch = CloudWatchPublisher(Client(), deployment=DEPLOYMENT, fleet=FLEET)  # type: ignore[arg-type]
    newest = LatestSampleCollector(deployment=DEPLOYMENT, fleet=FLEET)
    store = StoreSettings(host="127.0.0.1", port=1, user="vad")
    async with control_socket(tmp_path / "s", [counters()]), asyncio.timeout(60):
        running = asyncio.create_task(run(settings, store, cloudwatch, newest, stop))
        while not cloudwatch.unsent_count:
            await asyncio.sleep(0.01)
        stop.set()
        await running
    assert sent
    assert not cloudwatch.unsent_count


async def test_a_source_that_is_unavailable_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    readers = SourceReader({"dataplane": DataPlaneSource(tmp_path / "s")}, timeout_s=60)
    assert [await readers.read() for _ in range(3)] == [[], [], []]
    async with control_socket(tmp_path / "s", [counters()] * 2):
        assert all([await readers.read() for _ in range(2)])
    told = [record.getMessage() for record in caplog.records]
    assert [message.partition(":")[2].strip()[:14] for message in told] == ["the data plane", "answers again"]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (SourceName.DATAPLANE, DataPlaneSource),
        (SourceName.NIC, NicSource),
        (SourceName.NEURON, NeuronSource),
        (SourceName.GPU, GpuSource),
        (SourceName.ENGINE, EngineSource),
    ],
)
async def test_each_source_can_be_configured(name: SourceName, kind: type) -> None:
    settings = Settings(**OWN | {"prometheus_port": "9400"})  # type: ignore[arg-type]
    source = create_source(name, settings, StoreSettings(host="127.0.0.1", port=1, user="vad"))
    assert type(source) is kind
    await source.close()


@pytest.mark.parametrize(("name", "most"), [("read_every_s", 60), ("publish_every_s", 60), ("prometheus_port", 65535)])
def test_settings_have_limits(name: str, most: int) -> None:
    good = OWN | {"prometheus_port": "9400"}
    least = 1 if name == "prometheus_port" else 0.001
    for value in (least, most):
        assert getattr(Settings(**good | {name: value}), name) == value  # type: ignore[arg-type]
    for value in (0, most + 1):
        with pytest.raises(ValidationError, match=name):
            Settings(**good | {name: value})  # type: ignore[arg-type]


def test_values_are_read_each_second_and_published_each_five() -> None:
    settings = Settings(**OWN | {"prometheus_port": "9400"})  # type: ignore[arg-type]
    assert (settings.read_every_s, settings.publish_every_s) == (1, 5)
    assert settings.read_every_s > engine._ENGINE_TIMEOUT_S, "an engine that hangs costs its own values alone"


@pytest.mark.parametrize("name", ["deployment", "fleet", "host"])
def test_names_are_not_empty(name: str) -> None:
    Settings(**OWN | {"prometheus_port": "9400", name: "x"})  # type: ignore[arg-type]
    with pytest.raises(ValidationError, match=name):
        Settings(**OWN | {"prometheus_port": "9400", name: ""})  # type: ignore[arg-type]


async def test_missed_readings_are_skipped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clock, pauses, stop, gone = 100.0, list[float](), asyncio.Event(), list[float]()
    late = iter([0, 5, 0, 0])

    async def pause(_: asyncio.Event, seconds: float) -> None:
        nonlocal clock
        pauses.append(seconds)
        clock += seconds + next(late)
        if len(pauses) == 4:
            stop.set()

    monkeypatch.setattr(telemetry, "_sleep_until_stopped", pause)
    monkeypatch.setattr(telemetry, "time", SimpleNamespace(monotonic=lambda: clock, time=lambda: 1000.0))
    newest = LatestSampleCollector(deployment=DEPLOYMENT, fleet=FLEET)
    monkeypatch.setattr(newest, "update", lambda _, min_time: gone.append(min_time))
    settings = Settings(**OWN | {"prometheus_port": 9400, "control_socket": tmp_path / "none"})  # type: ignore[arg-type]
    await run(settings, StoreSettings(host="127.0.0.1", port=1, user="vad"), None, newest, stop)
    assert pauses == [1, 1, 0, 1]
    assert set(gone) == {990}, "values count for ten seconds"


async def test_a_port_in_use_ends_the_program() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        process = await program(**GOOD | {"VOICE_PROMETHEUS_PORT": str(other.getsockname()[1])})
        _, errors = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 1
    assert errors.decode().splitlines()[-1].startswith("cannot start: ")


@pytest.mark.parametrize(
    ("name", "value"),
    [("VOICE_TELEMETRY_SOURCES", "dataplane,tea"), ("VOICE_TELEMETRY_SOURCES", ""), ("VOICE_PROMETHEUS_PORT", "0")],
)
async def test_invalid_setting_is_rejected_with_its_name(name: str, value: str) -> None:
    process = await program(**(GOOD | {"VOICE_PROMETHEUS_PORT": "9400", name: value}))
    _, errors = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 2
    assert name in errors.decode()
    assert "Traceback" not in errors.decode()
