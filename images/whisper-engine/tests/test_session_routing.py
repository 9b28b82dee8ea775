"""Routing of datagrams to sessions, one step at a time, with stand-ins for the store and a clock of its own."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from unittest.mock import AsyncMock, Mock

import numpy as np
import pytest

from images.conftest import BUSY_TIMEOUT_S, until
from voice_blueprint.contract.chunk import CHUNK_SAMPLES, ChunkFlag, ChunkKind
from voice_runtime import tasks
from voice_runtime.chunk import AudioChunk
from voice_runtime.sessions import Session, SessionKind, SessionState
from voice_whisper import admission as admission_module
from voice_whisper.admission import Admission
from voice_whisper.counters import Counters

SSRC = 7
SOURCE = "10.0.0.1"


class Clock:
    """A clock that tests advance. It counts from the boot of the machine, which may be recent."""

    now = 0.5

    def monotonic(self) -> float:
        return self.now


class Store:
    """Records of sessions; without permission, a look-up does not end."""

    def __init__(self) -> None:
        self.records: dict[int, Session] = {}
        self.asked: Counter[int] = Counter()
        self.answers = asyncio.Event()
        self.answers.set()
        self.mark_refused, self.clear_refusal = AsyncMock(), AsyncMock()

    async def read(self, ssrc: int) -> Session | None:
        self.asked[ssrc] += 1
        await self.answers.wait()
        return self.records.get(ssrc)


class Live:
    """A session that keeps the chunks it receives."""

    def __init__(self, record: Session, _: object, *, transcribed_until: int) -> None:
        self.record, self.transcribed_until = record, transcribed_until
        self.received: list[int] = []
        self.restore, self.drop = AsyncMock(), Mock()

    def add_chunk(self, chunk: AudioChunk, datagram: bytes) -> None:
        assert datagram == chunk.to_datagram()
        self.received.append(chunk.sequence)


class Host:
    """The sessions of a host and its stand-ins."""

    def __init__(self, slots: int) -> None:
        self.store, self.journal, self.counters = Store(), AsyncMock(), Counters()
        self.transcripts = SimpleNamespace(read_last_final=AsyncMock(return_value=None))
        self.transcriber = SimpleNamespace(supported_kinds=frozenset(ChunkKind), languages=("de",))
        services = SimpleNamespace(
            transcriber=self.transcriber, transcripts=self.transcripts, journal=self.journal, counters=self.counters
        )
        self.admission = Admission(slots, self.store, services)  # type: ignore[arg-type]

    def receive(self, ssrc: int = SSRC, *, sequence: int = 0, source: str = SOURCE) -> None:
        self.admission.receive(datagram_of(ssrc, sequence), source)

    def live(self, ssrc: int = SSRC) -> Live:
        found = self.admission.live_sessions[ssrc]
        assert isinstance(found, Live)
        return found

    def put_live(self, *ssrcs: int) -> None:
        for ssrc in ssrcs:
            session: object = Live(record_of(ssrc), None, transcribed_until=0)
            self.admission.live_sessions[ssrc] = session  # type: ignore[assignment]


def datagram_of(ssrc: int = SSRC, sequence: int = 0) -> bytes:
    return AudioChunk(ssrc, sequence, ChunkFlag(0), np.zeros(CHUNK_SAMPLES, "<i2")).to_datagram()


def record_of(ssrc: int, **more: object) -> Session:
    fixed = {"id": f"s{ssrc}", "state": SessionState.OPEN, "kind": SessionKind.GATEWAY, "caller": "c", "expires_at": 9}
    return Session(**{"ssrc": ssrc, **fixed, **more})  # type: ignore[arg-type]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(admission_module, "time", found)
    return found


@pytest.fixture(autouse=True)
def live_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission_module, "LiveSession", Live)


@asynccontextmanager
async def running(host: Host) -> AsyncIterator[None]:
    """Look up sessions during the context, without pauses."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(admission_module, "MAX_LOOKUPS_PER_S", 1_000_000)
        task = asyncio.create_task(host.admission.run())
        try:
            yield
        finally:
            await tasks.cancel_tasks([task])


def after(event: asyncio.Event) -> Callable[[int], Awaitable[None]]:
    async def wait(_: int) -> None:
        await event.wait()

    return wait


async def settle() -> None:
    """Let tasks continue that wait for nothing else."""
    for _ in range(20):
        await asyncio.sleep(0.001)


async def test_chunks_before_the_lookup_are_delivered_in_order() -> None:
    host = Host(1)
    host.store.records[SSRC] = record_of(SSRC)
    assert host.admission.is_empty
    for sequence in (0, 5, 10):
        host.receive(sequence=sequence)
    assert not host.admission.is_empty, "chunks wait for the look-up"
    async with running(host):
        await until(lambda: host.admission.live_sessions)
        host.receive(sequence=15)
    assert host.live().received == [0, 5, 10, 15]
    assert host.store.asked == {SSRC: 1}
    assert host.counters.refused == {}
    assert host.counters.events == {"chunks": 4}
    host.journal.acquire.assert_awaited_once_with(SSRC)
    host.live().restore.assert_awaited_once_with()
    host.store.clear_refusal.assert_not_awaited()


async def test_each_rejected_datagram_is_counted_once() -> None:
    host = Host(1)
    host.transcriber.supported_kinds = frozenset({ChunkKind.LOG_MEL})
    host.receive()
    host.admission.receive(b"short", SOURCE)
    host.admission.receive(b"", SOURCE)
    assert host.counters.malformed == {"wrong-length": 2}
    assert host.counters.refused == {"wrong-kind": 1}
    assert host.counters.events == {"chunks": 1}
    assert host.admission.is_empty
    assert host.admission.languages == ("de",)


async def test_an_unknown_session_is_looked_up_again_after_five_seconds(clock: Clock) -> None:
    host = Host(1)
    async with running(host):
        host.receive()
        await until(lambda: host.counters.refused["unknown-session"] == 1)
        for later_s in (0.25, 4.5):
            clock.now += later_s
            host.receive()
        await settle()
        assert (host.store.asked[SSRC], host.counters.refused) == (1, {"unknown-session": 3})
        clock.now += 0.25
        host.store.records[SSRC] = record_of(SSRC)
        host.receive()
        await until(lambda: host.admission.live_sessions)
    assert host.counters.refused == {"unknown-session": 3}


async def test_a_full_host_reports_to_the_gateway_every_two_seconds(clock: Clock) -> None:
    host = Host(1)
    host.put_live(1)
    async with running(host):
        for later_s, reports in ((0, 1), (0.25, 1), (1.5, 1), (0.25, 2), (1.75, 2), (0.25, 3)):
            clock.now += later_s
            host.receive()
            await settle()
            assert host.store.mark_refused.await_count == reports
        assert host.counters.refused == {"full": 6}
        assert host.store.asked == {}
        host.admission.live_sessions.clear()
        host.store.records[SSRC] = record_of(SSRC, refused_at=1)
        host.receive()
        await until(lambda: host.store.clear_refusal.await_args)
    host.store.clear_refusal.assert_awaited_once_with(SSRC)
    assert host.live().received == [0]


async def test_a_refusal_that_cannot_be_reported_does_not_end_the_host() -> None:
    host = Host(0)
    host.store.mark_refused.side_effect = [OSError, None]
    async with running(host):
        for ssrc in (1, 2):
            host.receive(ssrc)
            reports = ssrc
            await until(lambda: host.store.mark_refused.await_count == reports)  # noqa: B023  at once


async def test_a_session_that_is_adopted_uses_its_slot_from_the_beginning() -> None:
    host, claims = Host(1), asyncio.Event()
    host.store.records = {ssrc: record_of(ssrc) for ssrc in (1, 2)}

    async def claim(_: int) -> bool:
        return await claims.wait()

    host.journal.claim_session.side_effect = claim
    async with running(host):
        adopting = asyncio.create_task(host.admission.adopt(1))
        await until(lambda: host.journal.claim_session.await_args)
        assert host.admission.free_slots == 0
        host.receive(2)
        await until(lambda: host.counters.refused)
        claims.set()
        await adopting
    assert list(host.admission.live_sessions) == [1]
    assert host.counters.refused == {"full": 1}


async def test_a_session_that_another_host_adopts_frees_its_slot() -> None:
    host = Host(1)
    host.journal.claim_session.return_value = False
    await host.admission.adopt(1)
    assert host.admission.free_slots == 1


async def test_a_session_uses_its_slot_from_its_admission() -> None:
    host, acquires = Host(1), asyncio.Event()
    host.store.records = {ssrc: record_of(ssrc) for ssrc in (1, 2)}
    host.journal.acquire.side_effect = after(acquires)
    async with running(host):
        host.receive(1)
        host.receive(2)
        await until(lambda: host.journal.acquire.await_args and host.counters.refused)
        assert host.admission.free_slots == 0
        assert host.counters.refused == {"full": 1}
        acquires.set()
        await until(lambda: host.admission.live_sessions)
    assert list(host.admission.live_sessions) == [1]
    assert host.journal.acquire.await_count == 1


async def test_a_closed_host_admits_no_new_sessions() -> None:
    host = Host(2)
    host.put_live(1)
    host.admission.is_closed = True
    host.receive(1)
    host.receive(2)
    assert host.counters.refused == {"draining": 1}
    assert host.live(1).received == [0]


async def test_ten_seconds_of_a_session_wait_for_the_store() -> None:
    host = Host(1)
    host.store.records[SSRC] = record_of(SSRC)
    chunks = 10 * 16_000 // CHUNK_SAMPLES
    for number in range(chunks + 2):
        host.receive(sequence=5 * number)
    assert host.counters.refused == {"too-many-held": 2}
    async with running(host):
        await until(lambda: host.admission.live_sessions)
    assert host.live().received == [5 * number for number in range(chunks)]


async def test_the_busiest_address_loses_its_oldest_lookup() -> None:
    """``docs/security.md``: 256 look-ups of unknown sessions wait."""
    host = Host(1000)
    for ssrc in range(256):
        host.receive(ssrc, source="10.0.0.2" if ssrc else "10.0.0.1")
    host.receive(1)
    assert host.counters.refused == {}
    host.receive(256, source="10.0.0.1")
    assert host.counters.refused == {"too-many-lookups": 2}, "session 1 had two chunks"
    async with running(host):
        await until(lambda: len(host.store.asked) == 256)
    assert host.store.asked.keys() == set(range(257)) - {1}


async def test_a_session_waits_for_its_lookup_only_once(clock: Clock) -> None:
    host = Host(0)
    for _ in range(2):
        host.receive()
        clock.now += 2
    async with running(host):
        await until(lambda: host.store.mark_refused.await_count)
        await settle()
    assert host.store.mark_refused.await_count == 1


async def test_lookups_leave_most_of_the_time_for_other_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look-up takes 0.2 ms, which is 5 % of the time between two of them: 250 per second in ``docs/security.md``."""
    host, pauses, sleep = Host(1000), list[float](), asyncio.sleep

    async def note(pause_s: float) -> None:
        pauses.append(pause_s)
        await sleep(0)

    for ssrc in range(10):
        host.receive(ssrc)
    monkeypatch.setattr(asyncio, "sleep", note)
    lookups = asyncio.create_task(host.admission.run())
    async with asyncio.timeout(BUSY_TIMEOUT_S):
        while host.counters.refused["unknown-session"] < 10:
            await sleep(0)
    await tasks.cancel_tasks([lookups])
    assert pauses == [pytest.approx(0.2e-3 / 0.05)] * 10


async def test_concurrent_lookups_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission_module, "MAX_LOOKUPS", 3)
    host = Host(10)
    host.store.answers.clear()
    async with running(host):
        for ssrc in range(3):
            host.receive(ssrc)
        await until(lambda: len(host.store.asked) == 3)
        host.receive(3)
        await settle()
        assert len(host.store.asked) == 3
        host.store.answers.set()
        await until(lambda: len(host.store.asked) == 4)


@pytest.mark.parametrize(("limit", "remembered"), [(2, [2, 3]), (3, [1, 2, 3])])
async def test_the_number_of_remembered_refusals_is_limited(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, limit: int, remembered: list[int]
) -> None:
    monkeypatch.setattr(admission_module, "MAX_REFUSED_SESSIONS", limit)
    host = Host(10)
    async with running(host):
        for ssrc in (1, 2, 3):
            host.receive(ssrc)
            count = ssrc
            await until(lambda: host.counters.refused["unknown-session"] == count)  # noqa: B023  at once
            clock.now += 0.1
        for ssrc in (3, 2, 1):
            host.receive(ssrc)
        await until(lambda: host.counters.refused["unknown-session"] == 6)
    assert [ssrc for ssrc in (1, 2, 3) if host.store.asked[ssrc] == 1] == remembered


@pytest.mark.parametrize(
    ("last_sequence", "last_final_end_ms", "transcribed_until"),
    [(-1, None, 0), (9, None, 10), (9, 200, 10), (9, 1000, 50), (99, 1000, 100), (-1, 1019, 50)],
)
async def test_a_session_continues_after_its_last_final(
    last_sequence: int, last_final_end_ms: int | None, transcribed_until: int
) -> None:
    """The final of a host that failed before it updated the record counts as well; frames have 20 ms."""
    host = Host(1)
    host.store.records[SSRC] = record_of(SSRC, last_transcribed_sequence=last_sequence)
    if last_final_end_ms is not None:
        host.transcripts.read_last_final.return_value = SimpleNamespace(end_ms=last_final_end_ms)
    async with running(host):
        host.receive()
        await until(lambda: host.admission.live_sessions)
    assert host.live().transcribed_until == transcribed_until


async def test_a_lost_session_is_counted_and_dropped_once() -> None:
    host = Host(2)
    host.put_live(1)
    dropped = host.live(1)
    for _ in range(2):
        host.admission.drop(1)
    dropped.drop.assert_called_once_with()
    assert host.counters.events == {"lost_leases": 1}
    assert host.admission.is_empty


async def test_a_host_is_empty_once_its_leases_are_released() -> None:
    host, releases = Host(2), asyncio.Event()
    host.put_live(1, 2)
    host.journal.release.side_effect = after(releases)
    assert not host.admission.is_empty
    releasing = [asyncio.create_task(host.admission.release(ssrc)) for ssrc in (1, 2)]
    await settle()
    assert not host.admission.live_sessions
    assert not host.admission.is_empty
    releases.set()
    await asyncio.gather(*releasing)
    assert host.admission.is_empty


async def test_a_host_is_empty_although_a_release_failed() -> None:
    host = Host(1)
    host.put_live(1)
    host.journal.release.side_effect = OSError
    with pytest.raises(OSError):  # noqa: PT011  the stand-in's
        await host.admission.release(1)
    assert host.admission.is_empty


@pytest.mark.parametrize(("is_own", "is_claimed"), [(True, False), (False, True), (False, False)])
async def test_an_orphan_is_adopted_if_its_claim_succeeds(is_own: bool, is_claimed: bool) -> None:
    """A host does not claim its own sessions, whose leases it still has."""
    host = Host(1)
    host.store.records[SSRC] = record_of(SSRC)
    host.journal.claim_session.return_value = is_claimed
    await (host.admission.adopt(SSRC, is_own=True) if is_own else host.admission.adopt(SSRC))
    is_adopted = is_own or is_claimed
    assert list(host.admission.live_sessions) == [SSRC] * is_adopted
    assert host.counters.events == ({"adopted": 1} if is_adopted else {})
    assert host.journal.claim_session.await_count == (not is_own)
    assert host.admission.is_empty is not is_adopted


async def test_chunks_during_an_adoption_are_delivered_after_it() -> None:
    host = Host(1)
    host.store.records[SSRC] = record_of(SSRC)
    host.store.answers.clear()
    async with running(host):
        adopting = asyncio.create_task(host.admission.adopt(SSRC, is_own=True))
        await until(lambda: host.store.asked[SSRC])
        host.receive(sequence=5)
        await settle()
        host.store.answers.set()
        await adopting
    assert host.live().received == [5]
    assert host.store.asked[SSRC] == 1


async def test_a_session_that_waits_for_its_lookup_is_not_adopted() -> None:
    host = Host(1)
    host.receive()
    await host.admission.adopt(SSRC)
    host.journal.claim_session.assert_not_awaited()
    host.store.records[SSRC] = record_of(SSRC)
    async with running(host):
        await until(lambda: host.admission.live_sessions)
    assert host.live().received == [0]


async def test_a_live_session_is_not_adopted_again() -> None:
    host = Host(3)
    host.put_live(SSRC)
    live = host.live()
    host.store.records[SSRC] = record_of(SSRC)
    await host.admission.adopt(SSRC, is_own=True)
    assert host.live() is live
    assert host.counters.events == {}


@pytest.mark.parametrize(("slots", "is_closed"), [(1, False), (2, True)])
async def test_a_full_or_closed_host_adopts_no_session(slots: int, is_closed: bool) -> None:
    host = Host(slots)
    host.put_live(1)
    host.admission.is_closed = is_closed
    host.store.records[SSRC] = record_of(SSRC)
    await host.admission.adopt(SSRC)
    host.journal.claim_session.assert_not_awaited()
    assert list(host.admission.live_sessions) == [1]
