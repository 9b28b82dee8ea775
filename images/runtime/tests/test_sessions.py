"""Records of sessions: what a reader finds in them, and that each change is written completely or not at all."""

import base64
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from types import SimpleNamespace

import pytest
from pydantic import SecretStr
from redis.asyncio import Redis
from redis.exceptions import NoPermissionError

from images.conftest import StoreServer
from voice_blueprint.contract.media import Codec
from voice_blueprint.contract.state import SessionField
from voice_runtime import sessions as sessions_module
from voice_runtime import state
from voice_runtime.media import MediaFormat
from voice_runtime.redaction import Redaction
from voice_runtime.replies import decode_fields, decode_text
from voice_runtime.sessions import (
    Session,
    SessionKind,
    SessionState,
    SessionStore,
    TooManySessionsError,
    get_primary_language,
)
from voice_runtime.store import connect
from voice_runtime.transcripts import TranscriptStore

SSRC = 4_000_000_000
REQUIRED = {"id": "x", "state": "open", "kind": "gateway", "caller": "a", "expires_at": "100"}
MINIMAL = Session(SSRC, "x", SessionState.OPEN, SessionKind.GATEWAY, "a", 100)


def open_session(ssrc: int = SSRC, seconds: int = 60) -> Session:
    return Session(ssrc, f"{ssrc}", SessionState.OPEN, SessionKind.GATEWAY, "a", int(time.time()) + seconds)


def archived_session(ssrc: int = SSRC, seconds: int = 60) -> Session:
    return replace(open_session(ssrc, seconds), archived_from=1)


async def read(sessions: SessionStore) -> Session:
    session = await sessions.read(SSRC)
    assert session is not None
    return session


def test_a_record_of_the_required_fields_is_that_of_a_session_without_audio_or_options() -> None:
    session = Session.from_fields(SSRC, REQUIRED, {}, {})
    assert session == MINIMAL
    assert (session.reconnect_by, session.refused_at, session.archived_from, session.begins_at) == (0, 0, 0, None)
    assert (session.last_sequence, session.last_transcribed_sequence) == (-1, -1)
    assert (session.chunk_count, session.next_chunk_number, session.lost_ms, session.wrong_payload_count) == (0,) * 4
    assert (session.received_s, session.characters) == (0.0, 0)


def test_a_record_contains_the_progress_of_each_tier() -> None:
    fields = {**REQUIRED, "begins_at": "0", "audio_s": "1.5", "lapses_at": "90"}
    session = Session.from_fields(
        SSRC,
        fields,
        {"last_sequence": "7", "chunks": "2", "wrong_payload": "3"},
        {"transcribed_to": "6", "transcribed_chunks": "1", "lost_ms": "20", "refused_at": "80", "characters": "11"},
    )
    assert session == replace(
        MINIMAL,
        begins_at=0,
        received_s=1.5,
        reconnect_by=90,
        last_sequence=7,
        chunk_count=2,
        wrong_payload_count=3,
        last_transcribed_sequence=6,
        next_chunk_number=1,
        lost_ms=20,
        refused_at=80,
        characters=11,
    )


@pytest.mark.parametrize("name", REQUIRED)
def test_an_incomplete_record_is_no_session(name: str) -> None:
    assert Session.from_fields(SSRC, {each: value for each, value in REQUIRED.items() if each != name}, {}, {}) is None


@pytest.mark.parametrize("wrong", [{"state": "ajar"}, {"expires_at": "soon"}, {"media": "L16"}, {"redact": "name"}])
def test_an_invalid_record_is_no_session(wrong: dict[str, str]) -> None:
    assert Session.from_fields(SSRC, REQUIRED | wrong, {}, {}) is None


@pytest.mark.parametrize(("reconnect_by", "ends_at"), [(0, 100), (50, 50), (100, 100), (150, 100)])
def test_a_session_ends_when_it_expires_or_its_caller_does_not_reconnect(
    monkeypatch: pytest.MonkeyPatch, reconnect_by: int, ends_at: int
) -> None:
    session = replace(MINIMAL, reconnect_by=reconnect_by)
    assert session.ends_at == ends_at
    for now, is_over in ((ends_at - 0.5, False), (ends_at, True), (ends_at + 0.5, True)):
        monkeypatch.setattr(sessions_module, "time", SimpleNamespace(time=lambda now=now: now))
        assert session.is_over is is_over


def test_a_closed_session_is_over_at_any_time() -> None:
    session = replace(open_session(), state=SessionState.CLOSED)
    assert session.is_over
    assert not open_session().is_over


def test_the_audio_of_a_session_is_what_its_sockets_received_or_ends_with_its_last_speech() -> None:
    heard = replace(MINIMAL, received_s=2.5, last_sequence=49)
    assert heard.audio_s == 2.5
    external = replace(heard, kind=SessionKind.EXTERNAL)
    assert external.audio_s == pytest.approx(1.0), "50 frames of 20 ms"
    assert replace(external, last_sequence=-1).audio_s == 0


@pytest.mark.parametrize(
    ("key_bytes", "suite"), [(30, "AES_CM_128_HMAC_SHA1_80"), (28, "AEAD_AES_128_GCM"), (29, None), (0, None)]
)
def test_the_suite_follows_from_the_length_of_the_key(key_bytes: int, suite: str | None) -> None:
    """Lengths of master key and salt: RFC 4568, section 6.2, and RFC 7714, section 14.2."""
    key = base64.b64encode(bytes(key_bytes)).decode()
    assert replace(MINIMAL, srtp_key=key).srtp_suite == suite
    assert MINIMAL.srtp_suite is None


@pytest.mark.parametrize(
    ("sent", "transcribed", "is_done"), [(-1, -1, True), (5, 4, False), (5, 5, True), (5, 6, True)]
)
def test_a_session_is_transcribed_when_its_last_speech_is(sent: int, transcribed: int, is_done: bool) -> None:
    session = replace(MINIMAL, last_sequence=sent, last_transcribed_sequence=transcribed)
    assert session.is_transcribed is is_done


@pytest.mark.parametrize(("tag", "language"), [("de-CH", "de"), ("EN", "en"), ("zh-Hant-TW", "zh"), ("fr", "fr")])
def test_models_use_the_primary_language_of_a_tag(tag: str, language: str) -> None:
    assert get_primary_language(tag) == language


async def test_all_settings_of_a_session_are_in_its_record(store: Redis) -> None:
    sessions = SessionStore(store)
    made = replace(
        archived_session(),
        media=MediaFormat(Codec.OPUS, 48000, 2, 60, 111),
        language="de",
        end_of_turn_ms=0,
        prompt="Voight-Kampff",
        redact=frozenset(Redaction),
        realtime="{}",
    )
    assert await sessions.create(made, max_sessions=1)
    assert await sessions.read(SSRC) == made


async def test_options_that_a_session_does_not_use_are_not_in_its_record(store: Redis) -> None:
    await SessionStore(store).create(open_session(), max_sessions=1)
    fields = decode_fields(await store.hgetall(state.build_session_key(SSRC)))
    assert set(fields) == {*REQUIRED, "media", "end_of_turn_ms"}


async def test_a_record_expires_some_time_after_its_session(store: Redis) -> None:
    sessions, made = SessionStore(store), replace(open_session(), srtp_key="a2V5")
    await sessions.create(made, max_sessions=1)
    for key in (state.build_session_key(SSRC), state.build_srtp_entry_key(SSRC)):
        assert await store.expiretime(key) == made.expires_at + state.SESSION_RETENTION_S
    assert not await sessions.create(replace(made, id="other", expires_at=made.expires_at + 9), max_sessions=1)
    assert await store.expiretime(state.build_session_key(SSRC)) == made.expires_at + state.SESSION_RETENTION_S
    await store.expireat(state.build_session_key(SSRC), made.expires_at + 9000)
    await sessions.close(made)
    assert await store.ttl(state.build_session_key(SSRC)) == pytest.approx(state.SESSION_RETENTION_S, abs=30)


async def test_a_refused_session_leaves_nothing_behind(store: Redis) -> None:
    sessions = SessionStore(store)
    await sessions.create(open_session(1), max_sessions=1)
    keys = set(await store.keys())
    with pytest.raises(TooManySessionsError, match="1 sessions are open"):
        await sessions.create(replace(archived_session(2), srtp_key="a2V5"), max_sessions=1)
    assert set(await store.keys()) == keys
    assert await store.zrange(state.build_caller_sessions_key("a"), 0, -1) == [b"1"]


async def test_a_session_owns_its_ssrc_although_a_reply_was_lost(store: Redis, lossy_store: Redis) -> None:
    """Regression: the client repeats the command, and the record remained without an owner until it expired."""
    session = open_session()
    assert await SessionStore(lossy_store).create(session, max_sessions=1)
    assert not await SessionStore(store).create(replace(session, id="another"), max_sessions=2)


async def test_sessions_that_have_expired_do_not_count(store: Redis) -> None:
    sessions = SessionStore(store)
    await store.zadd(state.build_caller_sessions_key("a"), {"1": time.time() - 1, "2": time.time() + 60})
    assert await sessions.create(open_session(3), max_sessions=2)
    assert sorted(await store.zrange(state.build_caller_sessions_key("a"), 0, -1)) == [b"2", b"3"]


async def test_the_list_of_sessions_to_archive_expires_with_the_last_of_them(store: Redis) -> None:
    sessions, now = SessionStore(store), int(time.time())
    for ssrc, seconds in ((1, 500), (2, 60), (3, 900)):
        assert await sessions.create(replace(archived_session(ssrc), expires_at=now + seconds), max_sessions=5)
        assert await store.zscore(state.SESSIONS_TO_ARCHIVE_KEY, str(ssrc)) == now + seconds
        left = await store.expiretime(state.SESSIONS_TO_ARCHIVE_KEY)
        assert left == now + max(500, seconds) + state.SESSION_RETENTION_S


async def test_a_session_that_is_not_archived_is_never_listed_for_it(store: Redis) -> None:
    sessions, made = SessionStore(store), open_session()
    await sessions.create(made, max_sessions=1)
    await sessions.start_grace_period(made, 20)
    assert await sessions.extend_grace_period(made, 20)
    await sessions.resume(made)
    await sessions.close(made)
    assert not await store.exists(state.SESSIONS_TO_ARCHIVE_KEY)


@pytest.mark.parametrize(("grace_s", "seconds"), [(20, 20), (500, 60)])
async def test_a_session_without_socket_ends_after_its_grace_period_or_when_it_expires(
    store: Redis, grace_s: int, seconds: int
) -> None:
    sessions, made = SessionStore(store), archived_session()
    await sessions.create(made, max_sessions=1)
    now = time.time()
    for begin in (sessions.start_grace_period, sessions.extend_grace_period):
        await begin(made, grace_s)
        assert (await read(sessions)).reconnect_by == pytest.approx(now + grace_s, abs=10)
        for key in (state.build_caller_sessions_key("a"), state.SESSIONS_TO_ARCHIVE_KEY):
            assert await store.zscore(key, str(SSRC)) == pytest.approx(now + seconds, abs=10)


async def test_a_resumed_session_continues_until_it_expires(store: Redis) -> None:
    sessions, made = SessionStore(store), archived_session(seconds=500)
    await sessions.create(made, max_sessions=1)
    await sessions.mark_refused(SSRC)
    await sessions.start_grace_period(made, 20)
    waiting = await read(sessions)
    assert waiting.reconnect_by
    assert waiting.refused_at == pytest.approx(time.time(), abs=30)
    await sessions.resume(made)
    assert await read(sessions) == made
    for key in (state.build_caller_sessions_key("a"), state.SESSIONS_TO_ARCHIVE_KEY):
        assert await store.zscore(key, str(SSRC)) == made.expires_at


async def test_a_session_is_archived_from_the_first_request_to_close_it(store: Redis) -> None:
    sessions, made = SessionStore(store), archived_session()
    await sessions.create(made, max_sessions=1)
    await sessions.close(made)
    assert await store.zscore(state.SESSIONS_TO_ARCHIVE_KEY, str(SSRC)) == pytest.approx(time.time(), abs=30)
    await store.zadd(state.SESSIONS_TO_ARCHIVE_KEY, {str(SSRC): 5})
    await sessions.close(made)
    assert await store.zscore(state.SESSIONS_TO_ARCHIVE_KEY, str(SSRC)) == 5


async def test_a_refusal_is_withdrawn_by_the_host_that_accepts_the_audio(store: Redis) -> None:
    sessions = SessionStore(store)
    await sessions.create(open_session(), max_sessions=1)
    await sessions.mark_refused(SSRC)
    await sessions.clear_refusal(SSRC)
    assert (await read(sessions)).refused_at == 0


async def test_the_first_socket_sets_the_begin_and_the_latest_sets_the_gateway(store: Redis) -> None:
    sessions, made = SessionStore(store), open_session()
    await sessions.create(made, max_sessions=1)
    await sessions.set_gateway(made, "10.0.0.1", 4000)
    await sessions.set_gateway(made, "10.0.0.2", 9000)
    assert (await read(sessions)).begins_at == 4000
    assert await store.hget(state.build_session_key(SSRC), "gateway") == b"10.0.0.2"


async def test_a_record_follows_its_session(store: Redis) -> None:
    sessions, made = SessionStore(store), open_session()
    await sessions.create(made, max_sessions=1)
    await sessions.update(made, **{SessionField.LANGUAGE: "fr", SessionField.LAST_SENT_EVENT: "7-1"})
    await sessions.add_audio(made, 1.5)
    await sessions.add_audio(made, 2.25)
    assert await read(sessions) == replace(made, language="fr", last_sent_event="7-1", received_s=3.75)
    assert await sessions.mark_usage_reported(made) is True
    assert await sessions.mark_usage_reported(made) is False


async def test_usage_is_reported_once_although_a_reply_was_lost(store: Redis, lossy_store: Redis) -> None:
    """Regression: the client repeats the command, and the usage was taken for reported."""
    made = open_session()
    await SessionStore(store).create(made, max_sessions=1)
    assert await SessionStore(lossy_store).mark_usage_reported(made) is True
    assert await SessionStore(store).mark_usage_reported(made) is False


async def test_an_expired_record_is_not_created_again(store: Redis) -> None:
    sessions, made = SessionStore(store), open_session()
    await sessions.update(made, language="fr")
    await sessions.add_audio(made, 1.5)
    await sessions.set_gateway(made, "10.0.0.1", 4000)
    await sessions.start_grace_period(made, 20)
    await sessions.resume(made)
    await sessions.close(made)
    await sessions.mark_refused(SSRC)
    assert await sessions.mark_usage_reported(made) is False
    assert await store.keys() == []


Connect = Callable[[str], Awaitable[SessionStore]]


@pytest.fixture
async def connect_without(store: Redis, store_server: StoreServer) -> AsyncIterator[Connect]:
    """Return a function that connects to the store without the permission for one command."""
    clients: list[Redis] = []

    async def make(command: str) -> SessionStore:
        rules = ("reset", "on", "nopass", "~*", "&*", "+@all", f"-{command}")
        await store.execute_command("ACL", "SETUSER", "partial", *rules)  # type: ignore[no-untyped-call]
        clients.append(
            connect(store_server.settings.model_copy(update={"user": "partial", "password": SecretStr("any")}))
        )
        return SessionStore(clients[-1])

    yield make
    for client in clients:
        await client.aclose()
    await store.execute_command("ACL", "DELUSER", "partial")  # type: ignore[no-untyped-call]


async def list_keys(store: Redis) -> list[str]:
    return sorted(map(decode_text, await store.keys()))


async def dump(store: Redis) -> dict[str, object]:
    return {key: (await store.dump(key), await store.expiretime(key)) for key in await list_keys(store)}


@pytest.mark.parametrize(
    ("command", "change"),
    [
        ("hset", lambda sessions, made: sessions.set_gateway(made, "10.0.0.1", 4000)),
        ("zadd", lambda sessions, made: sessions.start_grace_period(made, 20)),
        ("zadd", lambda sessions, made: sessions.resume(made)),
        ("zrem", lambda sessions, made: sessions.close(made)),
        ("expire", lambda sessions, made: sessions.mark_refused(made.ssrc)),
    ],
    ids=["gateway", "grace period", "resumption", "end", "refusal"],
)
async def test_a_change_is_written_completely_or_not_at_all(
    store: Redis,
    connect_without: Connect,
    command: str,
    change: Callable[[SessionStore, Session], Awaitable[None]],
) -> None:
    made = replace(archived_session(), srtp_key="a2V5")
    await SessionStore(store).create(made, max_sessions=1)
    await store.hset(state.build_session_key(SSRC), "lapses_at", "1")
    before = await dump(store)
    with pytest.raises(NoPermissionError):
        await change(await connect_without(command), made)
    assert await dump(store) == before


@pytest.mark.parametrize(
    ("command", "written"),
    [
        ("expireat", []),
        ("zcard", [state.build_session_key(SSRC)]),
        ("set", [state.build_caller_sessions_key("a"), state.build_session_key(SSRC)]),
    ],
)
async def test_a_session_is_created_in_steps_each_of_which_is_complete(
    store: Redis, connect_without: Connect, command: str, written: list[str]
) -> None:
    """A record has an expiry from the start, and no other fields without its SRTP key."""
    sessions = await connect_without(command)
    with pytest.raises(NoPermissionError):
        await sessions.create(replace(open_session(), srtp_key="a2V5"), max_sessions=1)
    assert await list_keys(store) == sorted(written)
    assert await SessionStore(store).read(SSRC) is None
    assert all([await store.ttl(key) > 0 for key in written])


async def test_progress_counts_chunks_and_characters_of_final_transcripts(store: Redis) -> None:
    sessions, transcripts = SessionStore(store), TranscriptStore(store)
    await sessions.create(open_session(), max_sessions=1)
    await transcripts.mark_transcribed(SSRC, 35, 2)
    found = await read(sessions)
    assert (found.last_transcribed_sequence, found.next_chunk_number, found.characters) == (35, 2, 0)
    await transcripts.mark_transcribed(SSRC, 40, 3, 5)
    await transcripts.mark_transcribed(SSRC, 45, 4, 7)
    await transcripts.add_lost_audio(SSRC, 500)
    await transcripts.add_lost_audio(SSRC, 20)
    found = await read(sessions)
    assert (found.last_transcribed_sequence, found.next_chunk_number, found.characters) == (45, 4, 12)
    assert found.lost_ms == 520


async def test_progress_is_kept_as_long_as_the_record(store: Redis) -> None:
    sessions, transcripts = SessionStore(store), TranscriptStore(store)
    await sessions.create(open_session(seconds=5000), max_sessions=1)
    key = state.build_transcription_progress_key(SSRC)
    for change in (transcripts.mark_transcribed(SSRC, 35, 2), transcripts.add_lost_audio(SSRC, 500)):
        await change
        assert await store.ttl(key) == pytest.approx(5000 + state.SESSION_RETENTION_S, abs=30)
        await store.persist(key)
