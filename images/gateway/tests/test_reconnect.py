"""A lost connection does not end a call: the caller reconnects, and continues."""

import asyncio
import socket
import struct

import pytest
import websockets
from redis.asyncio import Redis

from images.conftest import BUSY_TIMEOUT_S
from images.gateway.tests.conftest import Start
from images.gateway.tests.running import GatewayProcess, Opened, VadHost, holds, leave_while_opening
from voice_runtime import state

pytestmark = pytest.mark.usefixtures("hosts", "vad")

SPOKEN = bytes(3200)
SPOKEN_FRAMES = 5
GRACE_S = 5
"""Minimum in a deployment file."""


def reset(connection: websockets.ClientConnection) -> None:
    """Reset a connection as a NAT that lost its state does."""
    raw: socket.socket = connection.transport.get_extra_info("socket")
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.transport.abort()


async def speak(opened: Opened, vad: VadHost, connection: websockets.ClientConnection) -> None:
    """Send some audio, and wait until it has arrived."""
    before = len(vad.of(opened.ssrc))
    await connection.send(SPOKEN)
    await vad.heard(opened.ssrc, before + SPOKEN_FRAMES)


async def is_open(store: Redis, opened: Opened) -> bool:
    return bool(await store.hget(state.build_session_key(opened.ssrc), "state") == b"open")


async def waits_for_its_caller(store: Redis, opened: Opened) -> None:
    async with asyncio.timeout(BUSY_TIMEOUT_S):
        while not await store.hexists(state.build_session_key(opened.ssrc), "lapses_at"):
            await asyncio.sleep(0.02)
    assert await is_open(store, opened)


async def test_reset_connection_does_not_end_the_session(gateway: GatewayProcess, vad: VadHost, store: Redis) -> None:
    opened = await gateway.open()
    async with opened.socket() as first:
        await speak(opened, vad, first)
        reset(first)
    await waits_for_its_caller(store, opened)
    async with opened.socket() as second:
        await speak(opened, vad, second)
        assert not await store.hexists(state.build_session_key(opened.ssrc), "lapses_at")
        await second.send('{"type": "end"}')
        await second.wait_closed()
    assert not await is_open(store, opened)


@pytest.mark.parametrize("code", [1001, 1005, 3000])
async def test_caller_may_reopen_a_closed_page(gateway: GatewayProcess, vad: VadHost, store: Redis, code: int) -> None:
    opened = await gateway.open()
    async with opened.socket() as first:
        await speak(opened, vad, first)
        if code == 1005:  # a close without a code, as `socket.close()` of a browser sends it
            first.protocol.send_close()
            first.send_data()
            await first.wait_closed()
        else:
            await first.close(code)
    await waits_for_its_caller(store, opened)
    async with opened.socket() as second:
        await speak(opened, vad, second)


async def test_normal_close_ends_the_session(gateway: GatewayProcess, vad: VadHost, store: Redis) -> None:
    opened = await gateway.open()
    async with opened.socket() as connection:
        await speak(opened, vad, connection)
        await connection.close(1000)
    async with asyncio.timeout(BUSY_TIMEOUT_S):
        while await is_open(store, opened):
            await asyncio.sleep(0.02)


async def test_newest_socket_takes_over_the_session(gateway: GatewayProcess, vad: VadHost, store: Redis) -> None:
    """The old connection hangs, since the address of its peer has changed without notice to the gateway."""
    opened = await gateway.open()
    async with opened.socket() as old:
        await speak(opened, vad, old)
        async with opened.socket() as new:
            await speak(opened, vad, new)
            await asyncio.wait_for(old.wait_closed(), BUSY_TIMEOUT_S)
            assert (old.close_code, old.close_reason) == (1008, "another socket has this session")
            await speak(opened, vad, new)
            assert not await store.hexists(state.build_session_key(opened.ssrc), "lapses_at"), (
                "the old one has no say any more"
            )


async def test_session_is_taken_over_at_another_gateway(gateway: GatewayProcess, start: Start, vad: VadHost) -> None:
    other = await (await start().ready()).accepts_callers()
    opened = await gateway.open()
    async with opened.socket() as old:
        await speak(opened, vad, old)
        async with opened.at(other).socket() as new:
            await speak(opened, vad, new)
            await asyncio.wait_for(old.wait_closed(), BUSY_TIMEOUT_S)
            await speak(opened, vad, new)
    sequences = [packet.sequence for packet in vad.of(opened.ssrc)]
    assert sequences == sorted(set(sequences)), "the new socket goes on behind the old one"


async def test_caller_who_leaves_while_reconnecting_has_not_returned(
    gateway: GatewayProcess, vad: VadHost, store: Redis
) -> None:
    opened = await gateway.open()
    async with opened.socket() as first:
        await speak(opened, vad, first)
        reset(first)
    await waits_for_its_caller(store, opened)
    await leave_while_opening(gateway, store, f"/v1/sessions/{opened.id}/audio", f"voice.v1, {opened.token}")
    await asyncio.sleep(1.0)  # enough for the gateway to continue the session
    await waits_for_its_caller(store, opened)


async def test_session_ends_if_its_caller_does_not_return(start: Start, vad: VadHost, store: Redis) -> None:
    gateway = await (await start(RECONNECT_GRACE_S=GRACE_S, CALLER_SESSIONS=1).ready()).accepts_callers()
    opened = await gateway.open()
    async with opened.stream() as events:
        async with opened.socket() as connection:
            await speak(opened, vad, connection)
            reset(connection)
        await waits_for_its_caller(store, opened)
        ended = await asyncio.wait_for(events.until("end"), GRACE_S + BUSY_TIMEOUT_S)
    assert ended[-1].name == "end"
    with pytest.raises(websockets.InvalidStatus, match="404"):
        await opened.socket()
    await gateway.open()  # it no longer counts against its caller


async def test_socket_may_be_reopened_after_an_invalid_message(gateway: GatewayProcess, vad: VadHost) -> None:
    opened = await gateway.open()
    async with opened.socket() as connection:
        await connection.send("hello")
        await asyncio.wait_for(connection.wait_closed(), BUSY_TIMEOUT_S)
    async with opened.socket() as connection:
        await speak(opened, vad, connection)
    await holds("frames", lambda: len(vad.of(opened.ssrc)) >= SPOKEN_FRAMES)
