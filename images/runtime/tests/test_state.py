"""State in Valkey, on a real server."""

import asyncio
import time
from dataclasses import replace

import pytest
from redis.asyncio import Redis
from redis.asyncio.client import Pipeline
from redis.exceptions import ConnectionError as StoreConnectionError
from redis.exceptions import WatchError

from voice_blueprint.contract.network import Tier
from voice_blueprint.contract.state import HOST_HEARTBEAT_INTERVAL_S, HOST_HEARTBEAT_TIMEOUT_S, SentAudioField
from voice_runtime import journal as journal_module
from voice_runtime import state
from voice_runtime.hosts import Host, HostKind, HostRegistry
from voice_runtime.journal import AudioJournal
from voice_runtime.sessions import Session, SessionKind, SessionState, SessionStore, TooManySessionsError
from voice_runtime.transcripts import GAP_NUMBER_BASE, EventId, EventKind, Transcript, TranscriptStore

SSRC = 4_000_000_000


def session(ssrc: int = SSRC, caller: str = "a") -> Session:
    return Session(
        ssrc, f"{ssrc:08x}-x", SessionState.OPEN, SessionKind.GATEWAY, caller, expires_at=int(time.time()) + 60
    )


def said(utterance: int, text: str = "yes", kind: EventKind = EventKind.FINAL) -> Transcript:
    return Transcript(kind=kind, utterance=utterance, text=text, start_ms=utterance * 20, end_ms=utterance * 20 + 500)


async def test_session_round_trips(store: Redis) -> None:
    sessions = SessionStore(store)
    made = replace(session(), language="de")
    assert await sessions.create(made, max_sessions=1)
    assert await sessions.read(SSRC) == made
    assert await sessions.read(SSRC + 1) is None


async def test_existing_ssrc_is_not_overwritten(store: Redis) -> None:
    sessions = SessionStore(store)
    made = session()
    await sessions.create(made, max_sessions=9)
    other = replace(made, id="other", caller="b")
    assert not await sessions.create(other, max_sessions=9)
    assert await sessions.read(SSRC) == made


async def test_live_sessions_per_caller_are_limited(store: Redis) -> None:
    sessions = SessionStore(store)
    outcomes = await asyncio.gather(
        *(sessions.create(session(ssrc), max_sessions=5) for ssrc in range(20)), return_exceptions=True
    )
    assert sum(outcome is True for outcome in outcomes) <= 5
    assert sum(isinstance(outcome, TooManySessionsError) for outcome in outcomes) >= 15
    assert await store.zcard(state.build_caller_sessions_key("a")) <= 5
    assert await sessions.create(session(99, "b"), max_sessions=5)


async def test_a_callers_session_list_expires_with_its_last_session(store: Redis) -> None:
    sessions, now = SessionStore(store), int(time.time())
    for ssrc, seconds in ((1, 500), (2, 60), (3, 900)):
        assert await sessions.create(replace(session(ssrc), expires_at=now + seconds), max_sessions=5)
        longest = max(500, seconds)
        left = await store.expiretime(state.build_caller_sessions_key("a"))
        assert left == now + longest + state.SESSION_RETENTION_S


async def test_events_of_an_utterance_are_numbered_in_order(store: Redis) -> None:
    transcripts = TranscriptStore(store)
    order = (EventKind.SPEECH_STARTED, EventKind.PARTIAL, EventKind.SPEECH_STOPPED, EventKind.FINAL, EventKind.END)
    for kind in order:
        assert await transcripts.publish(SSRC, said(7, "yes", kind), number=2)
    events = await transcripts.read(SSRC, EventId(0, 0))
    assert [each.kind for _, each in events] == list(order)
    assert [place for place, _ in events][:2] == [EventId(7, 1), EventId(7, 2)]


async def test_closed_session_frees_its_slot_and_rejects_audio(store: Redis) -> None:
    sessions = SessionStore(store)
    await sessions.create(session(), max_sessions=1)
    await sessions.close(session())
    closed = await sessions.read(SSRC)
    assert closed is not None
    assert closed.state is SessionState.CLOSED
    assert await sessions.create(session(1), max_sessions=1)


async def test_grace_period_does_not_reopen_a_closed_session(store: Redis) -> None:
    """A socket of another gateway may end after the session was closed."""
    sessions, made = SessionStore(store), replace(session(), archived_from=1)
    await sessions.create(made, max_sessions=1)
    await sessions.close(made)
    await store.zadd(state.SESSIONS_TO_ARCHIVE_KEY, {str(SSRC): 5})
    await sessions.start_grace_period(made, 20)
    assert await store.zcard(state.build_caller_sessions_key("a")) == 0
    assert await store.zscore(state.SESSIONS_TO_ARCHIVE_KEY, str(SSRC)) == 5
    assert -1 not in [await store.ttl(key) for key in await store.keys()]


async def test_extended_session_counts_again_after_its_entry_lapsed(store: Redis) -> None:
    """Another session of the caller removes lapsed entries, for example after a stall of the store."""
    sessions, made = SessionStore(store), replace(session(), archived_from=1)
    await sessions.create(made, max_sessions=1)
    await sessions.start_grace_period(made, 20)
    await store.zrem(state.build_caller_sessions_key("a"), str(SSRC))
    assert await sessions.extend_grace_period(made, 30)
    for key in (state.build_caller_sessions_key("a"), state.SESSIONS_TO_ARCHIVE_KEY):
        assert await store.zscore(key, str(SSRC)) == pytest.approx(time.time() + 30, abs=5)
    assert -1 not in [await store.ttl(key) for key in await store.keys()]
    with pytest.raises(TooManySessionsError):
        await sessions.create(session(1), max_sessions=1)


async def test_resumed_session_counts_again_after_its_entry_lapsed(store: Redis) -> None:
    sessions, made = SessionStore(store), session()
    await sessions.create(made, max_sessions=1)
    await store.zrem(state.build_caller_sessions_key("a"), str(SSRC))
    await sessions.resume(made)
    assert await store.zscore(state.build_caller_sessions_key("a"), str(SSRC)) == made.expires_at
    assert -1 not in [await store.ttl(key) for key in await store.keys()]


@pytest.mark.parametrize("is_closed", [True, False])
async def test_extending_restores_neither_a_closed_nor_an_expired_session(store: Redis, is_closed: bool) -> None:
    sessions, made = SessionStore(store), session()
    if is_closed:
        await sessions.create(made, max_sessions=1)
        await sessions.close(made)
    assert not await sessions.extend_grace_period(made, 20)
    assert await store.keys() == ([state.build_session_key(SSRC).encode()] if is_closed else [])


async def test_session_closed_while_it_is_extended_stays_closed(store: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    sessions, made = SessionStore(store), session()
    await sessions.create(made, max_sessions=1)
    read = Pipeline.hget

    async def close_after_read(pipe: Pipeline, key: str, field: str) -> object:
        value = await read(pipe, key, field)
        await sessions.close(made)
        return value

    with monkeypatch.context() as race:
        race.setattr(Pipeline, "hget", close_after_read)
        with pytest.raises(WatchError):
            await sessions.extend_grace_period(made, 20)
    assert not await store.zcard(state.build_caller_sessions_key("a"))


async def test_session_is_done_when_finals_cover_all_sent_audio(store: Redis) -> None:
    sessions, transcripts = SessionStore(store), TranscriptStore(store)
    await sessions.create(session(), max_sessions=1)
    await store.hset(state.build_sent_audio_key(SSRC), SentAudioField.LAST_SEQUENCE, "40")
    await transcripts.mark_transcribed(SSRC, 35, 1)
    unfinished = await sessions.read(SSRC)
    await transcripts.mark_transcribed(SSRC, 40, 1)
    finished = await sessions.read(SSRC)
    assert unfinished is not None
    assert finished is not None
    assert (unfinished.is_transcribed, finished.is_transcribed) == (False, True)


async def test_cover_creates_no_record_without_expiry(store: Redis) -> None:
    await TranscriptStore(store).mark_transcribed(SSRC, 35, 1)
    await TranscriptStore(store).add_lost_audio(SSRC, 500)
    assert not await store.exists(state.build_session_key(SSRC))
    assert 0 < await store.ttl(state.build_transcription_progress_key(SSRC)) <= state.SESSION_RETENTION_S


async def test_srtp_key_is_stored_separately_and_expires_with_its_session(store: Redis) -> None:
    sessions = SessionStore(store)
    made = replace(session(), kind=SessionKind.EXTERNAL, srtp_key="a2V5")
    await sessions.create(made, max_sessions=1)
    assert await sessions.read(SSRC) == replace(made, srtp_key=None)
    assert await sessions.read_srtp_key(SSRC) == "a2V5"
    assert 0 < await store.ttl(state.build_srtp_entry_key(SSRC)) <= 60 + state.SESSION_RETENTION_S
    await sessions.close(made)
    assert await sessions.read_srtp_key(SSRC) is None


async def test_everything_expires(store: Redis) -> None:
    journal = AudioJournal(store, "h1")
    await SessionStore(store).create(session(), max_sessions=1)
    await TranscriptStore(store).publish(SSRC, said(0), 1)
    await journal.acquire(SSRC)
    await journal.append([(SSRC, b"chunk")])
    await HostRegistry(store, Tier.ASR).send_heartbeat(Host("h1", HostKind.GPU, "10.0.0.1", 3, draining=False))
    forever = [key for key in await store.keys() if await store.ttl(key) < 0]
    assert forever == [state.build_hosts_key(Tier.ASR).encode()], "the set of hosts, whose readers tidy it"


async def test_transcript_is_followed_without_gap_or_duplicate(store: Redis) -> None:
    transcripts = TranscriptStore(store)
    events = [(0, EventKind.PARTIAL), (0, EventKind.FINAL), (50, EventKind.FINAL), (90, EventKind.PARTIAL)]
    for number, (utterance, kind) in enumerate(events, 1):
        assert await transcripts.publish(SSRC, said(utterance, kind=kind), number)
    read = await transcripts.read(SSRC)
    assert [(place.utterance, event.kind) for place, event in read] == events
    assert [place for place, _ in await transcripts.read(SSRC, read[1][0])] == [place for place, _ in read[2:]]


async def test_utterance_has_one_final_from_any_host(store: Redis) -> None:
    transcripts = TranscriptStore(store)
    assert await transcripts.publish(SSRC, said(10), 3)
    assert not await transcripts.publish(SSRC, said(10, "no"), 1), "another host's"
    assert not await transcripts.publish(SSRC, said(10, "ye", EventKind.PARTIAL), 9), "after the final"
    assert not await transcripts.publish(SSRC, said(4), 1), "an earlier utterance"
    [(place, event)] = await transcripts.read(SSRC)
    assert (place, event.text) == (EventId(10, 2**32), "yes")


async def test_repeated_event_of_the_same_host_is_new(store: Redis) -> None:
    """The client repeats a command whose reply is lost."""
    transcripts = TranscriptStore(store)
    assert await transcripts.publish(SSRC, said(7))
    assert await store.persist(state.build_transcript_key(SSRC))
    assert await transcripts.publish(SSRC, said(7))
    assert await store.ttl(state.build_transcript_key(SSRC)) > 0
    assert [each.text for _, each in await transcripts.read(SSRC)] == ["yes"]
    assert await store.persist(state.build_transcript_key(SSRC))
    assert not await transcripts.publish(SSRC, said(7, "no"))
    assert await store.ttl(state.build_transcript_key(SSRC)) > 0


async def test_identical_event_of_another_host_is_not_new(store: Redis) -> None:
    """A host that takes a session over finds the same gap, and its duration must not be counted twice."""
    first, second, gap = TranscriptStore(store), TranscriptStore(store), said(7, "", EventKind.GAP)
    assert await first.publish(SSRC, gap, GAP_NUMBER_BASE)
    assert not await second.publish(SSRC, gap, GAP_NUMBER_BASE)
    assert await first.publish(SSRC, gap, GAP_NUMBER_BASE), "its own, repeated"
    assert [event for _, event in await second.read(SSRC)] == [gap]


@pytest.mark.parametrize("field", ["event", "other"])
async def test_event_of_another_release_is_not_new(store: Redis, field: str) -> None:
    await store.xadd(
        state.build_transcript_key(SSRC), {field: said(7).model_dump_json(exclude_defaults=True)}, id=f"7-{2**32}"
    )
    assert not await TranscriptStore(store).publish(SSRC, said(7))


async def test_transcript_length_is_limited(store: Redis) -> None:
    transcripts = TranscriptStore(store)
    for utterance in range(state.MAX_TRANSCRIPT_EVENTS + 600):
        await transcripts.publish(SSRC, said(utterance), 1)
    assert await store.xlen(state.build_transcript_key(SSRC)) <= state.MAX_TRANSCRIPT_EVENTS + 200, (
        "trimmed by whole nodes"
    )


@pytest.mark.parametrize("text", ["", "5", "5-", "-5", "a-b", "1-2-3", "+1-2", f"{2**64}-1", "\u0661-\u0661"])
def test_invalid_event_ids_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no event id"):
        EventId.parse(text)


async def test_one_survivor_takes_over_when_the_lease_has_run_out(store: Redis) -> None:
    await AudioJournal(store, "dead").acquire(SSRC)
    survivors = [AudioJournal(store, f"h{i}") for i in range(5)]
    assert not any([await survivor.claim_session(SSRC) for survivor in survivors])
    await store.delete(state.build_host_lease_key(SSRC))
    assert sum(await asyncio.gather(*(survivor.claim_session(SSRC) for survivor in survivors))) == 1


async def test_renewal_keeps_held_leases_and_releases_expired_ones(store: Redis) -> None:
    journal = AudioJournal(store, "h1")
    for ssrc in (1, 2):
        await journal.acquire(ssrc)
    await store.delete(state.build_host_lease_key(1))
    await store.expire(state.build_host_lease_key(2), 1)
    assert await journal.renew([1, 2]) == []
    for ssrc in (1, 2):
        assert await store.get(state.build_host_lease_key(ssrc)) == b"h1"
        assert await store.ttl(state.build_host_lease_key(ssrc)) > 1


async def test_host_is_notified_of_lost_leases(store: Redis) -> None:
    first, second = AudioJournal(store, "h1"), AudioJournal(store, "h2")
    for ssrc in (1, 2, 3):
        await first.acquire(ssrc)
    await second.acquire(2)
    assert await first.renew([1, 2, 3]) == [2]
    assert await second.renew([2]) == []


class Clock:
    """A clock that tests advance."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(journal_module, "time", found)
    return found


async def search_until_dead(survivor: AudioJournal, clock: Clock) -> list[int]:
    """Search once per heartbeat until hosts without a record count as failed."""
    for _ in range(HOST_HEARTBEAT_TIMEOUT_S):
        assert await survivor.find_orphaned_sessions() == []
        clock.now += 1
    return await survivor.find_orphaned_sessions()


async def test_orphans_are_the_sessions_of_dead_hosts(store: Redis, clock: Clock) -> None:
    registry = HostRegistry(store, Tier.ASR)
    dead, alive = AudioJournal(store, "dead"), AudioJournal(store, "alive")
    for host in ("dead", "alive"):
        await registry.send_heartbeat(Host(host, HostKind.GPU, "10.0.0.1", 3, draining=False))
    await dead.acquire(1)
    await alive.acquire(2)
    survivor = AudioJournal(store, "me")
    assert await survivor.find_orphaned_sessions() == []
    await store.delete(state.build_host_key(Tier.ASR, "dead"))
    assert await search_until_dead(survivor, clock) == [1]


async def test_sessions_of_live_hosts_are_not_orphans_after_an_outage(store: Redis, clock: Clock) -> None:
    """Records and leases of all hosts expire during an outage of the store, and each host writes its own again."""
    registry, owner, survivor = HostRegistry(store, Tier.ASR), AudioJournal(store, "h1"), AudioJournal(store, "h2")
    host = Host("h1", HostKind.GPU, "10.0.0.1", 3, draining=False)
    await registry.send_heartbeat(host)
    await owner.acquire(1)
    assert await survivor.find_orphaned_sessions() == []
    await store.delete(state.build_host_key(Tier.ASR, "h1"), state.build_host_lease_key(1))
    clock.now += 60
    assert await survivor.find_orphaned_sessions() == []
    await registry.send_heartbeat(host)
    clock.now += HOST_HEARTBEAT_TIMEOUT_S
    assert await survivor.find_orphaned_sessions() == []
    await store.delete(state.build_host_key(Tier.ASR, "h1"))
    assert await search_until_dead(survivor, clock) == [1]


async def search_once(store: Redis) -> AudioJournal:
    """Return the journal of a host that has searched once, and has found no record of a host with a session."""
    survivor = AudioJournal(store, "h2")
    await store.sadd(state.build_hosts_key(Tier.ASR), "h1")
    await AudioJournal(store, "h1").acquire(1)
    assert await survivor.find_orphaned_sessions() == []
    return survivor


async def test_searches_that_fail_do_not_count_against_hosts(
    store: Redis, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(_: str) -> set[bytes]:
        raise StoreConnectionError

    survivor = await search_once(store)
    with monkeypatch.context() as outage:
        outage.setattr(store, "smembers", fail)
        with pytest.raises(StoreConnectionError):
            await survivor.find_orphaned_sessions()
    clock.now += HOST_HEARTBEAT_TIMEOUT_S
    assert await search_until_dead(survivor, clock) == [1]


async def test_hosts_do_not_fail_while_the_searching_host_is_stuck(store: Redis, clock: Clock) -> None:
    """A stall of the store raises no error if it is shorter than the client's timeout; a stuck host does not search."""
    survivor = await search_once(store)
    clock.now += 60
    assert await search_until_dead(survivor, clock) == [1]


async def test_hosts_do_not_fail_while_a_search_stalls(
    store: Redis, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = store.exists

    async def find_after_stall(key: str) -> int:
        clock.now += 60
        return int(await find(key))

    survivor = await search_once(store)
    with monkeypatch.context() as stall:
        stall.setattr(store, "exists", find_after_stall)
        assert await survivor.find_orphaned_sessions() == []
    assert await search_until_dead(survivor, clock) == [1]


@pytest.mark.parametrize(
    ("interval_s", "is_found"), [(2 * HOST_HEARTBEAT_INTERVAL_S, True), (2.5 * HOST_HEARTBEAT_INTERVAL_S, False)]
)
async def test_orphans_are_found_by_searches_in_short_succession(
    store: Redis, clock: Clock, interval_s: float, is_found: bool
) -> None:
    survivor = await search_once(store)
    clock.now += interval_s
    assert await survivor.find_orphaned_sessions() == []
    clock.now += interval_s
    assert await survivor.find_orphaned_sessions() == ([1] if is_found else [])


async def test_unfinished_audio_is_stored_in_order_until_it_is_deleted(store: Redis) -> None:
    journal = AudioJournal(store, "h")
    ids = await journal.append([(SSRC, bytes([i])) for i in range(5)])
    await journal.delete(SSRC, ids[:3])
    assert await journal.read_entries(SSRC) == [(ids[3], b"\3"), (ids[4], b"\4")]
    await journal.append([(SSRC, bytes(8)) for _ in range(3 * state.MAX_AUDIO_CHUNKS)])
    assert await store.xlen(state.build_audio_key(SSRC)) <= state.MAX_AUDIO_CHUNKS + 200


def test_a_record_of_a_host_that_is_incomplete_has_careful_defaults() -> None:
    record = {"kind": "gpu", "address": "10.0.0.1", "free_slots": "-1", "draining": "0", "heartbeat": "5"}
    host = Host("h", HostKind.GPU, "10.0.0.1", 0, draining=False, heartbeat="5")
    assert Host.from_fields("h", record) == host
    assert not host.accepts_sessions
    assert Host.from_fields("h", record | {"free_slots": "1", "draining": "1"}) == replace(
        host, free_slots=1, draining=True
    )
    full = {"free_slots": "1", "slots": "-4", "languages": "de,,en", "zone": "a"}
    assert Host.from_fields("h", record | full) == replace(host, free_slots=1, languages=("de", "en"), zone="a")
    assert replace(host, free_slots=1).accepts_sessions
    assert not replace(host, free_slots=1, draining=True).accepts_sessions
    for wrong in ({"kind": "abacus"}, {"address": "::1"}, {"free_slots": "many"}):
        assert Host.from_fields("h", record | wrong) is None


async def test_registry_lists_live_hosts(store: Redis) -> None:
    registry = HostRegistry(store, Tier.ASR)
    host = Host("h1", HostKind.NEURON, "10.0.0.1", 3, draining=False)
    await registry.send_heartbeat(host)
    await store.sadd(state.build_hosts_key(Tier.ASR), "expired", "malformed")
    await store.hset(state.build_host_key(Tier.ASR, "malformed"), "kind", "abacus")
    (found,) = await registry.read_live_hosts()
    assert replace(found, heartbeat="") == host
    await registry.remove("h1")
    assert await registry.read_live_hosts() == []


async def test_orphans_are_found_after_other_hosts_cleaned_the_registry(store: Redis, clock: Clock) -> None:
    registry, survivor = HostRegistry(store, Tier.ASR), AudioJournal(store, "me")
    await registry.send_heartbeat(Host("dead", HostKind.GPU, "10.0.0.1", 3, draining=False))
    await AudioJournal(store, "dead").acquire(1)
    assert await survivor.find_orphaned_sessions() == []
    await registry.remove("dead")
    assert await search_until_dead(survivor, clock) == [1]
    assert await survivor.find_orphaned_sessions() == [1], "until a host has claimed it"


async def test_adopted_orphan_is_no_longer_listed(store: Redis, clock: Clock) -> None:
    survivor = AudioJournal(store, "me")
    await store.sadd(state.build_hosts_key(Tier.ASR), "dead")
    await AudioJournal(store, "dead").acquire(1)
    await store.delete(state.build_host_lease_key(1))
    assert await search_until_dead(survivor, clock) == [1]
    assert await survivor.claim_session(1)
    await survivor.release(1)
    assert await survivor.find_orphaned_sessions() == []


@pytest.mark.parametrize("is_expired", [False, True])
async def test_renewal_does_not_affect_a_new_owner_of_the_session(
    store: Redis, monkeypatch: pytest.MonkeyPatch, is_expired: bool
) -> None:
    first, second = AudioJournal(store, "h1"), AudioJournal(store, "h2")
    await first.acquire(1)
    if is_expired:
        await store.delete(state.build_host_lease_key(1))
    read_holders = store.mget

    async def overtaken(keys: list[str]) -> object:
        holders = await read_holders(keys)
        await second.acquire(1)
        return holders

    monkeypatch.setattr(store, "mget", overtaken)
    await first.renew([1])
    monkeypatch.undo()
    assert await first.renew([1]) == [1]


@pytest.mark.parametrize("other", ["h0", "h2"])
async def test_leases_of_other_hosts_are_not_renewed(store: Redis, other: str) -> None:
    await AudioJournal(store, other).acquire(1)
    await store.expire(state.build_host_lease_key(1), 1)
    assert await AudioJournal(store, "h1").renew([1]) == [1]
    assert await store.ttl(state.build_host_lease_key(1)) <= 1


async def test_entries_are_deleted_individually(store: Redis) -> None:
    journal = AudioJournal(store, "h")
    ids = await journal.append([(SSRC, b"a"), (SSRC, b"b"), (SSRC, b"c")])
    assert await journal.read_entries(SSRC) == list(zip(ids, (b"a", b"b", b"c"), strict=True))
    await journal.delete(SSRC, [ids[0], ids[2]])
    await journal.delete(SSRC, [])
    assert await journal.read_entries(SSRC) == [(ids[1], b"b")]
