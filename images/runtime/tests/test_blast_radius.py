"""A compromised host: how many sessions of other hosts each tier's store user can affect.

AWS deploys the users of ``STATE_USERS``. Azure Managed Redis has one access policy, ``default``, for every identity:
``+@all ~*`` (https://learn.microsoft.com/azure/redis/configure-access-permissions). ``pytest -s`` prints the table.
"""

import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from redis.asyncio import Redis
from redis.exceptions import NoPermissionError

from images.conftest import StoreServer
from voice_blueprint.contract.network import Tier
from voice_blueprint.contract.state import STATE_USERS, SentAudioField, SessionField
from voice_runtime import state
from voice_runtime.journal import AudioJournal
from voice_runtime.sessions import Session, SessionKind, SessionState, SessionStore
from voice_runtime.store import connect
from voice_runtime.transcripts import EventKind, Transcript, TranscriptStore

SESSIONS = range(101, 111)
HELD = {ssrc: "a" if ssrc == SESSIONS[0] else "b" for ssrc in SESSIONS}
"""The ASR hosts that the sessions are assigned to: the compromised host has one of them."""
CONVERSATIONS = [f"{number:032x}" for number in range(10)]
FINAL = Transcript(kind=EventKind.FINAL, utterance=0, text="yes", start_ms=0, end_ms=500)
PAGE = Path(__file__).parents[3] / "docs/security.md"

Attack = Callable[[Redis, int], Awaitable[Any]]


async def _lists(client: Redis, _: int) -> None:
    """List the keys: without their names, none of the other attacks has a target."""
    await client.scan()


async def _learns_numbers(client: Redis, ssrc: int) -> None:
    """Learn a session's number, which the other attacks need, from the lists of sessions."""
    try:
        assert await client.sismember(state.build_host_sessions_key(HELD[ssrc]), str(ssrc))
    except NoPermissionError:
        assert await client.zscore(state.SLOT_RESERVATIONS_KEY, str(ssrc))


async def _reads_key(client: Redis, ssrc: int) -> None:
    assert await client.get(state.build_srtp_entry_key(ssrc))


async def _reads_audio(client: Redis, ssrc: int) -> None:
    assert await client.xrange(state.build_audio_key(ssrc))


async def _reads_transcript(client: Redis, ssrc: int) -> None:
    assert await client.xrange(state.build_transcript_key(ssrc))


async def _closes(client: Redis, ssrc: int) -> None:
    await client.hset(state.build_session_key(ssrc), SessionField.STATE, SessionState.CLOSED)


async def _opens(client: Redis, ssrc: int) -> None:
    await client.hset(
        state.build_session_key(ssrc + 1000), mapping={SessionField.ID: "x", SessionField.STATE: SessionState.OPEN}
    )


async def _forges_final(client: Redis, ssrc: int) -> None:
    await TranscriptStore(client).publish(ssrc, FINAL, 1)


async def _takes_lease(client: Redis, ssrc: int) -> None:
    await AudioJournal(client, "stolen").acquire(ssrc)


async def _forges_counts(client: Redis, ssrc: int) -> None:
    await client.hset(state.build_sent_audio_key(ssrc), SentAudioField.CHUNKS, "1000")


async def _takes_places(client: Redis, ssrc: int) -> None:
    await client.zadd(state.SLOT_RESERVATIONS_KEY, {str(ssrc + 1000): time.time() + 60})


async def _reads_conversation(client: Redis, ssrc: int) -> None:
    assert await client.lrange(f"conversation:{CONVERSATIONS[ssrc - SESSIONS[0]]}", 0, -1)


def _registers(tier: Tier) -> Attack:
    async def attack(client: Redis, ssrc: int) -> None:
        """Write a record and add its id to the list: readers ignore an id without a record."""
        await client.hset(state.build_host_key(tier, f"forged-{ssrc}"), mapping={"heartbeat": 1})
        await client.sadd(state.build_hosts_key(tier), f"forged-{ssrc}")

    return attack


ATTACKS: Mapping[str, Attack] = {
    "lists keys": _lists,
    "SSRCs learned": _learns_numbers,
    "SRTP keys read": _reads_key,
    "unfinished audio read": _reads_audio,
    "transcripts read": _reads_transcript,
    "sessions closed": _closes,
    "sessions opened": _opens,
    "final transcripts forged": _forges_final,
    "sessions moved from their ASR host": _takes_lease,
    "chunk counts forged": _forges_counts,
    "slots reserved": _takes_places,
    "conversations read, by name": _reads_conversation,
    **{f"{tier} hosts registered": _registers(tier) for tier in (Tier.VAD, Tier.ASR, Tier.AGENT)},
}


@pytest.fixture
async def users(store: Redis, store_server: StoreServer) -> AsyncIterator[dict[str, Redis]]:
    """Connect a client for each tier's user on AWS, and one for the only policy on Azure."""
    rules = {f"{user.tier} on AWS": user.acl for user in STATE_USERS} | {"any tier on Azure": "on ~* &* +@all"}
    clients = {}
    for number, (name, acl) in enumerate(rules.items()):
        await store.execute_command("ACL", "SETUSER", f"stolen-{number}", "reset", ">secret", *acl.split())  # type: ignore[no-untyped-call]
        own = {"user": f"stolen-{number}", "password": SecretStr("secret")}
        clients[name] = connect(store_server.settings.model_copy(update=own))
    yield clients
    for number, client in enumerate(clients.values()):
        await client.aclose()
        await store.execute_command("ACL", "DELUSER", f"stolen-{number}")  # type: ignore[no-untyped-call]


async def _fill(store: Redis) -> None:
    await store.flushdb()
    expires_at = int(time.time()) + 600
    for ssrc, host in HELD.items():
        session = Session(
            ssrc, f"id-{ssrc}", SessionState.OPEN, SessionKind.EXTERNAL, "caller", expires_at, srtp_key="a2V5"
        )
        assert await SessionStore(store).create(session, max_sessions=len(HELD))
        await store.zadd(state.SLOT_RESERVATIONS_KEY, {str(ssrc): expires_at})
        await AudioJournal(store, host).acquire(ssrc)
        await AudioJournal(store, host).append([(ssrc, b"chunk")])
        await store.xadd(state.build_transcript_key(ssrc), {"event": FINAL.model_dump_json()}, id="1-1")
    for conversation in CONVERSATIONS:
        await store.rpush(f"conversation:{conversation}", json.dumps({"role": "user", "content": "secret"}))


async def _count(client: Redis, attack: Attack) -> int:
    """Return the number of sessions that an attack affects."""
    reached = 0
    for ssrc in SESSIONS:
        try:
            await attack(client, ssrc)
        except NoPermissionError:
            continue
        reached += 1
    return reached


async def test_the_page_documents_what_a_compromised_host_can_do(users: dict[str, Redis], store: Redis) -> None:
    table = [
        f"| A stolen host, of {len(SESSIONS)} sessions | {' | '.join(users)} |",
        f"|---|{'---|' * len(users)}",
    ]
    for name, attack in ATTACKS.items():
        counts = []
        for client in users.values():
            await _fill(store)
            counts.append(str(await _count(client, attack)))
        table.append(f"| {name} | {' | '.join(counts)} |")
    print("\n".join(table))  # the table of the drill
    page = PAGE.read_text(encoding="utf-8")
    assert [line for line in table if line not in page] == []
