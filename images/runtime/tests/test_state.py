"""What is kept in Valkey, on a real server."""

import asyncio
import time
from dataclasses import replace

import pytest
from redis.asyncio import Redis

from blueprint.contract.network import Tier
from blueprint.contract.state import SessionField
from voice_runtime import state
from voice_runtime.hosts import Host, HostKind, HostRegistry
from voice_runtime.journal import Journal
from voice_runtime.sessions import Session, SessionKind, Sessions, SessionState, TooManySessionsError
from voice_runtime.transcripts import EventId, EventKind, Transcript, Transcripts

SSRC = 4_000_000_000


def session(ssrc: int = SSRC, caller: str = "a") -> Session:
    return Session(
        ssrc, f"{ssrc:08x}-x", SessionState.OPEN, SessionKind.GATEWAY, caller, expires_at=int(time.time()) + 60
    )


def said(utterance: int, text: str = "yes", kind: EventKind = EventKind.FINAL) -> Transcript:
    return Transcript(kind=kind, utterance=utterance, text=text, start_ms=utterance * 20, end_ms=utterance * 20 + 500)


async def test_session_is_read_as_it_was_made(store: Redis) -> None:
    sessions = Sessions(store)
    made = replace(session(), language="de")
    assert await sessions.create(made, most_of_caller=1)
    assert await sessions.read(SSRC) == made
    assert await sessions.read(SSRC + 1) is None


async def test_taken_ssrc_is_not_overwritten(store: Redis) -> None:
    sessions = Sessions(store)
    made = session()
    await sessions.create(made, most_of_caller=9)
    other = replace(made, id="other", caller="b")
    assert not await sessions.create(other, most_of_caller=9)
    assert await sessions.read(SSRC) == made


async def test_caller_has_so_many_live_sessions_and_no_more(store: Redis) -> None:
    sessions = Sessions(store)
    outcomes = await asyncio.gather(
        *(sessions.create(session(ssrc), most_of_caller=5) for ssrc in range(20)), return_exceptions=True
    )
    assert sum(outcome is True for outcome in outcomes) <= 5
    assert sum(isinstance(outcome, TooManySessionsError) for outcome in outcomes) >= 15
    assert await store.zcard(state.caller_sessions("a")) <= 5
    assert await sessions.create(session(99, "b"), most_of_caller=5)


async def test_closed_session_makes_room_and_takes_no_audio(store: Redis) -> None:
    sessions = Sessions(store)
    await sessions.create(session(), most_of_caller=1)
    await sessions.close(session())
    closed = await sessions.read(SSRC)
    assert closed is not None
    assert closed.state is SessionState.CLOSED
    assert await sessions.create(session(1), most_of_caller=1)


async def test_session_is_done_when_finals_cover_what_was_shipped(store: Redis) -> None:
    sessions, transcripts = Sessions(store), Transcripts(store)
    await sessions.create(session(), most_of_caller=1)
    await store.hset(state.session(SSRC), SessionField.LAST_SEQUENCE, "40")
    await transcripts.covered(SSRC, 35, 1)
    unfinished = await sessions.read(SSRC)
    await transcripts.covered(SSRC, 40, 1)
    finished = await sessions.read(SSRC)
    assert unfinished is not None
    assert finished is not None
    assert (unfinished.all_transcribed, finished.all_transcribed) == (False, True)


async def test_cover_makes_no_record_that_never_expires(store: Redis) -> None:
    await Transcripts(store).covered(SSRC, 35, 1)
    assert not await store.exists(state.session(SSRC))


async def test_everything_expires(store: Redis) -> None:
    journal = Journal(store, "h1")
    await Sessions(store).create(session(), most_of_caller=1)
    await Transcripts(store).publish(SSRC, said(0), 1)
    await journal.take(SSRC)
    await journal.append([(SSRC, b"chunk")])
    await HostRegistry(store, Tier.ASR).beat(Host("h1", HostKind.GPU, "10.0.0.1", 3, draining=False))
    forever = [key for key in await store.keys() if await store.ttl(key) < 0]
    assert forever == [state.hosts(Tier.ASR).encode()], "the set of hosts, whose readers tidy it"


async def test_transcript_is_followed_without_gap_or_duplicate(store: Redis) -> None:
    transcripts = Transcripts(store)
    events = [(0, EventKind.PARTIAL), (0, EventKind.FINAL), (50, EventKind.FINAL), (90, EventKind.PARTIAL)]
    for number, (utterance, kind) in enumerate(events, 1):
        assert await transcripts.publish(SSRC, said(utterance, kind=kind), number)
    read = await transcripts.read(SSRC)
    assert [(place.utterance, event.kind) for place, event in read] == events
    assert [place for place, _ in await transcripts.read(SSRC, read[1][0])] == [place for place, _ in read[2:]]


async def test_utterance_has_one_final_whoever_says_it(store: Redis) -> None:
    transcripts = Transcripts(store)
    assert await transcripts.publish(SSRC, said(10), 3)
    assert not await transcripts.publish(SSRC, said(10, "no"), 1), "another host's"
    assert not await transcripts.publish(SSRC, said(10, "ye", EventKind.PARTIAL), 9), "after the final"
    assert not await transcripts.publish(SSRC, said(4), 1), "an earlier utterance"
    [(place, event)] = await transcripts.read(SSRC)
    assert (place, event.text) == (EventId(10, 2**32), "yes")


async def test_transcript_is_bounded(store: Redis) -> None:
    transcripts = Transcripts(store)
    for utterance in range(state.TRANSCRIPT_EVENTS + 600):
        await transcripts.publish(SSRC, said(utterance), 1)
    assert await store.xlen(state.transcript(SSRC)) <= state.TRANSCRIPT_EVENTS + 200, "trimmed by whole nodes"


@pytest.mark.parametrize("text", ["", "5", "5-", "-5", "a-b", "1-2-3", "+1-2", f"{2**64}-1", "\u0661-\u0661"])
def test_what_is_no_event_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no event id"):
        EventId.of(text)


async def test_one_survivor_takes_over_when_the_lease_has_run_out(store: Redis) -> None:
    await Journal(store, "dead").take(SSRC)
    survivors = [Journal(store, f"h{i}") for i in range(5)]
    assert not any([await survivor.take_over(SSRC) for survivor in survivors])
    await store.delete(state.lease(SSRC))
    assert sum(await asyncio.gather(*(survivor.take_over(SSRC) for survivor in survivors))) == 1


async def test_host_learns_what_it_has_lost(store: Redis) -> None:
    first, second = Journal(store, "h1"), Journal(store, "h2")
    for ssrc in (1, 2, 3):
        await first.take(ssrc)
    await second.take(2)
    assert await first.renew([1, 2, 3]) == [2]
    assert await second.renew([2]) == []


async def test_orphans_are_the_sessions_of_dead_hosts(store: Redis) -> None:
    registry = HostRegistry(store, Tier.ASR)
    dead, alive = Journal(store, "dead"), Journal(store, "alive")
    for host in ("dead", "alive"):
        await registry.beat(Host(host, HostKind.GPU, "10.0.0.1", 3, draining=False))
    await dead.take(1)
    await alive.take(2)
    assert await Journal(store, "me").orphans() == []
    await store.delete(state.host(Tier.ASR, "dead"))
    assert await Journal(store, "me").orphans() == [1]


async def test_unfinished_audio_is_kept_in_order_until_it_is_forgotten(store: Redis) -> None:
    journal = Journal(store, "h")
    ids = await journal.append([(SSRC, bytes([i])) for i in range(5)])
    await journal.forget(SSRC, ids[:3])
    assert await journal.entries(SSRC) == [(ids[3], b"\3"), (ids[4], b"\4")]
    await journal.append([(SSRC, bytes(8)) for _ in range(3 * state.AUDIO_CHUNKS)])
    assert await store.xlen(state.audio(SSRC)) <= state.AUDIO_CHUNKS + 200


async def test_registry_tells_who_is_alive(store: Redis) -> None:
    registry = HostRegistry(store, Tier.ASR)
    host = Host("h1", HostKind.NEURON, "10.0.0.1", 3, draining=False)
    await registry.beat(host)
    await store.sadd(state.hosts(Tier.ASR), "expired", "malformed")
    await store.hset(state.host(Tier.ASR, "malformed"), "kind", "abacus")
    (found,) = await registry.alive()
    assert replace(found, heartbeat="") == host
    await registry.leave("h1")
    assert await registry.alive() == []


async def test_orphans_are_found_when_others_have_tidied_the_registry(store: Redis) -> None:
    registry, survivor = HostRegistry(store, Tier.ASR), Journal(store, "me")
    await registry.beat(Host("dead", HostKind.GPU, "10.0.0.1", 3, draining=False))
    await Journal(store, "dead").take(1)
    assert await survivor.orphans() == []
    await registry.leave("dead")
    assert await survivor.orphans() == [1]


async def test_orphan_that_was_taken_over_is_none_any_more(store: Redis) -> None:
    survivor = Journal(store, "me")
    await store.sadd(state.hosts(Tier.ASR), "dead")
    await Journal(store, "dead").take(1)
    await store.delete(state.lease(1))
    assert await survivor.orphans() == [1]
    assert await survivor.take_over(1)
    await survivor.release(1)
    assert await survivor.orphans() == []


async def test_renewal_takes_nothing_from_whoever_takes_the_session_meanwhile(
    store: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = Journal(store, "h1"), Journal(store, "h2")
    await first.take(1)
    read_holders = store.mget

    async def overtaken(keys: list[str]) -> object:
        holders = await read_holders(keys)
        await second.take(1)
        return holders

    monkeypatch.setattr(store, "mget", overtaken)
    await first.renew([1])
    monkeypatch.undo()
    assert await first.renew([1]) == [1]


async def test_entries_are_forgotten_one_by_one(store: Redis) -> None:
    journal = Journal(store, "h")
    ids = await journal.append([(SSRC, b"a"), (SSRC, b"b"), (SSRC, b"c")])
    assert await journal.entries(SSRC) == list(zip(ids, (b"a", b"b", b"c"), strict=True))
    await journal.forget(SSRC, [ids[0], ids[2]])
    await journal.forget(SSRC, [])
    assert await journal.entries(SSRC) == [(ids[1], b"b")]
