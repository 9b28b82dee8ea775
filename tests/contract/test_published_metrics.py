"""Real programs publish exactly the metrics of the contract, with the dimensions that alarms read.

Gateway, engine and agent are real. Telemetry reads the real engine, and fakes of the data plane, neuron-monitor and the
GPU driver; images/vad-dataplane/tests/e2e tests the real data plane.
"""

import asyncio
import contextlib
import itertools
import json
import re
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import boto3
import pytest
import websockets
from moto import mock_aws
from redis.asyncio import Redis

from images.agent.tests.conftest import running_agent, serving, silence, speech
from images.agent.tests.engines import Engines
from images.conftest import StoreServer, until
from images.gateway.tests import synthetic
from images.gateway.tests.front_doors import door, localhost_certificate, server
from images.gateway.tests.running import GatewayProcess, Hosts, VadHost, holds
from images.telemetry.tests.stand_ins import DATA, Driver, control_socket, counters, monitor
from tests.synthesized import ROOT
from voice_blueprint.contract.images import Image
from voice_blueprint.contract.metrics import (
    METRICS,
    NAMESPACE,
    DataPlaneEvent,
    DropReason,
    LossReason,
    Metric,
    NetworkAllowance,
    StartPhase,
)
from voice_blueprint.contract.network import Tier
from voice_blueprint.engines.launch.vllm import LOG_PREFIX_BY_START_PHASE
from voice_runtime.metrics import Metrics
from voice_runtime.transcripts import EventKind, Transcript, TranscriptStore
from voice_sandbox.loopback import find_free_port
from voice_telemetry import __main__ as telemetry
from voice_telemetry.cloudwatch import CloudWatchPublisher
from voice_telemetry.prometheus import LatestSampleCollector
from voice_telemetry.settings import Settings, SourceName
from voice_telemetry.sources import nic
from voice_telemetry.sources.gpu import GpuSource

IMAGES = ROOT / "images"
sys.path.append(str(IMAGES / "whisper-engine/tests"))

from engine_host import EngineHost, chunks_of, finals, first_sentence, open_session  # noqa: E402

if TYPE_CHECKING:
    from types_boto3_cloudwatch import CloudWatchClient

DEPLOYMENT, FLEET = "test", "everything"
SSRC = 7


class Series(NamedTuple):
    """A metric as CloudWatch represents it."""

    namespace: str
    name: str
    dimensions: tuple[str, ...]


@dataclass(frozen=True)
class Published:
    """Metrics published by the programs.

    Attributes:
        by: Series published by each program.
        words: Values of further dimensions by metric, other than deployment and fleet.
    """

    by: dict[Image, set[Series]]
    words: dict[str, set[str]]


def differences(published: Published, declared: Iterable[Metric]) -> list[str]:
    """Return differences between the contract and the published metrics."""
    said = {(metric.publisher, Series(metric.namespace, metric.name, metric.dimensions)) for metric in declared}
    left = {(image, series) for image, found in published.by.items() for series in found}
    return [
        *(f"{image} does not publish {name} by {', '.join(by)}" for image, (_, name, by) in sorted(said - left)),
        *(f"{image} publishes {name} by {', '.join(by)}: not declared" for image, (_, name, by) in sorted(left - said)),
    ]


def start_phases() -> set[str]:
    """Return the names of a start's phases in a host's boot script and the engine's log."""
    script = (ROOT / "userdata/voice_userdata/steps/cold_start.sh").read_text(encoding="utf-8")
    return {*re.findall(r'(?:echo|print) "([a-z-]+)[ "]', script), *LOG_PREFIX_BY_START_PHASE}


@pytest.fixture
def cloud() -> Iterator["CloudWatchClient"]:
    with mock_aws():
        yield boto3.client("cloudwatch", region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="x")


@contextlib.asynccontextmanager
async def engine_after_session(store: Redis, server: StoreServer) -> AsyncIterator[EngineHost]:
    engine = EngineHost(server)
    try:
        engine.wait_until_ready()
        await open_session(store, SSRC)
        await engine.say(chunks_of(SSRC, first_sentence()))
        await finals(store, SSRC, 1)
        yield engine
    finally:
        engine.kill()


async def published_by_telemetry(
    cloud: "CloudWatchClient",
    engine: EngineHost,
    store: StoreServer,
    folder: Path,
    is_all: Callable[[set[Series]], bool],
) -> tuple[set[Series], dict[str, set[str]]]:
    """Run telemetry with every source until it has published all, for at most a minute; return CloudWatch's series."""
    (folder / "phases").write_text("".join(f"{phase} 1.5\n" for phase in start_phases()), encoding="utf-8")
    line = " ".join((DATA / "neuron-monitor.json").read_text(encoding="utf-8").split())
    settings = Settings(
        deployment=DEPLOYMENT,
        fleet=FLEET,
        host=engine.host,
        region="us-east-1",
        telemetry_sources=tuple(SourceName),
        prometheus_port=1,
        control_socket=folder / "s",
        engine_metrics_url=f"http://127.0.0.1:{engine.health_port}/metrics.json",
        neuron_monitor=monitor(folder, f"while echo '{line}'; do sleep 1; done"),
        start_phases=folder / "phases",
        publish_every_s=0.5,
    )
    answers = [counters(vad={"frames": 1000 + at, "silent_frames": 400, "stopped": 0}) for at in range(100)]
    sent, stop = CloudWatchPublisher(cloud, deployment=DEPLOYMENT, fleet=FLEET), asyncio.Event()
    newest = LatestSampleCollector(deployment=DEPLOYMENT, fleet=FLEET)
    async with control_socket(folder / "s", answers), asyncio.TaskGroup() as tasks:
        tasks.create_task(telemetry.run(settings, store.settings, sent, newest, stop))
        with contextlib.suppress(AssertionError):
            await holds("all is published", lambda: is_all(cloudwatch_series(cloud)[0]))
        stop.set()
    return cloudwatch_series(cloud)


def cloudwatch_series(cloud: "CloudWatchClient") -> tuple[set[Series], dict[str, set[str]]]:
    series: set[Series] = set()
    words: dict[str, set[str]] = {}
    pages = cloud.get_paginator("list_metrics").paginate()
    for each in (metric for page in pages for metric in page["Metrics"]):
        series.add(Series(each["Namespace"], each["MetricName"], tuple(one["Name"] for one in each["Dimensions"])))
        words.setdefault(each["MetricName"], set()).update(one["Value"] for one in each["Dimensions"][2:])
    return series, words


async def published_by_gateway(store: Redis, server: StoreServer) -> set[Series]:
    """Run a gateway with a complete call, including a transcript, and a refused one; return the series of its log."""
    rtp_port = find_free_port(socket.SOCK_DGRAM)
    vad, hosts = VadHost(rtp_port), Hosts(store)
    hosts.put(Tier.ASR, "asr-1")
    hosts.put(Tier.VAD, "vad-1")
    gateway, own_calls = GatewayProcess(server, rtp_port).start(), list[str]()
    try:
        with hosts.beating(server.settings):
            await (await gateway.ready()).accepts_callers()
            opened = await gateway.open()
            async with opened.socket() as connection:
                await connection.send(bytes(32_000))
                await holds("audio leaves", lambda: len(vad.packets) > 30)
                said = Transcript(kind=EventKind.FINAL, utterance=0, text="yes", start_ms=0, end_ms=400)
                assert await TranscriptStore(store).publish(opened.ssrc, said, 1)
                await holds("the transcript is seen", lambda: bool(gateway.metric("TimeToFinal")))
            assert await opened.close() == 204
            hosts.put(Tier.ASR, "asr-1", slots=0)
            await gateway.answers(503)
            async with synthetic.caller(gateway, server, own_calls) as own:
                assert not await own.make_call()
        gateway.terminate()
        assert gateway.wait() == 0
    finally:
        vad.stop()
        gateway.kill()
    return set(embedded_metric_series([*gateway.logged(), *map(json.loads, own_calls)]))


async def published_by_front_door(folder: Path) -> set[Series]:
    """Respond to a gateway's request to its public name, and return the series of its log."""
    certificate = localhost_certificate(folder)
    async with server(certificate, b"HTTP/1.1 200 OK\r\n\r\n") as port:
        front_door, lines = door(port, certificate)
        assert await front_door.check_hosts()
    front_door.metrics.flush()
    return set(embedded_metric_series(map(json.loads, lines)))


async def published_by_agent(store: Redis) -> set[Series]:
    """Run an agent with a caller, who interrupts it, and refuse another; return the series of its log."""
    engines, lines = Engines(), list[str]()
    engines.port, engines.spoken_s = find_free_port(), 60.0
    engines.finals, engines.answers = [(1900, "What is this?")], ["A long story of what this is."]
    async with serving(engines.app(), engines.port), running_agent(engines, store) as place:
        place.agent.metrics.cloudwatch = Metrics(DEPLOYMENT, FLEET, lines.append)
        async with place.call() as caller:
            await caller.send(speech(2.0))
            await caller.send(silence(1.5))
            await caller.until(lambda each: each.heard_s > 0)
            await until(lambda: b"voice_agent_turn_seconds_count 1.0" in place.agent.metrics.to_text())
            await caller.send(silence(0.2))
            await caller.send(speech(2.0))
            await caller.until(lambda each: each.interruptions == 2)
            with pytest.raises(websockets.InvalidStatus):
                await websockets.connect(f"ws{place.url[4:]}/v1/conversations")
            place.agent.metrics.flush(place.agent.conversation_count)
    return set(embedded_metric_series(map(json.loads, lines)))


def embedded_metric_series(lines: Iterable[dict[str, Any]]) -> Iterator[Series]:
    """Yield the series of log lines in CloudWatch's embedded metric format."""
    for line in lines:
        for directive in line.get("_aws", {}).get("CloudWatchMetrics", []):
            for metric in directive["Metrics"]:
                for names in directive["Dimensions"]:
                    assert {metric["Name"], *names} <= line.keys(), "CloudWatch drops what the line does not hold"
                    yield Series(directive["Namespace"], metric["Name"], tuple(names))


async def test_programs_publish_the_metrics_of_the_contract(
    cloud: "CloudWatchClient", store: Redis, store_server: StoreServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = Driver([{1: 80.0, 60: 10.0, 61: 20.0}, {1: 40.0, 60: 30.0, 61: 40.0}])
    monkeypatch.setattr(telemetry, "GpuSource", lambda: GpuSource(driver))
    readings = itertools.count()
    monkeypatch.setattr(nic, "find_default_interface", lambda: "ens5")
    monkeypatch.setattr(nic, "read_counters", lambda _: dict.fromkeys(NetworkAllowance, next(readings)))
    by_gateway = await published_by_gateway(store, store_server) | await published_by_front_door(tmp_path)
    by_agent = await published_by_agent(store)
    names = {metric.name for metric in METRICS.values() if metric.publisher is Image.TELEMETRY}
    async with engine_after_session(store, store_server) as engine:
        by_telemetry, words = await published_by_telemetry(
            cloud, engine, store_server, tmp_path, lambda found: names <= {each.name for each in found}
        )
    published = Published({Image.TELEMETRY: by_telemetry, Image.GATEWAY: by_gateway, Image.AGENT: by_agent}, words)

    assert differences(published, METRICS.values()) == []
    assert words["RxDropped"] == set(DropReason)
    assert words["SpeechLost"] == set(LossReason)
    assert words["DataPlaneEvents"] == set(DataPlaneEvent)
    assert words["AllowanceExceeded"] == set(NetworkAllowance)
    assert words["ColdStart"] == set(StartPhase)

    # A change of the contract alone is reported.
    planted = Metric("GpuTemperature", "None", Image.TELEMETRY, "Planted.", (Tier.ASR,))
    assert differences(published, [*METRICS.values(), planted]) == [
        "telemetry does not publish GpuTemperature by Deployment, Fleet"
    ]
    others = [metric for metric in METRICS.values() if metric.name != "OpenSockets"]
    assert differences(published, others) == ["gateway publishes OpenSockets by Deployment, Fleet: not declared"]
    moved = replace(METRICS["GpuBusy"], dimensions=(*METRICS["GpuBusy"].dimensions, "Gpu"))
    assert differences(published, [*(METRICS | {"GpuBusy": moved}).values()]) == [
        "telemetry does not publish GpuBusy by Deployment, Fleet, Gpu",
        "telemetry publishes GpuBusy by Deployment, Fleet: not declared",
    ]
    assert {each.namespace for each in by_telemetry | by_gateway | by_agent} == {NAMESPACE}


def test_the_gateway_publishes_no_undeclared_metric() -> None:
    """An undeclared name would stop the publishing of metrics at the next flush."""
    sources = (IMAGES / "gateway/src/voice_gateway").glob("*.py")
    named = {
        name
        for file in sources
        for name in re.findall(r'metrics\.(?:count|observe)\(\s*"(\w+)"', file.read_text(encoding="utf-8"))
    }
    assert named == {metric.name for metric in METRICS.values() if metric.publisher is Image.GATEWAY}
