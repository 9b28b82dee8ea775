"""No session is admitted without a free slot: its speech is transcribed, or it is refused immediately."""

import asyncio
import contextlib
import json

import pytest
import websockets
from redis.asyncio import Redis

from images.conftest import BUSY_TIMEOUT_S
from images.gateway.tests.conftest import Start
from images.gateway.tests.running import GatewayProcess, Hosts, Opened, holds
from voice_blueprint.contract.network import Tier
from voice_gateway.slot_reservations import RESERVATION_TTL_S
from voice_runtime import state
from voice_runtime.sessions import SessionStore

pytestmark = pytest.mark.usefixtures("vad")

SLOTS = 3


@pytest.fixture
async def few(store: Redis, start: Start, hosts: Hosts) -> GatewayProcess:
    """A gateway with one engine that has few slots."""
    await store.delete(state.SLOT_RESERVATIONS_KEY)
    hosts.put(Tier.ASR, "asr-1", slots=SLOTS)
    await hosts.beat()
    return await (await start().ready()).accepts_callers()


async def refusal(opened: Opened) -> tuple[int, str]:
    with pytest.raises(websockets.InvalidStatus) as caught:
        await opened.socket()
    return caught.value.response.status_code, json.loads(caught.value.response.body or b"{}")["detail"]


async def get_in(opened: Opened) -> websockets.ClientConnection:
    """Retry until there is a free slot."""
    async with asyncio.timeout(BUSY_TIMEOUT_S):
        while True:
            with contextlib.suppress(websockets.InvalidStatus):
                return await opened.socket()
            await asyncio.sleep(0.2)


async def test_admissions_are_limited_by_the_engines_slots(few: GatewayProcess) -> None:
    """No session has sent speech yet, so all slots of the engine are free."""
    *inside, outside = [await few.open() for _ in range(SLOTS + 1)]
    async with contextlib.AsyncExitStack() as stack:
        sockets = [await stack.enter_async_context(each.socket()) for each in inside]
        assert await refusal(outside) == (503, "every ASR host has as many sessions as it takes; try again")
        await sockets[0].send('{"type": "end"}')
        await sockets[0].wait_closed()
        await (await get_in(outside)).close()
    assert sum(few.metric("SessionsRefused")) >= 1


async def test_several_gateways_share_the_slots(few: GatewayProcess, start: Start) -> None:
    other = await (await start().ready()).accepts_callers()
    opened = [await few.open() for _ in range(4 * SLOTS)]

    async def connect(number: int) -> websockets.ClientConnection | None:
        with contextlib.suppress(websockets.InvalidStatus):
            return await opened[number].at((few, other)[number % 2]).socket()
        return None

    inside = [each for each in await asyncio.gather(*map(connect, range(len(opened)))) if each]
    assert len(inside) <= SLOTS
    for each in inside:
        await each.close()


async def test_reconnected_caller_keeps_its_slot(few: GatewayProcess) -> None:
    inside = [await few.open() for _ in range(SLOTS)]
    async with contextlib.AsyncExitStack() as stack:
        first, *_ = [await stack.enter_async_context(each.socket()) for each in inside]
        first.transport.abort()
        async with inside[0].socket():
            pass


async def test_slot_of_a_dead_gateway_is_released(few: GatewayProcess, start: Start) -> None:
    opened, last = [await few.open() for _ in range(SLOTS)], await few.open()
    for each in opened:
        await each.socket()
    other = await (await start().ready()).accepts_callers()
    assert (await refusal(last.at(other)))[0] == 503
    few.kill()
    async with asyncio.timeout(RESERVATION_TTL_S + BUSY_TIMEOUT_S):
        await (await get_in(last.at(other))).close()


async def test_srtp_session_uses_a_slot_until_it_is_closed(few: GatewayProcess) -> None:
    opened = [await few.open("srtp") for _ in range(SLOTS)]
    answer = await few.answers(503, "srtp")
    assert "every ASR host" in answer.json()["detail"]
    await opened[0].close()
    await few.answers(201, "srtp")


async def test_later_rejection_by_an_engine_is_reported_to_the_caller(gateway: GatewayProcess, store: Redis) -> None:
    opened = await gateway.open()
    sessions = SessionStore(store)
    session = await sessions.read(opened.ssrc)
    assert session
    await sessions.start_grace_period(session, 60)
    async with opened.stream() as events, opened.socket() as connection:
        # Right after the gateway has accepted a socket, it ends the grace period and clears any rejection.
        async with asyncio.timeout(BUSY_TIMEOUT_S):
            while (session := await sessions.read(opened.ssrc)) is None or session.reconnect_by:
                await asyncio.sleep(0.02)
        await sessions.mark_refused(opened.ssrc)
        told = (await asyncio.wait_for(events.until("error"), BUSY_TIMEOUT_S))[-1]
        assert told.data["error"] == "no capacity"
        await asyncio.wait_for(connection.wait_closed(), BUSY_TIMEOUT_S)
        assert (connection.close_code, connection.close_reason) == (1013, "no ASR host takes this session; try again")
    async with opened.socket():  # a new socket is a new attempt
        await asyncio.sleep(0)
    await holds("it is counted", lambda: sum(gateway.metric("SessionsRefused")) >= 1)
