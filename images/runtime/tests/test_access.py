"""Each tier can do its work in the state store with its deployed permissions, and nothing else."""

import time
from collections.abc import AsyncIterator

import pytest
from pydantic import SecretStr
from redis.asyncio import Redis
from redis.exceptions import NoPermissionError

from images.conftest import StoreServer
from voice_blueprint.contract.network import Tier
from voice_blueprint.contract.state import STATE_USERS, SentAudioField, SessionField
from voice_runtime import state
from voice_runtime.file_pieces import FilePiece, FilePieceQueue, PieceTranscript
from voice_runtime.hosts import Host, HostKind, HostRegistry
from voice_runtime.journal import AudioJournal
from voice_runtime.sessions import Session, SessionKind, SessionState, SessionStore
from voice_runtime.store import connect
from voice_runtime.transcripts import EventKind, Transcript, TranscriptStore

SSRC = 7
FINAL = Transcript(kind=EventKind.FINAL, utterance=1, text="yes", start_ms=20, end_ms=500)


@pytest.fixture
async def users(store: Redis, store_server: StoreServer) -> AsyncIterator[dict[Tier, Redis]]:
    """Connect a client for each tier, with the tier's own user."""
    clients = {}
    for user in STATE_USERS:
        await store.execute_command("ACL", "SETUSER", user.tier, "reset", ">secret", *user.acl.split())  # type: ignore[no-untyped-call]
        settings = store_server.settings.model_copy(update={"user": user.tier.value, "password": SecretStr("secret")})
        clients[user.tier] = connect(settings)
    yield clients
    for tier, client in clients.items():
        await client.aclose()
        await store.execute_command("ACL", "DELUSER", tier)  # type: ignore[no-untyped-call]


async def test_each_tier_has_the_permissions_that_it_needs(users: dict[Tier, Redis]) -> None:
    gateway, vad, asr = users[Tier.GATEWAY], users[Tier.VAD], users[Tier.ASR]
    expires_at = int(time.time()) + 60
    session = Session(SSRC, "id", SessionState.OPEN, SessionKind.EXTERNAL, "caller", expires_at, srtp_key="a2V5")
    assert await SessionStore(gateway).create(session, max_sessions=1)
    assert await SessionStore(vad).read_srtp_key(SSRC) == "a2V5"
    await vad.hset(state.build_sent_audio_key(SSRC), SentAudioField.LAST_SEQUENCE, "4")
    await SessionStore(asr).mark_refused(SSRC)
    await HostRegistry(vad, Tier.VAD).send_heartbeat(Host("v", HostKind.VAD, "10.0.0.2", 1, draining=False))
    assert [host.id for host in await HostRegistry(gateway, Tier.VAD).read_live_hosts()] == ["v"]
    await HostRegistry(asr, Tier.ASR).send_heartbeat(Host("a", HostKind.GPU, "10.0.0.3", 1, draining=False))
    assert [host.id for host in await HostRegistry(vad, Tier.ASR).read_live_hosts()] == ["a"]

    journal, transcripts = AudioJournal(asr, "a"), TranscriptStore(asr)
    await journal.acquire(SSRC)
    entries = await journal.append([(SSRC, b"chunk")])
    assert await journal.renew([SSRC]) == []
    assert await journal.find_orphaned_sessions() == []
    assert await transcripts.publish(SSRC, FINAL, 1)
    await transcripts.mark_transcribed(SSRC, 1, 1)
    assert await journal.read_entries(SSRC) == [(entries[0], b"chunk")]
    await journal.delete(SSRC, entries)
    await journal.release(SSRC)
    found = await SessionStore(asr).read(SSRC)
    assert found
    assert (found.last_sequence, found.last_transcribed_sequence, bool(found.refused_at)) == (4, 1, True)
    assert await SessionStore(gateway).extend_grace_period(session, 20)
    await SessionStore(gateway).resume(session)
    found = await SessionStore(gateway).read(SSRC)
    assert found
    assert (found.last_sequence, found.last_transcribed_sequence, bool(found.refused_at)) == (4, 1, False)
    await SessionStore(asr).clear_refusal(SSRC)

    piece, heard = FilePiece("p", bytes(2), "en"), PieceTranscript(text="yes")
    await FilePieceQueue(gateway).put(piece)
    assert await FilePieceQueue(asr).claim("a") == piece
    assert await FilePieceQueue(asr).renew(piece.name)
    await FilePieceQueue(asr).complete(piece.name, heard)
    assert await FilePieceQueue(gateway).read_result(piece.name) == heard
    assert await FilePieceQueue(gateway).refresh(piece.name)
    await FilePieceQueue(gateway).delete(piece.name)
    assert await FilePieceQueue(gateway).count_queued() == 0

    assert [event for _, event in await TranscriptStore(gateway).read(SSRC)] == [FINAL]
    await SessionStore(gateway).close(session)
    await HostRegistry(asr, Tier.ASR).remove("a")


async def test_tiers_cannot_access_state_of_other_tiers(users: dict[Tier, Redis]) -> None:
    for tier in (Tier.VAD, Tier.ASR, Tier.AGENT):
        with pytest.raises(NoPermissionError):
            await users[tier].hset(state.build_session_key(SSRC), SessionField.STATE, SessionState.CLOSED)
    for tier in (Tier.ASR, Tier.AGENT):
        with pytest.raises(NoPermissionError):
            await SessionStore(users[tier]).read_srtp_key(SSRC)
    with pytest.raises(NoPermissionError):
        await users[Tier.VAD].smembers(state.build_host_sessions_key("a"))
    with pytest.raises(NoPermissionError):
        await TranscriptStore(users[Tier.GATEWAY]).publish(SSRC, FINAL, 1)
    with pytest.raises(NoPermissionError):
        await HostRegistry(users[Tier.GATEWAY], Tier.VAD).remove("v")
    with pytest.raises(NoPermissionError):
        await users[Tier.VAD].xrange(state.build_transcript_key(SSRC))
    with pytest.raises(NoPermissionError):
        await users[Tier.VAD].xrange(state.build_audio_key(SSRC))
    for client in users.values():
        with pytest.raises(NoPermissionError):
            await client.flushall()
        with pytest.raises(NoPermissionError):
            await client.keys()
