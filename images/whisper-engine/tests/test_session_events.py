"""Events of one session, in a test that sets the clock, the engine's output and the store's answers."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from redis.exceptions import ConnectionError as StoreConnectionError

from voice_blueprint.contract.chunk import ChunkFlag, ChunkKind
from voice_runtime.chunk import AudioChunk
from voice_runtime.redaction import Redaction
from voice_runtime.sessions import Session, SessionKind, SessionState
from voice_runtime.transcripts import EventKind, Transcript
from voice_whisper import live_session
from voice_whisper.backends.base import Word
from voice_whisper.counters import Counters
from voice_whisper.job import JobFailedError, Priority, StaleJobError, WindowTranscript
from voice_whisper.live_session import LiveSession, SessionContext
from voice_whisper.utterance import Utterance

SSRC = 7
START, END = ChunkFlag.START_OF_SPEECH, ChunkFlag.END_OF_SPEECH
COMMIT, LAST = ChunkFlag.COMMIT, ChunkFlag.LAST
MARK = START | END | ChunkFlag.SILENCE
PROCESSING_S = 0.5
GAP_BASE = 2**31
Reply = WindowTranscript | Exception


@dataclass
class Host:
    """What a session uses of its host: an engine, a store and a journal.

    Attributes:
        reply: Engine's answer to an utterance.
        is_free: Set while the engine answers.
        events: Published events with their numbers.
        new: Whether the store has not seen the events before.
        marked: Progress written to the session's record.
        lost_ms: Lost audio written to the session's record.
        entries: The session's journal.
        deleted: Deleted entries of the journal.
        batched: Sequences of the chunks for the journal.
    """

    now: float = 1000.0
    reply: Callable[[Utterance], Reply] = lambda _: said()
    is_free: asyncio.Event = field(default_factory=asyncio.Event)
    asked: list[Priority] = field(default_factory=list)
    cancelled: list[Priority] = field(default_factory=list)
    events: list[tuple[Transcript, int]] = field(default_factory=list)
    new: bool = True
    broken: bool = False
    marked: list[tuple[int, int, int]] = field(default_factory=list)
    lost_ms: list[int] = field(default_factory=list)
    entries: list[tuple[str, bytes]] = field(default_factory=list)
    deleted: list[list[str]] = field(default_factory=list)
    batched: list[int] = field(default_factory=list)
    counters: Counters = field(default_factory=Counters)
    record: Session | None = None
    queue_depths: tuple[int, int] = (0, 0)
    max_utterance_frames: int = 1400
    overlap_frames: int = 100

    async def transcribe(
        self, utterance: Utterance, _language: str | None, priority: Priority, _prompt: str
    ) -> WindowTranscript:
        self.asked.append(priority)
        reply = self.reply(utterance)
        try:
            await self.is_free.wait()
        except asyncio.CancelledError:
            self.cancelled.append(priority)
            raise
        if isinstance(reply, Exception):
            raise reply
        return reply

    async def publish(self, ssrc: int, transcript: Transcript, number: int) -> bool:
        assert ssrc == SSRC
        if self.broken:
            raise StoreConnectionError("no store")
        self.events.append((transcript, number))
        return self.new

    async def mark_transcribed(self, _ssrc: int, sequence: int, chunks: int, characters: int) -> None:
        self.marked.append((sequence, chunks, characters))

    async def add_lost_audio(self, _ssrc: int, milliseconds: int) -> None:
        self.lost_ms.append(milliseconds)

    async def read_entries(self, _ssrc: int) -> list[tuple[str, bytes]]:
        return self.entries

    async def delete(self, _ssrc: int, entries: list[str]) -> None:
        self.deleted.append(entries)

    def add(self, _ssrc: int, _utterance: Utterance, chunk: AudioChunk, _datagram: bytes) -> None:
        self.batched.append(chunk.sequence)

    async def flush(self) -> None:
        pass

    async def read(self, _ssrc: int) -> Session | None:
        if self.broken:
            raise StoreConnectionError("no store")
        return self.record

    def begin(self, *, transcribed_until: int = 0, **fields: Any) -> LiveSession:
        record = Session(SSRC, "s7", SessionState.OPEN, SessionKind.GATEWAY, "caller", 0)
        self.record = replace(record, **{"end_of_turn_ms": 0, **fields})
        host: Any = self
        services = SessionContext(host, host, host, host, self.counters, host)
        return LiveSession(self.record, services, transcribed_until=transcribed_until)

    def of(self, kind: EventKind) -> list[Transcript]:
        return [event for event, _ in self.events if event.kind is kind]

    @property
    def kinds(self) -> list[EventKind]:
        return [event.kind for event, _ in self.events]


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Host:
    found = Host()
    found.is_free.set()
    monkeypatch.setattr(live_session, "time", SimpleNamespace(monotonic=lambda: found.now))
    return found


def said(*words: tuple[str, float, float], text: str = "", **stages_ms: float) -> WindowTranscript:
    """Return a transcript of words with their times in the transcribed audio."""
    heard = tuple(Word(f" {word}", begin, end, 0.9) for word, begin, end in words)
    return WindowTranscript(
        text or " ".join(word for word, _, _ in words),
        "en",
        stages_ms,
        PROCESSING_S,
        heard,
    )


def chunk(sequence: int, flags: int = 0, number: int = 0, frames: int = 5) -> AudioChunk:
    """Return a chunk whose level differs from that of its neighbours, unlike that of stationary noise."""
    level = 1000 if sequence // 5 % 2 else 1
    return AudioChunk(
        SSRC,
        sequence,
        ChunkFlag(flags),
        np.full(frames * 320, level, np.int16),
        number,
    )


def speech(first: int, frames: int, number: int = 0, end: int = END) -> list[AudioChunk]:
    chunks = [chunk(first + at, 0, number + at // 5, min(5, frames - at)) for at in range(0, frames, 5)]
    chunks[0] = replace(chunks[0], flags=chunks[0].flags | START)
    chunks[-1] = replace(chunks[-1], flags=chunks[-1].flags | end)
    return chunks


async def settle() -> None:
    """Run the tasks until they wait for the test."""
    for _ in range(20):
        await asyncio.sleep(0)


async def hear(session: LiveSession, *chunks: AudioChunk) -> None:
    for each in chunks:
        session.add_chunk(each, each.to_datagram())
        await settle()


async def tick(session: LiveSession, host: Host, seconds: float) -> None:
    host.now += seconds
    session.start_due_transcripts()
    await settle()


def times(events: Iterable[Transcript]) -> list[tuple[int, int]]:
    return [(event.start_ms, event.end_ms) for event in events]


async def test_events_of_an_utterance_have_its_times_and_order(host: Host) -> None:
    host.reply = lambda _: said(("Yes.", 0.1, 0.3))
    session = host.begin()
    await hear(session, *speech(50, 20))
    assert [(event.kind, event.utterance, event.start_ms, event.end_ms) for event, _ in host.events] == [
        (EventKind.SPEECH_STARTED, 50, 1000, 1000),
        (EventKind.SPEECH_STOPPED, 50, 1400, 1400),
        (EventKind.FINAL, 50, 1000, 1400),
    ]
    final = host.events[-1][0]
    assert (final.text, final.language, final.commit, final.speech_final) == (
        "Yes.",
        "en",
        False,
        True,
    )
    (word,) = final.words
    assert (word.text, word.start_ms, word.end_ms, word.confidence) == (
        "Yes.",
        1100,
        1300,
        0.9,
    )
    assert not session.is_busy


async def test_a_final_is_counted_and_recorded_with_its_session(host: Host) -> None:
    host.reply = lambda _: said(("Yes.", 0.1, 0.3))
    session = host.begin()
    chunks = speech(50, 20)
    await hear(session, *chunks)
    assert host.batched == [50, 55, 60, 65]
    assert host.marked == [(65, 4, 4)]
    assert host.deleted == [[]]
    assert host.counters.events == {"lost_chunks": 0, "finals": 1}
    assert host.counters.calculate_real_time_factor(host.now) == PROCESSING_S / 0.4


async def test_a_final_of_another_host_is_counted_as_such(host: Host) -> None:
    """Its characters are counted by that host."""
    host.reply, host.new = lambda _: said(("Yes.", 0.1, 0.3)), False
    await hear(host.begin(), *speech(0, 20))
    assert host.marked == [(15, 4, 0)]
    assert (
        host.counters.events["finals"],
        host.counters.events["finals_of_others"],
    ) == (0, 1)


async def test_an_utterance_that_cannot_be_transcribed_has_an_empty_final(
    host: Host,
) -> None:
    host.reply = lambda _: JobFailedError("3 workers exited")
    await hear(host.begin(), *speech(0, 20), *speech(100, 20, number=4))
    assert [(event.text, event.language) for event in host.of(EventKind.FINAL)] == [
        ("", None),
        ("", None),
    ]
    assert host.counters.events["given_up"] == 2
    assert host.counters.calculate_real_time_factor(host.now) == 0


async def test_the_stages_of_a_final_start_with_the_time_since_its_last_chunk(
    host: Host,
) -> None:
    host.reply = lambda _: said(("Yes.", 0.1, 0.3), decode=12.34)
    session = host.begin(end_of_turn_ms=200)
    await hear(session, *speech(0, 20))
    await tick(session, host, 0.4)
    assert host.of(EventKind.FINAL)[0].stages_ms == {"ingest": 400.0, "decode": 12.3}


@pytest.mark.parametrize(("flags", "is_commit"), [(COMMIT, True), (LAST, False), (COMMIT | LAST, True)])
async def test_a_mark_during_silence_is_answered_if_a_transcript_was_requested(
    host: Host, flags: int, is_commit: bool
) -> None:
    session = host.begin()
    await hear(session, chunk(30, MARK | flags, 3, frames=0))
    kinds = [EventKind.GAP] + [EventKind.FINAL] * is_commit + [EventKind.END] * bool(flags & LAST)
    assert host.kinds == kinds
    assert host.events[0][1] == 0, "before the other events of its position"
    assert [event.commit for event in host.of(EventKind.FINAL)] == [True] * is_commit
    assert times(host.of(EventKind.END)) == [(620, 620)] * bool(flags & LAST)
    assert host.asked == []
    assert host.marked == [(30, 4, 0)]
    assert (
        host.counters.events["finals"],
        host.counters.events["finals_of_others"],
        host.counters.events["lost_chunks"],
    ) == (0, 0, 0)


async def test_the_last_utterance_of_a_session_is_followed_by_the_end(
    host: Host,
) -> None:
    await hear(host.begin(), *speech(0, 20, end=END | LAST))
    assert host.kinds == [
        EventKind.SPEECH_STARTED,
        EventKind.SPEECH_STOPPED,
        EventKind.FINAL,
        EventKind.END,
    ]
    assert times(host.of(EventKind.END)) == [(400, 400)]


async def test_losses_before_and_in_an_utterance_are_numbered_gaps(host: Host) -> None:
    """A loss before an utterance comes before all of its events, and one inside after its partials."""
    session = host.begin()
    first, second, _, fourth = speech(50, 20, number=3)
    await hear(session, first, second, fourth)
    assert host.kinds == [EventKind.GAP, EventKind.SPEECH_STARTED]
    await tick(session, host, 0.1)
    gaps = [(number, event) for event, number in host.events if event.kind is EventKind.GAP]
    assert [(number, event.utterance, event.start_ms, event.end_ms) for number, event in gaps] == [
        (0, 50, 0, 1000), (GAP_BASE + 10, 50, 1200, 1300),
    ]  # fmt: skip
    assert host.lost_ms == [1000, 100]
    assert host.counters.events["lost_chunks"] == 1
    assert host.kinds[2:] == [
        EventKind.GAP,
        EventKind.SPEECH_STOPPED,
        EventKind.FINAL,
    ]


async def test_a_loss_that_another_host_has_published_is_recorded_once(
    host: Host,
) -> None:
    host.new = False
    await hear(host.begin(), *speech(50, 20, number=3))
    assert host.of(EventKind.GAP)
    assert host.lost_ms == []


async def test_dropped_chunks_are_counted_and_not_journalled(host: Host) -> None:
    session = host.begin(transcribed_until=10)
    await hear(session, chunk(4), chunk(10, START), chunk(10, START), chunk(2))
    assert host.counters.dropped == {"late": 2, "duplicate": 1}
    assert host.batched == [10]


async def test_a_session_is_assigned_to_the_host_by_its_first_chunk(host: Host) -> None:
    session = host.begin()
    assert not session.is_assigned_to_host
    assert session.last_audio_at == 1000
    host.now = 1003
    await hear(session, chunk(0, START))
    assert session.is_assigned_to_host
    assert session.last_audio_at == 1003
    assert session.is_busy


async def test_a_restored_session_continues_from_its_journal(host: Host) -> None:
    """Entries that are of no use are deleted, and the others when their final is published."""
    chunks = speech(50, 20)
    entries = [
        chunk(45),
        *chunks[:2],
        chunks[1],
        *chunks[2:],
    ]
    host.entries = [(f"{number}-0", each.to_datagram()) for number, each in enumerate(entries)]
    host.entries.append(("9-0", b"not a chunk"))
    session = host.begin(transcribed_until=50)
    await session.restore()
    assert host.deleted == [["0-0", "3-0", "9-0"]]
    await settle()
    assert host.deleted[1:] == [["1-0", "2-0", "4-0", "5-0"]]
    assert times(host.of(EventKind.FINAL)) == [(1000, 1400)]
    assert not session.is_assigned_to_host
    assert host.batched == []


@pytest.mark.parametrize(
    ("waiting", "first", "second"),
    [((0, 0), 35, 50), ((2, 2), 53, 75), ((4, 4), 70, 100), ((50, 50), 70, 100)],
)
async def test_partials_come_after_0_7_s_and_then_each_second_or_half_as_often_under_load(
    host: Host, waiting: tuple[int, int], first: int, second: int
) -> None:
    host.queue_depths = waiting
    host.reply = lambda _: said(("Yes", 0.1, 0.3))
    session = host.begin()
    await hear(session, chunk(0, START), chunk(first - 6))
    assert host.asked == []
    await hear(session, chunk(first - 5))
    assert host.asked == [Priority.PARTIAL]
    await hear(session, chunk(first + second - 6))
    assert host.asked == [Priority.PARTIAL]
    await hear(session, chunk(first + second - 5))
    assert host.asked == [Priority.PARTIAL] * 2
    partials = [(event, number) for event, number in host.events if event.kind is EventKind.PARTIAL]
    assert [(number, event.end_ms) for event, number in partials] == [
        (first, 20 * first),
        (first + second, 20 * (first + second)),
    ]
    assert host.counters.events["partials"] == 2


async def test_first_partial_of_each_utterance_comes_after_0_7_s(host: Host) -> None:
    session = host.begin()
    await hear(session, *speech(0, 40))
    host.asked.clear()
    await hear(session, *speech(100, 35, number=8, end=0))
    assert host.asked == [Priority.PARTIAL]


async def test_one_partial_at_a_time_is_transcribed(host: Host) -> None:
    host.is_free.clear()
    session = host.begin()
    await hear(session, *speech(0, 200, end=0))
    assert host.asked == [Priority.PARTIAL]
    host.is_free.set()
    await settle()
    await tick(session, host, 0.02)
    assert host.asked == [Priority.PARTIAL] * 2


async def test_a_final_cancels_the_partial_of_its_utterance(host: Host) -> None:
    host.is_free.clear()
    host.reply = lambda _: said(("Yes.", 0.1, 0.3))
    session = host.begin()
    await hear(session, *speech(0, 40))
    assert host.asked == [Priority.PARTIAL, Priority.FINAL]
    assert host.cancelled == [Priority.PARTIAL]
    host.is_free.set()
    await settle()
    assert EventKind.PARTIAL not in host.kinds
    assert host.counters.events["partials"] == 0


async def test_an_utterance_has_no_partial_while_an_earlier_one_waits_for_late_chunks(host: Host) -> None:
    session = host.begin()
    first, second, _, *rest = speech(0, 30)
    await hear(session, first, second, *rest, *speech(100, 40, number=6, end=0))
    assert host.asked == []
    await tick(session, host, 0.1)
    await tick(session, host, 0.02)
    assert host.asked == [Priority.FINAL, Priority.PARTIAL]


async def test_no_partial_is_transcribed_while_a_final_is_pending(host: Host) -> None:
    """The store would reject the final of an earlier utterance after it."""
    host.is_free.clear()
    session = host.begin()
    await hear(session, *speech(0, 20), *speech(100, 40, number=4, end=0))
    assert host.asked == [Priority.FINAL]
    assert session.is_busy
    host.is_free.set()
    await settle()
    await tick(session, host, 0.02)
    assert host.asked == [Priority.FINAL, Priority.PARTIAL]


async def test_a_partial_is_not_published_while_an_earlier_event_is_pending(
    host: Host,
) -> None:
    host.is_free.clear()
    host.reply = lambda _: said(("Yes", 0.1, 0.3))
    session = host.begin()
    await hear(session, *speech(0, 40, end=0))
    assert host.asked == [Priority.PARTIAL]
    session._outbox.append(live_session._PendingEvent())
    host.is_free.set()
    await settle()
    assert EventKind.PARTIAL not in host.kinds


@pytest.mark.parametrize(("text", "is_published"), [(".", False), ("", False), ("a", True), ("...", False)])
async def test_a_partial_without_letters_is_not_published(host: Host, text: str, is_published: bool) -> None:
    """Models transcribe noise as a full stop."""
    host.reply = lambda _: said(text=text) if text else said()
    await hear(host.begin(), *speech(0, 40, end=0))
    assert [event.text for event in host.of(EventKind.PARTIAL)] == [text] * is_published


async def test_a_final_without_letters_is_empty(host: Host) -> None:
    host.reply = lambda _: said((".", 0.1, 0.3), ("?", 0.3, 0.4))
    await hear(host.begin(), *speech(0, 20))
    (final,) = host.of(EventKind.FINAL)
    assert (final.text, final.committed, final.words) == ("", "", [])


async def test_a_partial_that_waits_too_long_or_fails_is_skipped(host: Host) -> None:
    session = host.begin()
    host.reply = lambda _: StaleJobError()
    await hear(session, *speech(0, 40, end=0))
    assert host.counters.events["partials_shed"] == 1
    host.reply = lambda _: JobFailedError("3 workers exited")
    await hear(session, *(chunk(at, 0, at // 5) for at in range(40, 90, 5)))
    assert host.asked == [Priority.PARTIAL] * 2
    assert host.counters.events == {"partials_shed": 1}
    assert host.kinds == [EventKind.SPEECH_STARTED]


async def test_a_partial_is_lost_while_the_store_is_unavailable(host: Host) -> None:
    host.reply = lambda _: said(("Yes", 0.1, 0.3))
    session = host.begin()
    await hear(session, *speech(0, 30, end=0))
    host.broken = True
    await hear(session, chunk(30, 0, 6))
    assert host.asked == [Priority.PARTIAL]
    host.broken = False
    await settle()
    assert host.kinds == [EventKind.SPEECH_STARTED]
    assert host.counters.events["partials"] == 0


async def test_work_for_partials_counts_toward_the_real_time_factor(host: Host) -> None:
    session = host.begin()
    await hear(session, *speech(0, 50))
    assert host.asked == [Priority.PARTIAL, Priority.FINAL]
    assert host.counters.calculate_real_time_factor(host.now) == 2 * PROCESSING_S / 1.0


@pytest.mark.parametrize(("end", "is_shown"), [(0.57, True), (35 * 0.02 - 0.12, True), (0.59, False)])
async def test_a_partial_omits_a_word_in_the_last_0_12_s(host: Host, end: float, is_shown: bool) -> None:
    host.reply = lambda _: said(("We", 0.1, 0.2), ("see", 0.3, end))
    await hear(host.begin(), *speech(0, 35, end=0))
    assert [event.text for event in host.of(EventKind.PARTIAL)] == ["We see" if is_shown else "We"]


async def test_words_of_a_partial_have_times_in_the_session(host: Host) -> None:
    host.reply = lambda _: said(("We", 0.1, 0.2), ("see", 0.3, 0.57))
    await hear(host.begin(), *speech(400, 35, end=0))
    (partial,) = host.of(EventKind.PARTIAL)
    assert times([partial]) == [(8000, 8700)]
    assert [(word.start_ms, word.end_ms) for word in partial.words] == [
        (8100, 8200),
        (8300, 8570),
    ]


@pytest.mark.parametrize(("frames", "committed"), [(70, ""), (75, "We see")])
async def test_words_are_stable_once_two_partials_of_1_5_s_agree(host: Host, frames: int, committed: str) -> None:
    """From less audio, the model repeatedly hallucinates the same words."""
    host.reply = lambda _: said(("We", 0.1, 0.2), ("see", 0.3, 0.5), ("it", 0.6, 0.7))
    session = host.begin()
    await hear(session, chunk(400, START), chunk(400 + frames - 5))
    await hear(session, chunk(400 + frames + 45))
    assert [event.committed for event in host.of(EventKind.PARTIAL)] == ["", committed]


async def test_stationary_noise_is_not_transcribed(host: Host) -> None:
    """After 3 s of a constant level; the engine would recognize words in it."""
    noise = [replace(each, values=np.full(1600, 100, np.int16)) for each in speech(0, 200)]
    host.is_free.clear()
    session = host.begin()
    await hear(session, *noise[:30])
    assert host.asked == [Priority.PARTIAL]
    host.is_free.set()
    await settle()
    await hear(session, *noise[30:])
    assert host.asked == [Priority.PARTIAL]
    assert [event.text for event in host.of(EventKind.FINAL)] == [""]
    assert host.counters.events["given_up"] == 0


EARLY_S = 0.24


async def test_a_final_uses_the_transcript_of_its_silence(host: Host) -> None:
    """Its `turn` is the time for which the transcript waited for the end of the turn."""
    host.reply = lambda _: said(("Yes.", 0.1, 0.3), decode=10.0)
    session = host.begin(end_of_turn_ms=1000)
    await hear(session, *speech(0, 20))
    await tick(session, host, EARLY_S + 0.01)
    assert host.asked == [Priority.FINAL]
    assert [event.text for event in host.of(EventKind.PARTIAL)] == ["Yes."]
    assert host.of(EventKind.PARTIAL)[0].stages_ms == {}
    await tick(session, host, 0.5)
    assert EventKind.FINAL not in host.kinds
    await tick(session, host, 0.25)
    assert host.asked == [Priority.FINAL]
    (final,) = host.of(EventKind.FINAL)
    assert final.stages_ms == {"ingest": 250.0, "decode": 10.0, "turn": 750.0}


@pytest.mark.parametrize(("frames", "committed"), [(70, ""), (75, "We see"), (80, "We see")])
async def test_the_transcript_of_a_silence_after_1_5_s_counts_for_stable_words(
    host: Host, frames: int, committed: str
) -> None:
    host.reply = lambda _: said(("We", 0.1, 0.2), ("see", 0.3, 0.5), ("it", 0.6, 0.68))
    session = host.begin(end_of_turn_ms=1000)
    await hear(session, *speech(400, frames))
    await tick(session, host, 0.3)
    silence = host.of(EventKind.PARTIAL)[-1]
    assert (silence.text, silence.committed) == ("We see it", "")
    assert [word.start_ms for word in silence.words] == [8100, 8300, 8600]
    await hear(session, *speech(410 + frames, 50, number=frames // 5, end=0))
    assert host.asked == [Priority.PARTIAL, Priority.FINAL, Priority.PARTIAL]
    assert host.of(EventKind.PARTIAL)[-1].committed == committed


async def test_a_final_has_no_turn_while_its_transcript_is_awaited(host: Host) -> None:
    host.is_free.clear()
    host.reply = lambda _: said(("Yes.", 0.1, 0.3))
    session = host.begin(end_of_turn_ms=250)
    await hear(session, *speech(0, 20))
    await tick(session, host, EARLY_S + 0.01)
    await tick(session, host, 1.0)
    assert host.asked == [Priority.FINAL]
    host.now += 0.5
    host.is_free.set()
    await settle()
    assert host.of(EventKind.FINAL)[0].stages_ms == {"ingest": 250.0, "turn": 0.0}


async def test_a_silence_that_ends_is_transcribed_again(host: Host) -> None:
    session = host.begin(end_of_turn_ms=1000)
    host.reply = lambda _: said(("We", 0.1, 0.3))
    await hear(session, *speech(0, 20))
    await tick(session, host, 0.3)
    await tick(session, host, 0.1)
    assert host.asked == [Priority.FINAL], "once per silence"
    host.reply = lambda _: said(("We", 0.1, 0.3), ("see.", 0.6, 0.8))
    await hear(session, *speech(30, 20, number=4))
    await tick(session, host, 0.3)
    assert host.asked.count(Priority.FINAL) == 2
    await tick(session, host, 0.7)
    assert host.asked.count(Priority.FINAL) == 2
    assert [event.text for event in host.of(EventKind.FINAL)] == ["We see."]


async def test_a_transcript_of_an_earlier_silence_is_no_final(host: Host) -> None:
    session = host.begin(end_of_turn_ms=1000)
    await hear(session, *speech(0, 20))
    await tick(session, host, 0.3)
    await hear(session, *speech(30, 20, number=4, end=END | COMMIT))
    assert host.asked.count(Priority.FINAL) == 2
    assert [event.commit for event in host.of(EventKind.FINAL)] == [True]


async def test_each_utterance_has_its_own_silence(host: Host) -> None:
    session = host.begin(end_of_turn_ms=1000)
    for first, number in ((0, 0), (500, 4)):
        await hear(session, *speech(first, 20, number=number))
        await tick(session, host, 0.3)
        await tick(session, host, 2.0)
    assert host.asked == [Priority.FINAL] * 2
    assert len(host.of(EventKind.FINAL)) == 2


async def test_a_transcript_of_a_silence_is_not_used_for_the_next_utterance(host: Host) -> None:
    session = host.begin(end_of_turn_ms=1000)
    await hear(session, *speech(0, 20))
    await tick(session, host, 0.3)
    await tick(session, host, 2.0)
    await hear(session, *speech(500, 20, number=4, end=END | COMMIT))
    assert [event.commit for event in host.of(EventKind.FINAL)] == [False, True]
    assert ["turn" in event.stages_ms for event in host.of(EventKind.FINAL)] == [True, False]


async def test_a_silence_that_could_not_be_transcribed_is_transcribed_at_its_end(
    host: Host,
) -> None:
    session = host.begin(end_of_turn_ms=1000)
    host.reply = lambda _: JobFailedError("3 workers exited")
    await hear(session, *speech(0, 20))
    await tick(session, host, 0.3)
    host.reply = lambda _: said(("Yes.", 0.1, 0.3))
    await tick(session, host, 2.0)
    assert [event.text for event in host.of(EventKind.FINAL)] == ["Yes."]
    assert host.counters.events["given_up"] == 0


@pytest.mark.parametrize(
    ("text", "silence_s"),
    [("Yes.", 1.0), ("Yes, and", 2.0), ("", 2.0)],
)
async def test_an_incomplete_sentence_waits_for_twice_the_silence(host: Host, text: str, silence_s: float) -> None:
    session = host.begin(end_of_turn_ms=1000)
    host.reply = lambda _: said(text=text)
    await hear(session, *speech(0, 20))
    await tick(session, host, 0.3)
    await tick(session, host, silence_s - 0.3 - 0.01)
    assert EventKind.FINAL not in host.kinds
    await tick(session, host, 0.02)
    assert len(host.of(EventKind.FINAL)) == 1


async def test_an_utterance_of_noise_ends_like_a_complete_sentence(host: Host) -> None:
    noise = [replace(each, values=np.full(len(each.values), 100, np.int16)) for each in speech(0, 200)]
    session = host.begin(end_of_turn_ms=1000)
    await hear(session, *noise)
    await tick(session, host, 0.3)
    await tick(session, host, 0.71)
    assert len(host.of(EventKind.FINAL)) == 1


async def test_a_transcript_that_speech_has_overtaken_completes_no_sentence(
    host: Host,
) -> None:
    session = host.begin(end_of_turn_ms=1000)
    host.is_free.clear()
    host.reply = lambda _: said(("Yes.", 0.1, 0.3))
    await hear(session, *speech(0, 20))
    await tick(session, host, 0.3)
    await hear(session, *speech(30, 20, number=4))
    host.is_free.set()
    await settle()
    await tick(session, host, 1.1)
    assert EventKind.FINAL not in host.kinds


async def test_a_silence_is_not_transcribed_while_a_final_is_pending(
    host: Host,
) -> None:
    session = host.begin(end_of_turn_ms=1000)
    host.is_free.clear()
    await hear(session, *speech(0, 20, end=END | COMMIT), *speech(500, 20, number=4))
    assert host.asked == [Priority.FINAL]
    await tick(session, host, 0.3)
    assert host.asked == [Priority.FINAL]


async def test_speech_after_a_silence_continues_the_partials(host: Host) -> None:
    session = host.begin(end_of_turn_ms=1000)
    host.reply = lambda _: said(("We", 0.1, 0.3))
    await hear(session, *speech(0, 40))
    await tick(session, host, 0.3)
    assert host.asked == [Priority.PARTIAL, Priority.FINAL]
    await hear(session, *speech(50, 30, number=8, end=0))
    assert host.asked == [Priority.PARTIAL, Priority.FINAL]
    await hear(session, chunk(80, 0, 14), chunk(85, 0, 15))
    assert host.asked == [Priority.PARTIAL, Priority.FINAL, Priority.PARTIAL]


CUT_AT_S = 60 * 0.02
CUT_WORDS = (("It", 0.1, 0.4), ("is", 0.4, 0.8))


async def cut_in_speech(session: LiveSession, host: Host, end: float) -> None:
    host.reply = lambda _: said(*CUT_WORDS, ("machine", 0.8, end))
    await hear(session, *speech(0, 60, end=END | COMMIT))


@pytest.mark.parametrize(("end", "is_kept"), [(1.05, True), (CUT_AT_S - 0.12, False), (1.2, False)])
async def test_a_word_in_the_last_0_12_s_before_a_commit_belongs_to_what_follows(
    host: Host, end: float, is_kept: bool
) -> None:
    session = host.begin()
    await cut_in_speech(session, host, end)
    await hear(session, *speech(60, 5, number=12, end=0))
    async with asyncio.timeout(10):
        while not host.of(EventKind.FINAL):
            await asyncio.sleep(0.01)
    (final,) = host.of(EventKind.FINAL)
    assert final.text == ("It is machine" if is_kept else "It is")
    assert [word.text for word in final.words] == final.text.split()


async def test_a_commit_waits_0_25_s_for_the_rest_of_a_word(host: Host) -> None:
    session = host.begin()
    await cut_in_speech(session, host, 1.2)
    host.now += 0.24
    await asyncio.sleep(0.1)
    assert EventKind.FINAL not in host.kinds
    host.now += 0.02
    async with asyncio.timeout(10):
        while not host.of(EventKind.FINAL):
            await asyncio.sleep(0.01)
    assert host.of(EventKind.FINAL)[0].text == "It is machine"


@pytest.mark.parametrize("words", [(), CUT_WORDS])
async def test_a_commit_after_a_word_is_answered_at_once(host: Host, words: Sequence[tuple[str, float, float]]) -> None:
    host.reply = lambda _: said(*words)
    await hear(host.begin(), *speech(0, 60, end=END | COMMIT))
    assert [event.text for event in host.of(EventKind.FINAL)] == ["It is" if words else ""]


async def test_what_follows_a_commit_repeats_no_word_of_it(host: Host) -> None:
    """Its audio starts before the commit, and its transcript waits for the one before."""
    replies = iter([asyncio.Event(), asyncio.Event()])
    first, second = replies

    async def transcribe(utterance: Utterance, *_: object) -> WindowTranscript:
        await (first if utterance.start == 0 else second).wait()
        if utterance.start == 0:
            return said(("It", 0.1, 0.4), ("is", 0.4, 0.8))
        shift = utterance.begin * 0.02
        return said(
            ("is", 0.4 - shift, 0.8 - shift),
            ("mine.", 1.3 - shift, 1.6 - shift),
        )

    host.transcribe = transcribe  # type: ignore[method-assign, assignment]
    session = host.begin()
    await hear(
        session,
        *speech(0, 60, end=END | COMMIT),
        *speech(60, 30, number=12),
    )
    second.set()
    await settle()
    assert EventKind.FINAL not in host.kinds
    first.set()
    await settle()
    assert [event.text for event in host.of(EventKind.FINAL)] == ["It is", "mine."]


async def test_a_card_number_is_redacted_across_finals(host: Host) -> None:
    session = host.begin(redact=frozenset(Redaction))
    texts = iter(["It is 4111 1111", "1111 1111 okay", "call 1111"])
    host.reply = lambda _: said(text=next(texts))
    for number, first in enumerate((0, 100, 200)):
        await hear(session, *speech(first, 20, number=4 * number))
    assert [event.text for event in host.of(EventKind.FINAL)] == ["It is [card]", "[card] okay", "call 1111"]


@pytest.mark.parametrize(("number", "shown"), [(11 * "4", 11 * "4"), (12 * "4", "[card]")])
async def test_a_card_number_of_a_new_session_has_12_digits(host: Host, number: str, shown: str) -> None:
    host.reply = lambda _: said(text=f"{number} okay")
    await hear(host.begin(redact=frozenset(Redaction)), *speech(0, 20))
    assert [event.text for event in host.of(EventKind.FINAL)] == [f"{shown} okay"]


async def test_digits_of_a_partial_do_not_belong_to_a_card_number_of_its_final(host: Host) -> None:
    texts = iter(["4111 1111", "4111 okay"])
    host.reply = lambda _: said(text=next(texts))
    await hear(host.begin(redact=frozenset(Redaction)), *speech(0, 40, end=0), chunk(40, END, 8))
    assert host.asked == [Priority.PARTIAL, Priority.FINAL]
    assert [event.text for event in host.of(EventKind.FINAL)] == ["4111 okay"]


async def test_a_silence_between_two_parts_of_a_card_number_does_not_reveal_it(
    host: Host,
) -> None:
    session = host.begin(redact=frozenset(Redaction))
    texts = iter(["It is 4111 1111", ".", "1111 1111 okay"])
    host.reply = lambda _: said(text=next(texts))
    for number, first in enumerate((0, 100, 200)):
        await hear(session, *speech(first, 20, number=4 * number))
    assert [event.text for event in host.of(EventKind.FINAL)] == ["It is [card]", "", "[card] okay"]


async def test_settings_of_an_unavailable_store_stay_the_same(host: Host) -> None:
    session = host.begin(language="de-CH", prompt="Zürich")
    host.broken = True
    session._announce_utterance(Utterance(0, ChunkKind.PCM16, opened=True))
    await settle()
    assert (session._language, session._prompt) == ("de", "Zürich")
    session.drop()


async def test_a_dropped_session_publishes_nothing_more(host: Host) -> None:
    host.is_free.clear()
    session = host.begin()
    await hear(session, *speech(0, 20))
    events = len(host.events)
    session.drop()
    host.is_free.set()
    await settle()
    assert len(host.events) == events


async def begin_monologue(
    session: LiveSession, host: Host, frames: int, ends_at: float, first: int = 0
) -> list[AudioChunk]:
    """Add speech with one partial, and return its last 50 frames, whose partial confirms the words until a time."""
    host.reply = lambda _: said(("one", 0.1, 1.0), ("two", 1.1, ends_at), ("th", ends_at, ends_at + 0.01))
    chunks = speech(first, frames, end=0)
    for each in chunks[:-10]:
        session.add_chunk(each, each.to_datagram())
    await settle()
    await tick(session, host, 0.0)
    assert host.asked[-1] is Priority.PARTIAL
    return chunks[-10:]


async def split_off(host: Host, frames: int = 405, ends_at: float = 7.0, first: int = 0) -> LiveSession:
    session = host.begin(transcribed_until=first)
    last = await begin_monologue(session, host, frames, ends_at, first)
    await hear(session, *last)
    await tick(session, host, 0.02)
    return session


@pytest.mark.parametrize(
    ("frames", "ends_at", "is_published"),
    [
        (400, 7.0, False),
        (405, 7.0, True),
        (405, 3.98, False),
        (405, 4.0, True),
        (405, 8.1, True),
        (405, 8.12, False),
    ],
)
async def test_a_stable_part_of_at_least_4_s_is_published_after_8_s(
    host: Host, frames: int, ends_at: float, is_published: bool
) -> None:
    """The next 2 s are transcribed again, so a shorter part would save little."""
    for first in (0, 50):
        host.events.clear()
        await split_off(host, frames, ends_at, first)
        assert [(event.text, event.speech_final) for event in host.of(EventKind.FINAL)] == (
            [("one two", False)] * is_published
        )


async def test_a_published_part_is_recorded_and_the_rest_continues_after_it(host: Host) -> None:
    session = await split_off(host)
    (part,) = host.of(EventKind.FINAL)
    assert (part.start_ms, part.end_ms, part.committed) == (0, 7000, "one two")
    assert host.marked == [(345, 81, 7)]
    assert host.counters.events["finals"] == 1
    work = [(processing_s, audio_s) for _, processing_s, audio_s in host.counters._work]
    assert work == [(PROCESSING_S, 0.0), (PROCESSING_S, 0.0), (0.0, 7.0)]
    assert session.is_busy
    host.asked.clear()
    host.reply = lambda utterance: said(("three", 7.6 - utterance.begin * 0.02, 7.9 - utterance.begin * 0.02))
    await hear(session, *(chunk(at, 0, at // 5) for at in range(405, 450, 5)))
    assert host.asked == []
    await hear(session, chunk(450, 0, 90))
    assert host.asked == [Priority.PARTIAL]
    partial = host.of(EventKind.PARTIAL)[-1]
    assert (partial.utterance, partial.text) == (350, "three")
    assert [(word.start_ms, word.end_ms) for word in partial.words] == [(7600, 7900)]


async def test_losses_of_a_published_part_precede_it(host: Host) -> None:
    session = host.begin()
    last = await begin_monologue(session, host, 405, 7.0)
    assert session._audio.current_utterance
    session._audio.current_utterance._chunks.pop(100)
    await hear(session, *last)
    await tick(session, host, 0.02)
    kinds = [kind for kind in host.kinds if kind is not EventKind.PARTIAL]
    assert kinds == [EventKind.SPEECH_STARTED, EventKind.GAP, EventKind.FINAL]
    assert times(host.of(EventKind.GAP)) == [(2000, 2100)]
    assert host.counters.events["lost_chunks"] == 1


@pytest.mark.parametrize("is_over", [False, True])
async def test_speech_that_has_ended_or_is_followed_by_other_speech_is_not_divided(host: Host, is_over: bool) -> None:
    """Its final, with all of its text, is due."""
    session = host.begin(end_of_turn_ms=1000)
    last = await begin_monologue(session, host, 405, 7.0)
    await hear(session, *last[:-1])
    host.is_free.clear()
    await hear(session, last[-1])
    assert host.asked[-1] is Priority.PARTIAL
    await hear(session, *([chunk(405, END, 81)] if is_over else [chunk(600, START, 90)]))
    host.is_free.set()
    await settle()
    assert host.of(EventKind.FINAL) == []
