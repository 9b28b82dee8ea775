"""To CloudWatch (moto's) and to Prometheus, in bounded memory."""

import asyncio
import os
import signal
import sys
import time
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import boto3
import pytest
from botocore.exceptions import EndpointConnectionError
from botocore.stub import Stubber
from moto import mock_aws

from blueprint.contract.metrics import METRICS, NAMESPACE
from images.conftest import free_port
from voice_telemetry.cloudwatch import MOST_IN_A_CALL, CloudWatch
from voice_telemetry.prometheus import Newest, serve
from voice_telemetry.sample import Sample

DEPLOYMENT, FLEET = "production", "vad"


@pytest.fixture
def aws() -> Iterator[None]:
    with mock_aws():
        yield


@pytest.mark.usefixtures("aws")
async def test_values_arrive_in_the_unit_that_is_declared() -> None:
    cloud = boto3.client("cloudwatch", region_name="us-east-1")
    cloudwatch = CloudWatch(cloud, deployment=DEPLOYMENT, fleet=FLEET)
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


async def test_values_wait_while_cloudwatch_is_away_and_go_in_order() -> None:
    sent: list[float] = []
    away = True

    class Away:
        def put_metric_data(self, **request: object) -> None:
            if away:
                raise EndpointConnectionError(endpoint_url="https://monitoring")
            assert isinstance(request["MetricData"], list)
            assert len(request["MetricData"]) <= MOST_IN_A_CALL
            sent.extend(datum["Value"] for datum in request["MetricData"])

    cloudwatch = CloudWatch(Away(), deployment=DEPLOYMENT, fleet=FLEET, most_kept=2500)  # type: ignore[arg-type]
    pauses = []
    for start in range(0, 3000, 500):
        cloudwatch.add([Sample("VadSessions", value) for value in range(start, start + 500)])
        await cloudwatch.publish()
        pauses.append(cloudwatch.pause_s(5))
    assert (cloudwatch.waiting, cloudwatch.lost) == (2500, 500)
    assert pauses[0] >= 5
    assert max(pauses) <= 60
    away = False
    await cloudwatch.publish()
    assert sent == list(range(500, 3000))
    assert cloudwatch.pause_s(5) == 5


@pytest.mark.parametrize(
    ("code", "status", "kept"),
    [
        ("InvalidParameterValue", 400, 0),
        ("Throttling", 400, 1),
        ("ExpiredToken", 403, 1),
        ("InternalServiceFault", 500, 1),
    ],
)
async def test_refused_values_do_not_block_those_behind_them(code: str, status: int, kept: int) -> None:
    cloud = boto3.client("cloudwatch", region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="x")
    cloudwatch = CloudWatch(cloud, deployment=DEPLOYMENT, fleet=FLEET)
    with Stubber(cloud) as stub:
        stub.add_client_error("put_metric_data", code, http_status_code=status)
        cloudwatch.add([Sample("VadSessions", 1)])
        await cloudwatch.publish()
    assert (cloudwatch.waiting, cloudwatch.lost) == (kept, 1 - kept)


def scrape(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        return str(answer.read().decode())


def test_prometheus_has_the_newest_values_and_forgets_old_ones() -> None:
    newest, port = Newest(deployment=DEPLOYMENT, fleet=FLEET), free_port()
    server = serve(newest, port)
    now = time.time()
    newest.keep([Sample("RxDropped", 4, "shed", now), Sample("VadSessions", 3, read_at=now)], now - 10)
    newest.keep([Sample("RxDropped", 1, "shed", now), Sample("VadSessions", 2, read_at=now)], now - 10)
    shown = scrape(port)
    assert 'voice_rx_dropped_total{Deployment="production",Fleet="vad",Reason="shed"} 5.0' in shown, "between scrapes"
    assert 'voice_vad_sessions{Deployment="production",Fleet="vad"} 2.0' in shown
    newest.keep([Sample("VadSessions", 9, read_at=now + 20)], now + 10)
    shown = scrape(port)
    server.shutdown()
    assert 'voice_vad_sessions{Deployment="production",Fleet="vad"} 9.0' in shown
    assert "voice_rx_dropped_total{" not in shown


def test_names_follow_prometheus_style() -> None:
    assert METRICS["RxRingOccupancy"].series == "voice_rx_ring_occupancy"
    assert METRICS["RxDropped"].series == "voice_rx_dropped_total"


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


@pytest.mark.parametrize("region", ["us-east-1", ""])
async def test_program_serves_prometheus_and_stops_when_told(region: str) -> None:
    port = free_port()
    # Nobody listens there: CloudWatch is away all the time. Without a region nobody asks for it.
    away = f"http://127.0.0.1:{free_port()}"
    told = {**GOOD, "VOICE_REGION": region, "VOICE_PROMETHEUS_PORT": str(port), "AWS_ENDPOINT_URL": away}
    process = await program(**told)
    for _ in range(300):
        try:
            await asyncio.to_thread(scrape, port)
            break
        except OSError:
            await asyncio.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    _, errors = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, errors.decode()
    assert b"the data plane is not there" in errors


@pytest.mark.parametrize(
    ("name", "value"),
    [("VOICE_TELEMETRY_SOURCES", "dataplane,tea"), ("VOICE_TELEMETRY_SOURCES", ""), ("VOICE_PROMETHEUS_PORT", "0")],
)
async def test_wrong_setting_is_refused_with_its_name(name: str, value: str) -> None:
    process = await program(**(GOOD | {"VOICE_PROMETHEUS_PORT": "9400", name: value}))
    _, errors = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 2
    assert name in errors.decode()
    assert "Traceback" not in errors.decode()
