"""Transcripts in a session's stream: what is stored, in which order, and what readers skip."""

import json
import logging
import time
from dataclasses import replace

import pytest
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from voice_runtime import state
from voice_runtime.replies import decode_entries
from voice_runtime.sessions import Session, SessionKind, SessionState, SessionStore
from voice_runtime.transcripts import GAP_NUMBER_BASE, EventId, EventKind, TimedWord, Transcript, TranscriptStore

SSRC = 4_000_000_000
DAY_FRAMES = 86_400 * 50
"""Frames of 20 ms in a day, the longest duration of a session."""


def said(utterance: int, text: str = "yes", kind: EventKind = EventKind.FINAL) -> Transcript:
    return Transcript(kind=kind, utterance=utterance, text=text, start_ms=utterance * 20, end_ms=utterance * 20 + 500)


def open_session(seconds: int = 60) -> Session:
    return Session(SSRC, "x", SessionState.OPEN, SessionKind.GATEWAY, "a", int(time.time()) + seconds)


async def add_entries(store: Redis, *events: Transcript | bytes) -> None:
    """Append events, or other contents, with one entry for each utterance from 1."""
    async with store.pipeline(transaction=False) as pipe:
        for utterance, event in enumerate(events, 1):
            content = event if isinstance(event, bytes) else event.model_dump_json().encode()
            pipe.xadd(state.build_transcript_key(SSRC), {b"event": content}, id=f"{utterance}-1")
        await pipe.execute()


async def test_an_event_is_stored_without_default_values(store: Redis) -> None:
    """Readers of other releases supply the same values, as the next test shows."""
    await TranscriptStore(store).publish(SSRC, said(7))
    ((entry_id, fields),) = decode_entries(await store.xrange(state.build_transcript_key(SSRC)))
    assert entry_id == "7-4294967296"
    assert json.loads(fields[b"event"]) == {
        "kind": "final", "utterance": 7, "text": "yes", "start_ms": 140, "end_ms": 640
    }  # fmt: skip


def test_an_event_of_the_required_fields_ends_its_utterance_and_has_no_text() -> None:
    event = Transcript.model_validate_json('{"kind":"final","utterance":7,"start_ms":140,"end_ms":640}')
    assert (event.text, event.committed, event.words, event.stages_ms, event.language) == ("", "", [], {}, None)
    assert (event.speech_final, event.commit) == (True, False)


async def test_all_fields_of_an_event_are_stored(store: Redis) -> None:
    word = TimedWord(text="yes", start_ms=140, end_ms=340, confidence=0.5)
    event = said(7).model_copy(
        update={"words": [word], "committed": "yes", "speech_final": False, "commit": True, "language": "de"}
    )
    await TranscriptStore(store).publish(SSRC, event.model_copy(update={"stages_ms": {"decode": 1.5}}))
    ((_, found),) = await TranscriptStore(store).read(SSRC)
    assert found == event.model_copy(update={"stages_ms": {"decode": 1.5}})


async def test_the_ids_of_events_order_an_utterance(store: Redis) -> None:
    """Gaps at any position are after the partial transcripts, and before the end of the utterance."""
    transcripts = TranscriptStore(store)
    events = [
        (EventKind.GAP, 0, 0),
        (EventKind.SPEECH_STARTED, 9, 1),
        (EventKind.PARTIAL, 2, 2),
        (EventKind.PARTIAL, DAY_FRAMES, DAY_FRAMES),
        (EventKind.GAP, GAP_NUMBER_BASE, GAP_NUMBER_BASE),
        (EventKind.GAP, GAP_NUMBER_BASE + DAY_FRAMES, GAP_NUMBER_BASE + DAY_FRAMES),
        (EventKind.SPEECH_STOPPED, 9, 2**32 - 1),
        (EventKind.FINAL, 9, 2**32),
        (EventKind.END, 9, 2**32 + 1),
    ]
    for kind, number, _ in events:
        assert await transcripts.publish(SSRC, said(7, kind=kind), number)
    assert await transcripts.publish(SSRC, said(8, kind=EventKind.PARTIAL)), "a partial has number 1 without another"
    read = await transcripts.read(SSRC)
    expected = [EventId(7, number) for _, _, number in events]
    assert [position for position, _ in read] == [*expected, EventId(8, 1)]
    assert [event.kind for _, event in read] == [*(kind for kind, _, _ in events), EventKind.PARTIAL]


@pytest.mark.parametrize("text", ["0-0", "7-4294967296", f"{2**64 - 1}-{2**64 - 1}"])
def test_ids_have_two_numbers_of_64_bits(text: str) -> None:
    """As in Valkey: https://valkey.io/topics/streams-intro/."""
    event_id = EventId.parse(text)
    assert (f"{event_id.utterance}-{event_id.number}", str(event_id)) == (text, text)


@pytest.mark.parametrize("text", [f"{2**64}-1", f"1-{2**64}", f"{2**65}-1"])
def test_larger_numbers_are_no_ids(text: str) -> None:
    with pytest.raises(ValueError, match="a number is above"):
        EventId.parse(text)


async def test_a_transcript_is_kept_as_long_as_the_record(store: Redis) -> None:
    made = replace(open_session(5000), archived_from=1)
    await SessionStore(store).create(made, max_sessions=1)
    await TranscriptStore(store).publish(SSRC, said(7))
    for key in (state.build_transcript_key(SSRC), state.build_finals_key(SSRC)):
        assert await store.ttl(key) == pytest.approx(5000 + state.SESSION_RETENTION_S, abs=30)


@pytest.mark.parametrize("archived_from", [0, 1])
async def test_only_final_transcripts_of_archived_sessions_are_kept_for_the_archive(
    store: Redis, archived_from: int
) -> None:
    await SessionStore(store).create(replace(open_session(), archived_from=archived_from), max_sessions=1)
    transcripts = TranscriptStore(store)
    await transcripts.publish(SSRC, said(7, kind=EventKind.PARTIAL))
    await transcripts.publish(SSRC, said(7))
    await transcripts.publish(SSRC, said(9, "no"))
    await transcripts.publish(SSRC, said(9, "", EventKind.END))
    assert await transcripts.read_finals(SSRC) == ([said(7), said(9, "no")] if archived_from else [])


async def test_other_errors_of_the_store_are_raised(store: Redis) -> None:
    await store.set(state.build_transcript_key(SSRC), "text")
    with pytest.raises(ResponseError, match="WRONGTYPE"):
        await TranscriptStore(store).publish(SSRC, said(7))


async def test_invalid_entries_are_skipped(store: Redis) -> None:
    await add_entries(store, b"{}", b"", said(3), b"no", said(5))
    transcripts = TranscriptStore(store)
    for count in (1, 2, 3, 9):
        found, after = [], EventId(0, 0)
        while events := await transcripts.read(SSRC, after, count=count):
            assert len(events) <= count
            found += [event for _, event in events]
            after, _ = events[-1]
        assert found == [said(3), said(5)]


async def test_several_sessions_are_read_at_once(store: Redis) -> None:
    transcripts = TranscriptStore(store)
    for ssrc in (1, 2, 3):
        for utterance in (5, 6, 7):
            await transcripts.publish(ssrc, said(utterance, f"{ssrc}"))
    await store.xadd(state.build_transcript_key(4), {b"event": b"{}"}, id="9-1")
    final = 2**32
    found = await transcripts.read_many(
        {1: EventId(0, 0), 2: EventId(5, final), 3: EventId(7, final), 4: EventId(0, 0), 5: EventId(0, 0)}, count=2
    )
    assert found == {
        1: [(EventId(5, final), said(5, "1")), (EventId(6, final), said(6, "1"))],
        2: [(EventId(6, final), said(6, "2")), (EventId(7, final), said(7, "2"))],
        4: [(EventId(9, 1), None)],
    }


async def test_the_last_final_transcript_is_found_before_later_events(store: Redis) -> None:
    transcripts = TranscriptStore(store)
    assert await transcripts.read_last_final(SSRC) is None
    partials = [said(utterance, kind=EventKind.PARTIAL) for utterance in range(3, 203)]
    others = [said(203, kind=kind) for kind in EventKind if kind is not EventKind.FINAL]
    await add_entries(store, said(1), said(2), *partials, *others, b"{}")
    assert await transcripts.read_last_final(SSRC) == said(2)


async def test_invalid_entries_are_logged_once_per_session_and_without_words(
    store: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    transcripts = TranscriptStore(store)
    await add_entries(store, b"secret words", b"more words", said(3))
    await store.xadd(state.build_transcript_key(5), {b"event": b"{}"})
    with caplog.at_level(logging.ERROR):
        for _ in range(2):
            assert await transcripts.read(SSRC) == [(EventId(3, 1), said(3))]
            assert await transcripts.read(5) == []
    assert [record.__dict__["fields"] for record in caplog.records] == [{"ssrc": SSRC}, {"ssrc": 5}]
    assert "words" not in caplog.text
