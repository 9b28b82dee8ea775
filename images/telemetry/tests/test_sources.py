"""Each source against a real socket, HTTP server, process or file; drivers against prepared answers."""

import asyncio
import contextlib
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from itertools import repeat
from pathlib import Path

import pytest
from pydantic import ValidationError
from redis.asyncio import Redis

from images.conftest import BUSY_TIMEOUT_S, StoreServer
from images.telemetry.tests.stand_ins import DATA, Driver, control_socket, counters, monitor
from voice_blueprint.contract.metrics import DataPlaneEvent, DropReason, LossReason, NetworkAllowance, StartPhase
from voice_blueprint.contract.network import Tier
from voice_runtime.hosts import Host, HostKind, HostRegistry
from voice_runtime.store import StoreSettings, connect
from voice_sandbox.loopback import find_free_port
from voice_telemetry.__main__ import SourceReader
from voice_telemetry.sample import Sample
from voice_telemetry.sources import SourceError, neuron
from voice_telemetry.sources.dataplane import DataPlaneSource
from voice_telemetry.sources.engine import EngineSource
from voice_telemetry.sources.gpu import GpuSource
from voice_telemetry.sources.neuron import NeuronSource


def values(samples: list[Sample]) -> dict[tuple[str, str], float]:
    return {(sample.name, sample.dimension_value): sample.value for sample in samples}


async def test_data_plane_counters_are_increments(tmp_path: Path) -> None:
    path = tmp_path / "s"
    drops = counters()["result"]["drops"]
    later = counters(
        drops=drops | {"shed": 9},
        vad={"frames": 1100, "silent_frames": 475, "stopped": 2},
        events={"ship": {"sent": 150}, "vad": {"traps": 2}},
    )
    async with control_socket(path, [counters(), later]) as asked:
        source = DataPlaneSource(path)
        first, second = values(await source.read()), values(await source.read())
    assert asked == [b'{"command": "counters"}\n'] * 2
    assert first == {
        ("RxRingOccupancy", ""): 37.5, ("VadSessions", ""): 12, ("VadStopped", ""): 0, ("SlotsTaken", ""): 75,
    }, "since when is not known yet"  # fmt: skip
    assert second["VadStopped", ""] == 2
    events = {part: value for (name, part), value in second.items() if name == "DataPlaneEvents"}
    assert events == dict.fromkeys(DataPlaneEvent, 0) | {DataPlaneEvent.SENT: 30, DataPlaneEvent.VAD_TRAPS: 2}
    assert second[("SilenceDropped", "")] == pytest.approx(75)
    assert {part: value for (name, part), value in second.items() if name == "RxDropped"} == {
        reason: 4 if reason is DropReason.SHED else 0 for reason in DropReason
    }


async def test_packets_shaped_by_ec2_are_reported_with_dpdk(tmp_path: Path) -> None:
    path = tmp_path / "s"
    ena = dict.fromkeys(NetworkAllowance, 7)
    told = [ena, ena | {NetworkAllowance.PACKETS: 70}, {}, ena]
    async with control_socket(path, [counters(events={"allowances": each} if each else {}) for each in told]):
        source = DataPlaneSource(path)
        read = [values(await source.read()) for _ in told]
    found = [{part: value for (name, part), value in one.items() if name == "AllowanceExceeded"} for one in read]
    assert found == [{}, dict.fromkeys(NetworkAllowance, 0) | {NetworkAllowance.PACKETS: 63}, {}, {}], (
        "since when is not known"
    )


async def test_a_burst_is_not_a_sustained_load(tmp_path: Path) -> None:
    path = tmp_path / "s"
    peaks = [100.0, *[40.0] * 9, 60.0]
    async with control_socket(path, [counters(rx_ring_percent=peak) for peak in peaks]):
        source = DataPlaneSource(path)
        told = [values(await source.read()).get(("RxRingSustained", "")) for _ in peaks]
    assert told == [None] * 9 + [40.0, 40.0]


async def test_restarted_data_plane_starts_counting_again(tmp_path: Path) -> None:
    path = tmp_path / "s"
    fresh = counters(drops={}, vad={"frames": 3, "silent_frames": 1, "stopped": 0})
    async with control_socket(path, [counters(), fresh]):
        source = DataPlaneSource(path)
        await source.read()
        assert ("RxDropped", "shed") not in values(await source.read())


async def test_an_idle_data_plane_reports_its_drops(tmp_path: Path) -> None:
    """Without frames there is no share of silence; a counter that starts again has no increment."""
    path = tmp_path / "s"
    before = {"late": 9}
    async with control_socket(path, [counters(drops=before), counters(drops={"late": 1, "shed": 4})]):
        source = DataPlaneSource(path)
        await source.read()
        told = values(await source.read())
    assert (told["RxDropped", "shed"], told["RxDropped", "late"]) == (4, 0)
    assert ("SilenceDropped", "") not in told


async def test_missing_or_refusing_data_plane_is_reported(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="not there"):
        await DataPlaneSource(tmp_path / "none").read()
    async with control_socket(tmp_path / "s", [{"ok": False, "error": "no"}]):
        with pytest.raises(SourceError, match="refuses"):
            await DataPlaneSource(tmp_path / "s").read()
    async with control_socket(tmp_path / "t", [{"ok": True, "result": {"sessions": "many"}}]):
        with pytest.raises(ValidationError):
            await DataPlaneSource(tmp_path / "t").read()


@asynccontextmanager
async def http(bodies: str | list[str], status: str = "200 OK") -> AsyncIterator[str]:
    """Serve one body, or several in turn."""
    turns = iter(bodies) if isinstance(bodies, list) else repeat(bodies)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        body = next(turns)
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}".encode())
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/metrics.json"


@pytest.fixture
async def engine_of(
    store: Redis, store_server: StoreServer, tmp_path: Path
) -> AsyncIterator[Callable[[str], Awaitable[EngineSource]]]:
    made: list[EngineSource] = []

    async def make(url: str) -> EngineSource:
        await HostRegistry(store, Tier.ASR).send_heartbeat(
            Host("i-1", HostKind.GPU, "10.0.0.1", 17, draining=False, slots=68)
        )
        made.append(EngineSource(url, connect(store_server.settings), "i-1", tmp_path / "phases"))
        return made[-1]

    yield make
    for engine in made:
        await engine.close()


async def test_queues_come_from_the_engine_and_slots_from_the_registry(
    engine_of: Callable[[str], Awaitable[EngineSource]],
) -> None:
    body = json.dumps(
        {"EncoderQueueDepth": 3, "DecoderQueueDepth": 1, "RealTimeFactor": None, "EngineStuck": 1, "other": 5}
    )
    async with http(body) as url:
        told = values(await (await engine_of(url)).read())
    assert told == {
        ("EncoderQueueDepth", ""): 3,
        ("DecoderQueueDepth", ""): 1,
        ("EngineStuck", ""): 1,
        ("FreeSlots", ""): 17,
        ("SlotsTaken", ""): 75,
    }


async def test_engine_losses_are_increments(engine_of: Callable[[str], Awaitable[EngineSource]]) -> None:
    counted = {"refused": {"full": 40, "unknown-session": 900}, "lost_chunks": 3, "partials_shed": 7}
    bodies = [
        json.dumps({"counters": counters})
        for counters in ({}, {"refused": {"unknown-session": 9}}, counted, {"lost_chunks": 1})
    ]
    told = []
    async with http(bodies) as url:
        engine = await engine_of(url)
        for _ in bodies:
            found = values(await engine.read())
            told.append({loss: found.get(("SpeechLost", loss)) for loss in LossReason})
    assert told == [
        dict.fromkeys(LossReason),
        dict.fromkeys(LossReason, 0),
        {LossReason.REFUSED: 40, LossReason.LOST_CHUNKS: 3, LossReason.ABANDONED: 0, LossReason.PARTIALS_SHED: 7},
        dict.fromkeys(LossReason, 0),
    ]


async def test_the_engine_is_reported_while_the_store_is_away(tmp_path: Path) -> None:
    """The client of the store retries for longer than a reading may take."""
    bodies = [json.dumps({"EngineStuck": 0, "counters": {"lost_chunks": count}}) for count in (0, 3)]
    away = StoreSettings(host="127.0.0.1", port=find_free_port(), user="default", tls=False)
    async with http(bodies) as url:
        engine = EngineSource(url, connect(away), "i-1", tmp_path / "phases")
        reader = SourceReader({"engine": engine}, timeout_s=1.0)
        told = [values(await reader.read()) for _ in bodies]
        await reader.close()
    assert [found.get(("EngineStuck", "")) for found in told] == [0, 0]
    assert told[1]["SpeechLost", LossReason.LOST_CHUNKS] == 3


@pytest.mark.parametrize(("body", "status"), [("{", "200 OK"), ("[]", "200 OK"), ("{}", "503 Service Unavailable")])
async def test_unresponsive_engine_is_reported(
    engine_of: Callable[[str], Awaitable[EngineSource]], body: str, status: str
) -> None:
    async with http(body, status) as url:
        engine = await engine_of(url)
        with pytest.raises(SourceError, match="engine"):
            await engine.read()


async def test_an_engine_that_hangs_is_reported_with_the_kind_of_error(
    engine_of: Callable[[str], Awaitable[EngineSource]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("voice_telemetry.sources.engine._ENGINE_TIMEOUT_S", 0.05)

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_server(hang, "127.0.0.1", 0) as server:
        engine = await engine_of(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/metrics.json")
        with pytest.raises(SourceError, match="ReadTimeout"):
            await engine.read()


async def test_start_is_reported_once_at_its_end(
    engine_of: Callable[[str], Awaitable[EngineSource]], tmp_path: Path
) -> None:
    phases = tmp_path / "phases"
    async with http("{}") as url:
        engine = await engine_of(url)
        phases.write_text("pull 30\nweights 12.5\n")
        assert "ColdStart" not in {sample.name for sample in await engine.read()}
        phases.write_text("pull 30\nweights 12.5\nnot a phase\nhalf\nwarm-up 4\n")
        told = values(await engine.read())
        again = values(await engine.read())
    assert {part: value for (name, part), value in told.items() if name == "ColdStart"} == {
        StartPhase.PULL: 30, StartPhase.WEIGHTS: 12.5, StartPhase.WARM_UP: 4
    }  # fmt: skip
    assert "ColdStart" not in {name for name, _ in again}


async def read_first(source: NeuronSource) -> list[Sample]:
    for _ in range(200):
        try:
            return await source.read()
        except SourceError:
            await asyncio.sleep(0.02)
    return await source.read()


async def test_neuron_cores_are_averaged(tmp_path: Path) -> None:
    line = json.dumps(json.loads((DATA / "neuron-monitor.json").read_text()))
    source = NeuronSource(monitor(tmp_path, f"test -s \"$2\" && echo garbage && echo '{line}' && exec sleep 60"))
    told = values(await read_first(source))
    await source.close()
    assert told == {("NeuronUtilization", ""): 70, ("NeuronHeadroom", ""): 30}


async def test_unused_neuron_cores_are_idle(tmp_path: Path) -> None:
    document = json.loads((DATA / "neuron-monitor.json").read_text())
    document["neuron_hardware_info"]["neuron_device_count"] = 2
    source = NeuronSource(monitor(tmp_path, f"echo '{json.dumps(document)}'; exec sleep 60"))
    told = values(await read_first(source))
    await source.close()
    assert told[("NeuronUtilization", "")] == 35


async def test_without_a_runtime_neuron_cores_are_not_reported(tmp_path: Path) -> None:
    document = json.loads((DATA / "neuron-monitor.json").read_text()) | {"neuron_runtime_data": []}
    source = NeuronSource(monitor(tmp_path, f"echo '{json.dumps(document)}'; exec sleep 60"))
    told = await read_first(source)
    await source.close()
    assert told == []
    assert source._process
    assert source._process.returncode is not None, "it still runs"


async def test_neuron_monitor_that_ends_is_started_again(tmp_path: Path) -> None:
    line = json.dumps(json.loads((DATA / "neuron-monitor.json").read_text()))
    source = NeuronSource(monitor(tmp_path, f"echo x >>{tmp_path}/starts; echo '{line}'"))
    for _ in range(3):
        await read_first(source)
        await asyncio.sleep(0.1)
    await source.close()
    assert len((tmp_path / "starts").read_text().split()) >= 2


async def test_the_configuration_of_neuron_monitor_is_in_a_private_folder(tmp_path: Path) -> None:
    """Another user's program on the machine has a separate one."""
    source = NeuronSource(
        monitor(tmp_path, f'stat -c "%a %n" "${{2%/*}}" >{tmp_path}/folder; echo "{{}}"; exec sleep 60')
    )
    await read_first(source)
    mode, folder = (tmp_path / "folder").read_text().split()
    await source.close()
    assert (mode, Path(folder).exists()) == ("700", False)


async def test_missing_neuron_monitor_is_reported(tmp_path: Path) -> None:
    source = NeuronSource(tmp_path / "none")
    with pytest.raises(SourceError, match="does not start"):
        await source.read()
    await source.close()


async def test_silent_neuron_monitor_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = json.dumps(json.loads((DATA / "neuron-monitor.json").read_text()))
    source = NeuronSource(monitor(tmp_path, f"echo '{line}'; exec sleep 60"))
    await read_first(source)
    monkeypatch.setattr(neuron, "_MAX_DOCUMENT_AGE_S", 1.1)
    await asyncio.sleep(1.2)
    with pytest.raises(SourceError, match="has not reported recently"):
        await source.read()
    await source.close()


@pytest.mark.parametrize(("age_s", "is_stale"), [(4.2, False), (5.1, True)])
async def test_a_document_of_neuron_monitor_counts_for_five_seconds(
    tmp_path: Path, age_s: float, *, is_stale: bool
) -> None:
    source = NeuronSource(monitor(tmp_path, "exec sleep 60"))
    document = neuron.MonitorOutput.model_validate_json((DATA / "neuron-monitor.json").read_text())
    source._latest = (asyncio.get_running_loop().time() - age_s, document)
    if is_stale:
        with pytest.raises(SourceError, match="has not reported recently"):
            await source.read()
    else:
        assert await source.read()
    await source.close()


async def test_one_gpu_has_activity_and_no_links() -> None:
    driver = Driver([{1: 83.0}])
    source = GpuSource(driver)
    assert await source.read() == [], "activity is between two samples"
    assert values(await source.read()) == {("GpuBusy", ""): 83}
    for _ in range(50):
        await source.read()
    assert driver.live_samples == 1
    await source.close()
    assert driver.shutdowns == 1


async def test_a_driver_that_was_never_opened_is_not_closed() -> None:
    driver = Driver([])
    await GpuSource(driver).close()
    assert driver.shutdowns == 0


async def test_a_driver_that_hangs_occupies_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads are shared with the publisher, so a driver that occupied all of them would silence all metrics."""
    driver, works, entered = Driver([{1: 55.0}], gpm=False), threading.Event(), 0

    def hang() -> None:
        nonlocal entered
        entered += 1
        works.wait(BUSY_TIMEOUT_S)

    monkeypatch.setattr(driver, "nvmlInit", hang)
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(2))
    source, errors = GpuSource(driver), []
    try:
        for _ in range(4):
            with pytest.raises((TimeoutError, SourceError)) as raised:
                async with asyncio.timeout(0.05):
                    await source.read()
            errors.append(str(raised.value))
        await source.close()
        assert (driver.shutdowns, entered) == (0, 1)
        assert errors == ["", *["the driver does not respond"] * 3]
        async with asyncio.timeout(1):
            assert await asyncio.to_thread(int, "7") == 7
    finally:
        works.set()
    async with asyncio.timeout(BUSY_TIMEOUT_S):
        while True:
            with contextlib.suppress(SourceError):
                assert values(await source.read()) == {("GpuBusy", ""): 55}
                break
            await asyncio.sleep(0.01)


async def test_several_gpus_are_averaged_and_their_links_added() -> None:
    source = GpuSource(Driver([{1: 80.0, 60: 10.0, 61: 20.0}, {1: 40.0, 60: 30.0, 61: 40.0}]))
    await source.read()
    assert values(await source.read()) == {("GpuBusy", ""): 60, ("GpuLinkTraffic", ""): 100 * 2**20}


async def test_gpu_without_performance_monitor_reports_the_coarser_share() -> None:
    assert values(await GpuSource(Driver([{1: 55.0}], gpm=False)).read()) == {("GpuBusy", ""): 55}
    two = GpuSource(Driver([{1: 55.0}, {1: 45.0}], gpm=False))
    assert values(await two.read()) == {("GpuBusy", ""): 50, ("GpuLinkTraffic", ""): 0}


async def test_gpus_without_links_have_no_traffic() -> None:
    source = GpuSource(Driver([{1: 80.0}, {1: 40.0}]))
    await source.read()
    assert values(await source.read()) == {("GpuBusy", ""): 60, ("GpuLinkTraffic", ""): 0}


async def test_gpu_without_driver_is_reported() -> None:
    with pytest.raises(SourceError, match="driver"):
        await GpuSource().read()


def test_sample_without_an_alarm_dimension_is_rejected() -> None:
    with pytest.raises(ValueError, match="no metric"):
        Sample("RxDroped", 1)
    with pytest.raises(ValueError, match="Reason"):
        Sample("RxDropped", 1)
    with pytest.raises(ValueError, match="dimensions"):
        Sample("GpuBusy", 1, "x")
