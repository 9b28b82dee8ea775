"""The telemetry image's reader, against the program that it reads in production."""

import asyncio
from pathlib import Path

from audio import silence, speech
from running import Caller, DataPlane, wait_for

from voice_blueprint.contract.images import Image
from voice_blueprint.contract.metrics import METRICS, DataPlaneEvent, NetworkAllowance
from voice_blueprint.contract.network import Tier
from voice_telemetry.sources.dataplane import SUSTAINED_READING_COUNT
from voice_telemetry.sources.dataplane import DataPlaneSource as Reader


def test_the_publisher_reads_the_programs_counters(plane: DataPlane, caller: Caller) -> None:
    reader = Reader(plane.control)

    def read() -> dict[tuple[str, str], float]:
        return {(sample.name, sample.dimension_value): sample.value for sample in asyncio.run(reader.read())}

    assert {name for name, _ in read()} == {"RxRingOccupancy", "VadSessions", "VadStopped", "SlotsTaken"}, (
        "nothing is known of before"
    )
    for _ in range(SUSTAINED_READING_COUNT - 2):  # with the first and the last
        read()
    caller.say(silence(6) + speech() + silence(3))
    caller.is_taken()
    caller.send(b"x")
    wait_for("it is counted", lambda: plane.drops()["not-rtp"] > 0)
    found = read()
    of_the_tier = {
        metric.name for metric in METRICS.values() if metric.publisher is Image.TELEMETRY and Tier.VAD in metric.tiers
    }
    of_the_interface = {"AllowanceExceeded"}  # another source
    assert {name for name, _ in found} == of_the_tier - of_the_interface
    counted = {f"{part}.{name}" for part, names in plane.ask("counters")["events"].items() for name in names}
    assert counted == set(DataPlaneEvent), "what is counted is published, and nothing else"
    assert found["DataPlaneEvents", DataPlaneEvent.SENT] > 0
    assert found["VadSessions", ""] == 1
    assert found["RxDropped", "not-rtp"] == plane.drops()["not-rtp"]
    assert 0 <= found["RxRingOccupancy", ""] <= 100
    assert found["SilenceDropped", ""] > 30, "nine seconds of silence beside one sentence"


def test_dpdks_driver_for_ena_has_the_counters_that_are_published() -> None:
    (driver, *_) = Path("/usr/lib").glob("*/librte_net_ena.so.*")
    words = driver.read_bytes().split(b"\0")
    assert {word.decode() for word in words if word.endswith(b"_allowance_exceeded")} == set(NetworkAllowance)
