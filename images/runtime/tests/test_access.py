"""Each tier does its work in the state store with the rights that it is deployed with, and nothing else."""

import time
from collections.abc import AsyncIterator

import pytest
from pydantic import SecretStr
from redis.asyncio import Redis
from redis.exceptions import NoPermissionError

from blueprint.contract.network import Tier
from blueprint.contract.state import STATE_USERS
from images.conftest import StoreServer
from voice_runtime import state
from voice_runtime.file_pieces import FilePieces, Piece, PieceHeard
from voice_runtime.hosts import Host, HostKind, HostRegistry
from voice_runtime.journal import Journal
from voice_runtime.sessions import Session, SessionKind, Sessions, SessionState
from voice_runtime.store import connect
from voice_runtime.transcripts import EventKind, Transcript, Transcripts

SSRC = 7
FINAL = Transcript(kind=EventKind.FINAL, utterance=1, text="yes", start_ms=20, end_ms=500)


@pytest.fixture
async def users(store: Redis, store_server: StoreServer) -> AsyncIterator[dict[Tier, Redis]]:
    """A client of each tier, with the tier's own user."""
    clients = {}
    for user in STATE_USERS:
        await store.execute_command("ACL", "SETUSER", user.tier, "reset", ">secret", *user.acl.split())  # type: ignore[no-untyped-call]
        settings = store_server.settings.model_copy(update={"user": user.tier.value, "password": SecretStr("secret")})
        clients[user.tier] = connect(settings)
    yield clients
    for tier, client in clients.items():
        await client.aclose()
        await store.execute_command("ACL", "DELUSER", tier)  # type: ignore[no-untyped-call]


async def test_each_tier_can_do_its_work(users: dict[Tier, Redis]) -> None:
    gateway, vad, asr = users[Tier.GATEWAY], users[Tier.VAD], users[Tier.ASR]
    session = Session(SSRC, "id", SessionState.OPEN, SessionKind.GATEWAY, "caller", expires_at=int(time.time()) + 60)
    assert await Sessions(gateway).create(session, most_of_caller=1)
    await HostRegistry(vad, Tier.VAD).beat(Host("v", HostKind.VAD, "10.0.0.2", 1, draining=False))
    assert [host.id for host in await HostRegistry(gateway, Tier.VAD).alive()] == ["v"]
    await HostRegistry(asr, Tier.ASR).beat(Host("a", HostKind.GPU, "10.0.0.3", 1, draining=False))
    assert [host.id for host in await HostRegistry(vad, Tier.ASR).alive()] == ["a"]

    journal, transcripts = Journal(asr, "a"), Transcripts(asr)
    await journal.take(SSRC)
    entries = await journal.append([(SSRC, b"chunk")])
    assert await journal.renew([SSRC]) == []
    assert await journal.orphans() == []
    assert await transcripts.publish(SSRC, FINAL, 1)
    await transcripts.covered(SSRC, 1, 1)
    assert await journal.entries(SSRC) == [(entries[0], b"chunk")]
    await journal.forget(SSRC, entries)
    await journal.release(SSRC)

    piece, heard = Piece("p", bytes(2), "en"), PieceHeard(text="yes")
    await FilePieces(gateway).put(piece)
    assert await FilePieces(asr).take("a") == piece
    assert await FilePieces(asr).renew(piece.name)
    await FilePieces(asr).answer(piece.name, heard)
    assert await FilePieces(gateway).heard(piece.name) == heard
    assert await FilePieces(gateway).keep(piece.name)
    await FilePieces(gateway).forget(piece.name)
    assert await FilePieces(gateway).waiting() == 0

    assert [event for _, event in await Transcripts(gateway).read(SSRC)] == [FINAL]
    await Sessions(gateway).close(session)
    await HostRegistry(asr, Tier.ASR).leave("a")


async def test_no_tier_reaches_into_anothers_state(users: dict[Tier, Redis]) -> None:
    with pytest.raises(NoPermissionError):
        await Transcripts(users[Tier.GATEWAY]).publish(SSRC, FINAL, 1)
    with pytest.raises(NoPermissionError):
        await HostRegistry(users[Tier.GATEWAY], Tier.VAD).leave("v")
    with pytest.raises(NoPermissionError):
        await users[Tier.VAD].xrange(state.transcript(SSRC))
    with pytest.raises(NoPermissionError):
        await users[Tier.VAD].xrange(state.audio(SSRC))
    for client in users.values():
        with pytest.raises(NoPermissionError):
            await client.flushall()
        with pytest.raises(NoPermissionError):
            await client.keys()
