"""One session on a real store, with an engine whose output the test determines."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from engine_host import CHUNK_FRAMES, chunks_of, cut, finals, open_session, sound
from redis.asyncio import Redis

from voice_blueprint.contract.chunk import ChunkKind
from voice_blueprint.contract.network import Tier
from voice_runtime import state
from voice_runtime.chunk import AudioChunk
from voice_runtime.hosts import HostRegistry
from voice_runtime.journal import AudioJournal
from voice_runtime.redaction import Redaction
from voice_runtime.sessions import SessionStore
from voice_runtime.transcripts import EventKind, Transcript, TranscriptStore
from voice_whisper import streaming
from voice_whisper.admission import Admission
from voice_whisper.agreement import join_words
from voice_whisper.backends.base import Word
from voice_whisper.counters import Counters
from voice_whisper.job import Priority, WindowTranscript
from voice_whisper.journal_batch import JournalBatch
from voice_whisper.live_session import LiveSession, SessionContext
from voice_whisper.maintenance import HostMaintenance
from voice_whisper.session_audio import MAX_REORDER_S
from voice_whisper.settings import EngineSettings
from voice_whisper.utterance import OVERLAP_FRAMES, Utterance
from voice_whisper.window import MAX_UTTERANCE_FRAMES

FRAME_S = 0.02
TICK_S = 0.02


@dataclass
class Scripted:
    """An engine that recognizes given words at their times in the session.

    Attributes:
        words: Text, with begin and end in seconds of the session.
        asked: Language and prompt of each utterance.
    """

    words: Sequence[tuple[str, float, float]]
    asked: list[tuple[str | None, str]] = field(default_factory=list)
    max_utterance_frames: int = MAX_UTTERANCE_FRAMES
    overlap_frames = OVERLAP_FRAMES
    supported_kinds = frozenset(ChunkKind)
    queue_depths = (0, 0)
    languages = ()

    async def transcribe(
        self, utterance: Utterance, language: str | None, wanted: Priority, prompt: str = ""
    ) -> WindowTranscript:
        begin, end = utterance.begin * FRAME_S, (utterance.start + utterance.frame_count) * FRAME_S
        if wanted is Priority.FINAL:
            self.asked.append((language, prompt))
        heard = tuple(
            Word(f" {text}", max(first, begin) - begin, min(last, end) - begin, 0.9)
            for text, first, last in self.words
            if last > begin + 0.01 and first < end - 0.01
        )
        return WindowTranscript("".join(word.text for word in heard).strip(), language, {}, 0.0, heard)


def services_of(store: Redis, engine: Scripted) -> SessionContext:
    counters, journal = Counters(), AudioJournal(store, "h1")
    return SessionContext(
        engine,  # type: ignore[arg-type]  # what a session asks of one
        TranscriptStore(store),
        journal,
        JournalBatch(journal, counters),
        counters,
        SessionStore(store),
    )


@asynccontextmanager
async def live(store: Redis, ssrc: int, engine: Scripted, **record: object) -> AsyncIterator[LiveSession]:
    await open_session(store, ssrc, **record)
    found = await SessionStore(store).read(ssrc)
    assert found
    session = LiveSession(found, services_of(store, engine), transcribed_until=0)

    async def tick() -> None:
        while True:
            session.start_due_transcripts()
            await asyncio.sleep(TICK_S)

    ticking = asyncio.create_task(tick())
    yield session
    ticking.cancel()
    session.drop()


async def say(
    session: LiveSession, chunks: Sequence[AudioChunk], pause: Callable[[int], float] = lambda _: 0.0
) -> None:
    for number, chunk in enumerate(chunks):
        await asyncio.sleep(pause(number))
        session.add_chunk(chunk, chunk.to_datagram())


async def test_word_split_by_a_commit_is_published_whole_with_the_next_text(store: Redis, ssrc: int) -> None:
    engine = Scripted([("It", 0.1, 0.4), ("is", 0.4, 0.8), ("machine", 0.8, 1.6), ("time.", 1.6, 2.2)])
    async with live(store, ssrc, engine) as session:
        await say(session, cut(ssrc, sound()[: 115 * 320], 60))
        first, second = await finals(store, ssrc, 2)
    assert (first.text, first.commit) == ("It is", True)
    assert second.text == "machine time."


async def test_word_before_a_commit_is_published_if_nothing_follows(store: Redis, ssrc: int) -> None:
    engine = Scripted([("It", 0.1, 0.4), ("is", 0.4, 0.8), ("mine.", 0.8, 1.2)])
    async with live(store, ssrc, engine) as session:
        await say(session, cut(ssrc, sound()[: 60 * 320], 60))
        since = time.monotonic()
        (final,) = await finals(store, ssrc, 1)
    assert final.text == "It is mine."
    assert time.monotonic() - since < 5


async def test_pauses_inside_a_sentence_do_not_split_its_text(store: Redis, ssrc: int) -> None:
    """With an endpointing of 25 ms; each word is reported once, although the next utterance recognizes it again."""
    engine = Scripted([("We", 0.1, 0.5), ("can", 0.5, 0.95), ("see", 1.1, 1.6), ("it.", 1.7, 2.2)])
    async with live(store, ssrc, engine, end_of_turn_ms=25) as session:
        parts = [chunks_of(ssrc, sound()[: 50 * 320]), chunks_of(ssrc, sound()[: 60 * 320], first=54)]
        for part in parts:
            await say(session, part)
            await asyncio.sleep(0.3)
        said = await finals(store, ssrc, 2)
    assert " ".join(final.text for final in said) == "We can see it."


async def test_a_transcript_of_a_silence_is_only_used_for_its_utterance(store: Redis, ssrc: int) -> None:
    """The first utterance is transcribed during the silence that ends it, and the second one at its commit."""
    engine = Scripted([("Yes.", 0.1, 0.9), ("No.", 8.1, 8.9)])
    async with live(store, ssrc, engine, end_of_turn_ms=1000) as session:
        first = chunks_of(ssrc, sound()[: 50 * 320])
        await say(session, [replace(chunk, number=number) for number, chunk in enumerate(first)])
        await finals(store, ssrc, 1)
        second = cut(ssrc, sound()[: 50 * 320], 50, first=400)
        await say(session, [replace(chunk, number=len(first) + chunk.number) for chunk in second])
        said = await finals(store, ssrc, 2)
    assert [(final.text, final.commit) for final in said] == [("Yes.", False), ("No.", True)]
    assert ["turn" in final.stages_ms for final in said] == [True, False]


async def test_language_and_words_of_a_call_can_be_changed(store: Redis, ssrc: int) -> None:
    """From the next utterance on: the caller changes the language, or lists expected words."""
    engine = Scripted([("Yes", 0.1, 0.5)])
    async with live(store, ssrc, engine, language="en", prompt="Kubernetes") as session:
        await say(session, chunks_of(ssrc, sound()[: 40 * 320]))
        await finals(store, ssrc, 1)
        record = await SessionStore(store).read(ssrc)
        assert record
        await SessionStore(store).update(record, language="de-CH", prompt="Zürich")
        chunks = chunks_of(ssrc, sound()[: 80 * 320], first=200)
        await say(session, chunks, pause=lambda number: 0.3 * (number == 3))
        await finals(store, ssrc, 2)
    assert engine.asked == [("en", "Kubernetes"), ("de", "Zürich")]


@pytest.mark.parametrize("what", [frozenset(Redaction), frozenset[Redaction]()])
async def test_card_numbers_are_never_published(store: Redis, ssrc: int, what: frozenset[Redaction]) -> None:
    text = "My card is 4111 1111 1111 1111 okay"
    words = [(word, 0.2 + place * 0.4, 0.6 + place * 0.4) for place, word in enumerate(text.split())]
    async with live(store, ssrc, Scripted(words), redact=what) as session:
        await say(session, chunks_of(ssrc, sound()[: 190 * 320]), pause=lambda _: 0.03)
        (final,) = await finals(store, ssrc, 1)
    events = [event for _, event in await TranscriptStore(store).read(ssrc)]
    assert any(event.kind is EventKind.PARTIAL for event in events)
    told = " ".join(f"{event.text} {event.committed} {event.words}" for event in events)
    assert ("1111" in told) is not bool(what)
    assert final.text == ("My card is [card] okay" if what else text)
    if what:
        assert [word.text for word in final.words] == ["My", "card", "is", "[card]", "okay"]
        card = final.words[3]
        assert (card.start_ms, card.end_ms) == (1400, 3000)


async def test_incomplete_utterance_is_published_before_partials_of_the_next(store: Redis, ssrc: int) -> None:
    """An engine waits for late chunks of an utterance while chunks of the next one arrive, in a burst."""
    engine = Scripted([("Please", 0.1, 0.5), ("hold.", 8.1, 8.5)])
    async with live(store, ssrc, engine) as session:
        whole, following = chunks_of(ssrc, sound()[: 60 * 320]), chunks_of(ssrc, sound()[: 80 * 320], first=400)
        numbered = [replace(chunk, number=number) for number, chunk in enumerate([*whole, *following])]
        before_end = len(numbered) - 1
        await say(
            session,
            numbered[:5] + numbered[8:],
            pause=lambda number: 0.001 + 2 * MAX_REORDER_S * (number == before_end - 3),
        )
        await finals(store, ssrc, 2)
    events = [event for _, event in await TranscriptStore(store).read(ssrc)]
    assert [(event.utterance, event.kind) for event in events if event.kind is not EventKind.PARTIAL] == [
        (utterance, kind)
        for utterance, kinds in ((0, [EventKind.GAP]), (400, []))
        for kind in [EventKind.SPEECH_STARTED, *kinds, EventKind.SPEECH_STOPPED, EventKind.FINAL]
    ]


async def test_stable_part_of_a_monologue_reports_its_losses_and_audio(store: Redis, ssrc: int) -> None:
    engine = Scripted([(f"word{number}", number / 2, number / 2 + 0.4) for number in range(24)])
    async with live(store, ssrc, engine) as session:
        chunks = chunks_of(ssrc, np.tile(sound(), 2)[: 600 * 320])
        numbered = [replace(chunk, number=number) for number, chunk in enumerate(chunks)]
        await say(session, numbered[:20] + numbered[21:110] + numbered[111:], pause=lambda _: 0.03)
        said: list[Transcript] = []
        while not (said and said[-1].speech_final):
            await asyncio.sleep(TICK_S)
            events = [event for _, event in await TranscriptStore(store).read(ssrc)]
            said = [event for event in events if event.kind is EventKind.FINAL]
        counters = session._services.counters
    assert len(said) > 1, "a part was split off"
    assert " ".join(final.text for final in said) == " ".join(f"word{number}" for number in range(24))
    gaps = [event for event in events if event.kind is EventKind.GAP]
    assert [(gap.utterance, gap.start_ms, gap.end_ms) for gap in gaps] == [
        (said[0].utterance, 2000, 2100), (said[-1].utterance, 11000, 11100),
    ]  # fmt: skip
    assert events.index(gaps[0]) < events.index(said[0])
    assert counters.events["lost_chunks"] == len(gaps)
    assert sum(audio_s for _, _, audio_s in counters._work) == pytest.approx(12)


async def test_a_session_is_adopted_once_and_only_with_a_free_slot(store: Redis, ssrc: int) -> None:
    """A host continues its sessions after a restart, while their audio may already arrive."""
    services = services_of(store, Scripted([]))
    admission = Admission(2, SessionStore(store), services)
    for number in range(3):
        await open_session(store, ssrc + number)
    await admission.adopt(ssrc, is_own=True)
    adopted = admission.live_sessions[ssrc]
    await admission.adopt(ssrc, is_own=True)
    assert admission.live_sessions[ssrc] is adopted
    admission.is_closed = True
    await admission.adopt(ssrc + 1, is_own=True)
    admission.is_closed = False
    assert list(admission.live_sessions) == [ssrc]
    for number in (1, 2):
        await admission.adopt(ssrc + number, is_own=True)
    assert list(admission.live_sessions) == [ssrc, ssrc + 1]
    assert admission.free_slots == 0
    assert services.counters.events["adopted"] == 2


async def test_long_utterance_of_a_failed_host_is_restored_from_its_start(store: Redis, ssrc: int) -> None:
    """An engine with streaming input has no final of an utterance before its end, so all chunks are in the journal."""
    assert state.MAX_AUDIO_CHUNKS >= streaming.MAX_UTTERANCE_FRAMES // CHUNK_FRAMES
    speech = np.tile(sound(), 31)[: 2500 * CHUNK_FRAMES * 320]
    datagrams = [(ssrc, chunk.to_datagram()) for chunk in chunks_of(ssrc, speech, kind=ChunkKind.PCM16)]
    for at in range(0, len(datagrams), 100):
        await AudioJournal(store, "h2").append(datagrams[at : at + 100])
    engine = Scripted(
        [("First", 0.1, 0.5), ("last.", 249.1, 249.5)], max_utterance_frames=streaming.MAX_UTTERANCE_FRAMES
    )
    async with live(store, ssrc, engine) as session:
        await session.restore()
        (final,) = await finals(store, ssrc, 1)
    assert (final.start_ms, final.end_ms, final.text) == (0, 250_000, "First last.")


async def test_a_session_without_a_record_is_not_adopted(store: Redis, ssrc: int) -> None:
    admission = Admission(2, SessionStore(store), services_of(store, Scripted([])))
    await AudioJournal(store, "h1").acquire(ssrc)
    await admission.adopt(ssrc, is_own=True)
    assert admission.is_empty
    assert not await store.exists(state.build_host_lease_key(ssrc))


async def test_first_partial_comes_after_0_7_s_without_a_word_that_is_cut_off(store: Redis, ssrc: int) -> None:
    """A word at the end of the audio is recognized differently once its rest has arrived."""
    engine = Scripted([("We", 0.1, 0.4), ("machinery", 0.5, 1.2), ("work.", 1.3, 1.9)])
    async with live(store, ssrc, engine) as session:
        chunks = chunks_of(ssrc, sound()[: 100 * 320])
        await say(session, chunks, pause=lambda _: 0.03)
        (final,) = await finals(store, ssrc, 1)
    events = [event for _, event in await TranscriptStore(store).read(ssrc)]
    partials = [(event.end_ms, event.text) for event in events if event.kind is EventKind.PARTIAL]
    assert partials[:2] == [(700, "We"), (1700, "We machinery")]
    assert final.text == "We machinery work."


@pytest.mark.parametrize(("chunk_count", "committed"), [(14, ""), (15, "We")])
async def test_two_transcripts_of_less_than_a_second_and_a_half_do_not_agree(
    store: Redis, ssrc: int, chunk_count: int, committed: str
) -> None:
    """For less audio, the model repeats the same wrong words (see the README)."""
    async with live(store, ssrc, Scripted([("We", 0.1, 0.4), ("wait", 0.5, 1.2)])) as session:
        await say(session, chunks_of(ssrc, sound())[:chunk_count])
        utterance = session._audio.current_utterance
        assert utterance
        for _ in range(2):
            await session._transcribe_partial(utterance, utterance.frame_count)
        assert join_words(utterance.agreement.committed) == committed


async def test_a_stuck_host_leaves_and_is_back_with_its_sessions(
    store: Redis, ssrc: int, caplog: pytest.LogCaptureFixture
) -> None:
    stuck: list[bool] = []
    services = services_of(store, Scripted([]))
    admission, registry = Admission(2, SessionStore(store), services), HostRegistry(store, Tier.ASR)
    address = {"host": "h1", "host_address": "127.0.0.1", "host_kind": "gpu"}
    settings = EngineSettings.model_validate({**address, "chunk_port": 1, "health_port": 1, "drain_timeout_s": 1})
    keeper = HostMaintenance(
        settings, admission, registry, services.journal, SessionStore(store), is_stuck=lambda: bool(stuck)
    )
    await open_session(store, ssrc)
    await services.journal.acquire(ssrc)
    await admission.adopt(ssrc, is_own=True)
    stuck.append(True)
    await keeper.send_heartbeat()
    assert (list(admission.live_sessions), admission.is_closed, await registry.read_live_hosts()) == ([], True, [])
    await keeper.send_heartbeat()
    assert [each for each in caplog.messages if "left to other hosts" in each] == [
        "1 sessions are left to other hosts until this one works"
    ]
    stuck.clear()
    await keeper.send_heartbeat()
    assert (list(admission.live_sessions), admission.is_closed) == ([ssrc], False)
    (host,) = await registry.read_live_hosts()
    assert (host.id, host.free_slots, host.slots, host.draining) == ("h1", 1, 64, False)
    keeper.is_draining = True
    await keeper.send_heartbeat()
    (host,) = await registry.read_live_hosts()
    assert (host.free_slots, host.draining) == (0, True)
