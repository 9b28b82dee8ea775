"""The gateway's own user of the state store has the permissions that the gateway needs."""

import pytest
from redis.asyncio import Redis

from images.gateway.tests.conftest import Start
from images.gateway.tests.running import BYE, VadHost
from voice_blueprint.contract.network import Tier
from voice_blueprint.contract.state import STATE_USERS
from voice_runtime.transcripts import EventKind, Transcript, TranscriptStore

pytestmark = pytest.mark.usefixtures("hosts")
PASSWORD = "only-for-tests"


async def test_a_whole_session_works_with_the_permissions_of_the_contract(
    start: Start, store: Redis, vad: VadHost
) -> None:
    [access] = [user.acl for user in STATE_USERS if user.tier is Tier.GATEWAY]
    rights = ["reset", f">{PASSWORD}", *access.split()]
    await store.execute_command("ACL", "SETUSER", Tier.GATEWAY.value, *rights)  # type: ignore[no-untyped-call]
    gateway = await start(VALKEY_USER=Tier.GATEWAY.value, VALKEY_PASSWORD=PASSWORD).ready()
    opened = await gateway.open()
    said = Transcript(kind=EventKind.FINAL, utterance=0, text="yes", start_ms=0, end_ms=500)
    async with opened.stream() as events, opened.socket() as connection:
        await connection.send(bytes(640))
        await TranscriptStore(store).publish(opened.ssrc, said, 1)
        assert len(await events.transcripts(1)) == 1
        await connection.send('{"type": "end"}')
        await connection.wait_closed()
        assert connection.close_code == 1000
        assert (await events.until("end"))[-1].data == {"complete": True, "lost_ms": 0}
    assert (len(vad.of(opened.ssrc)), vad.notices) == (1, [(opened.ssrc, BYE)])
    assert await opened.close() == 204
