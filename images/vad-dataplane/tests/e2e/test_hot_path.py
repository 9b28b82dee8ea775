"""The audio threads allocate no memory and take no lock after warm-up."""

import os
import struct
import time
from dataclasses import dataclass
from pathlib import Path

import ffmpeg
import pytest
from audio import silence, speech
from network import QUEUES
from running import BUILD, AsrHost, Caller, DataPlane, Store, wait_for
from srtp import GCM_BYTES, master, text_of

from voice_runtime.media import MediaFormat

ROW = struct.Struct("<qqq")
PHONES = {3: MediaFormat.parse("111 opus/48000/2 20"), 4: MediaFormat.parse("96 L16/8000/1 40")}
COUNTING = BUILD.parent / "tests" / "libcounting.so"


@dataclass
class Counts:
    """Allocations and locks of a thread so far."""

    allocations: int
    locks: int


def counts(plane: DataPlane) -> dict[str, Counts]:
    """Return the counts of threads by name; a thread without a row has made neither."""
    assert plane.process
    rows = {thread: Counts(*done) for thread, *done in ROW.iter_unpack((plane.folder / "counts").read_bytes())}
    found: dict[str, Counts] = {}
    for thread in Path(f"/proc/{plane.process.pid}/task").iterdir():
        name, done = (thread / "comm").read_text().strip(), rows.get(int(thread.name), Counts(0, 0))
        before = found.get(name, Counts(0, 0))
        found[name] = Counts(before.allocations + done.allocations, before.locks + done.locks)
    return found


@pytest.fixture
def environment(plane: DataPlane) -> dict[str, str]:
    preloaded = f"{COUNTING} {plane.environment.get('LD_PRELOAD', '')}".strip()
    plane.environment |= {"LD_PRELOAD": preloaded, "VOICE_COUNTS_FILE": str(plane.folder / "counts")}
    return plane.environment


def run(store: Store, plane: DataPlane) -> tuple[dict[str, Counts], dict[str, Counts], int]:
    """Warm up the program, run every kind of audio event, and return the counts before and after."""
    key = master(1)
    host = AsrHost(store, plane.port("VOICE_CHUNK_PORT"))
    plane.start()
    plane.knows_host()
    sealing = master(1, GCM_BYTES)
    plain, secret, sealed = Caller(plane, 1), Caller(plane, 2, key=key), Caller(plane, 5, key=sealing)
    store.open_session(1)
    store.open_session(2, srtp_key=text_of(key))
    store.open_session(5, srtp_key=text_of(sealing))
    callers = (plain, secret, sealed)
    for ssrc, media in PHONES.items():
        store.open_session(ssrc, media=str(media))
        Caller(plane, ssrc).enter()
    said = speech() + silence(2)
    for who in callers:
        who.enter()
        who.say(said)
        who.is_taken()
    for ssrc, media in PHONES.items():
        ffmpeg.send(plane, ssrc, media, said)
    readings = plane.ask("counters")["events"]["registry"]["refreshes"]
    wait_for("the registry is read", lambda: plane.ask("counters")["events"]["registry"]["refreshes"] > readings)
    before, chunks = counts(plane), len(host.chunks)
    readings = plane.ask("counters")["events"]["registry"]["refreshes"]
    for who in callers:
        who.say(said)
        who.sequence += 3  # lost
        twice, forged = who.packet(said[:640]), who.packet(said[:640])
        for packet in (twice, twice, forged[:-1] + bytes([forged[-1] ^ 1]), forged[:11]):
            who.send(packet)
            time.sleep(0.002)
        who.say(silence(0.5))
    for ssrc, media in PHONES.items():
        ffmpeg.send(plane, ssrc, media, said, sequence=2000)
    wait_for("the last packets are taken", lambda: plane.ask("counters")["drops"]["unauthenticated"] > 0)
    wait_for("they are heard", lambda: len(host.chunks) >= chunks + 20)
    after = counts(plane)
    readings = plane.ask("counters")["events"]["registry"]["refreshes"] - readings
    host.die()
    return before, after, readings


@pytest.mark.usefixtures("environment")
def test_nothing_is_allocated_or_locked(store: Store, plane: DataPlane) -> None:
    before, after, readings = run(store, plane)
    assert readings, "the shipper was given hosts meanwhile"
    for thread in ("poller", "shipper"):
        assert after[thread] == before[thread]
    assert after["admission"] != before["admission"], "a thread that may allocate does"


@pytest.mark.parametrize("path", ["socket"], indirect=True, scope="session")
def test_an_allocation_and_a_lock_would_be_detected(
    store: Store, plane: DataPlane, environment: dict[str, str]
) -> None:
    environment["VOICE_COUNTS_CONTROL"] = "1"
    before, after, _ = run(store, plane)
    for thread in ("poller", "shipper"):
        assert after[thread].allocations > before[thread].allocations
        assert after[thread].locks > before[thread].locks


@pytest.mark.parametrize("path", ["af_xdp"], indirect=True, scope="session")
def test_idle_pollers_spin_only_on_spare_cores(plane: DataPlane) -> None:
    plane.start()
    before, begin = cpu_s(plane), time.monotonic()
    time.sleep(2)
    cores = (cpu_s(plane) - before) / (time.monotonic() - begin)
    assert (cores < QUEUES / 4) == ((os.cpu_count() or 1) <= QUEUES)


def cpu_s(plane: DataPlane) -> float:
    """Return the CPU seconds that the program has used."""
    assert plane.process
    stat = Path(f"/proc/{plane.process.pid}/stat").read_text()
    user, system = stat.rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
