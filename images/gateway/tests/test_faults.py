"""Failures, and their effect on callers: no transcript is duplicated or missing, and no caller hangs."""

import asyncio
import time

import httpx2
import pytest
import websockets
from redis.asyncio import Redis

from images.conftest import BUSY_TIMEOUT_S, StoreServer
from images.gateway.tests.conftest import Start
from images.gateway.tests.running import Event, GatewayProcess, Hosts, Opened, VadHost, holds
from voice_blueprint.contract.network import Tier
from voice_blueprint.contract.session_api import LIVENESS_PATH
from voice_runtime import state
from voice_runtime.http import REQUEST_HEAD_TIMEOUT_S
from voice_runtime.transcripts import EventKind, Transcript, TranscriptStore

pytestmark = pytest.mark.usefixtures("hosts", "vad")
LOST_WITH_EACH = 0.5
"""Maximum number of leaked objects per session: less than one, and more than the normal variation."""
STEP = 50
"""Frames between utterances: one per second."""


def final(utterance: int) -> Transcript:
    return Transcript(
        kind=EventKind.FINAL, utterance=utterance, text=f"number {utterance}", start_ms=0, end_ms=utterance * 20 + 400
    )


async def speak(store: Redis, opened: Opened, count: int, pause_s: float = 0.02) -> None:
    """Publish this number of finals."""
    for number in range(count):
        assert await TranscriptStore(store).publish(opened.ssrc, final(number * STEP), 1)
        await asyncio.sleep(pause_s)


class Reader:
    """A caller that reconnects until its stream has ended, as a browser's EventSource does."""

    def __init__(self, opened: Opened, gateways: list[GatewayProcess]) -> None:
        self._opened = opened
        self._gateways = gateways
        self.seen: list[Event] = []
        self.resumes = 0

    async def run(self) -> list[int]:
        """Read to the end, and return the utterances in the order of arrival."""
        attempt = 0
        while not (self.seen and self.seen[-1].name == "end"):
            gateway = self._gateways[attempt % len(self._gateways)]
            attempt += 1
            try:
                await self._read(gateway)
            except (httpx2.TransportError, AssertionError):
                await asyncio.sleep(0.1)
        return [event.data["utterance"] for event in self.seen if event.name == "final"]

    async def _read(self, gateway: GatewayProcess) -> None:
        ids = [event.id for event in self.seen if event.id]
        async with self._opened.at(gateway).stream(ids[-1] if ids else None) as events:
            async for event in events:
                if event.name == "token":
                    self._opened.described["token"] = event.data["token"]
                elif event.name == "resume":
                    self.resumes += 1
                else:
                    self.seen.append(event)


async def test_readers_of_a_killed_gateway_resume_at_another(start: Start, store: Redis) -> None:
    first, second = await start().ready(), await start().ready()
    opened = await first.open()
    reader = Reader(opened, [first, second])
    reading = asyncio.create_task(reader.run())
    speaking = asyncio.create_task(speak(store, opened, 150))
    await holds("events before the kill", lambda: len(reader.seen) > 20)
    first.kill()
    await speaking
    assert await opened.at(second).close() == 204
    assert await asyncio.wait_for(reading, BUSY_TIMEOUT_S) == [number * STEP for number in range(150)]


async def test_socket_of_a_killed_gateway_continues_at_another(start: Start, vad: VadHost) -> None:
    first, second = await start().ready(), await start().ready()
    opened = await first.open()
    async with opened.socket() as connection:
        await connection.send(bytes(6400))
        await holds("audio through the first", lambda: len(vad.of(opened.ssrc)) == 10)
        first.kill()
    again = opened.at(second)
    connection = await again.socket()
    await connection.send(bytes(6400))
    await connection.send('{"type": "end"}')
    await connection.wait_closed()
    packets = await vad.heard(opened.ssrc, 20)
    assert len(packets) == 20
    ahead = (packets[10].sequence - packets[9].sequence) & 0xFFFF
    assert 1 <= ahead < 3000, "behind what was sent before, and no restart to a jitter buffer (RFC 3550, A.1)"


async def test_restarted_store_loses_neither_sessions_nor_events(
    start: Start, store: Redis, store_server: StoreServer, vad: VadHost
) -> None:
    gateway = await start().ready()
    opened = await gateway.open()
    reader = Reader(opened, [gateway])
    reading = asyncio.create_task(reader.run())
    async with opened.socket() as connection:
        await speak(store, opened, 30)
        await holds("events before the restart", lambda: len(reader.seen) == 30)
        store_server.stop()
        await holds("the gateway says so", lambda: gateway.health() == 503)
        await connection.send(bytes(640))
        await holds("audio flows meanwhile", lambda: len(vad.of(opened.ssrc)) == 1)
        waiting = asyncio.create_task(_ask(gateway))
        await asyncio.sleep(0.5)
        store_server.start()
        assert (await waiting).json().get("error") in {None, "no capacity"}, "it waits for the store"
        await holds("the gateway says so", lambda: gateway.health() == 200)
        for number in range(30, 60):
            await TranscriptStore(store).publish(opened.ssrc, final(number * STEP), 1)
        await connection.send('{"type": "end"}')
        await connection.wait_closed()
        assert connection.close_code == 1000
    assert await asyncio.wait_for(reading, BUSY_TIMEOUT_S) == [number * STEP for number in range(60)]
    await gateway.accepts_callers()


async def _ask(gateway: GatewayProcess) -> httpx2.Response:
    async with gateway.client() as client:
        return await client.post("/v1/sessions", json={"transport": "srtp"})


async def test_lost_store_gives_an_error_response(start: Start, store_server: StoreServer) -> None:
    gateway = await start().ready()
    opened = await gateway.open()
    store_server.stop()
    try:
        answer = await _ask(gateway)
        assert (answer.status_code, answer.json()["error"]) == (503, "state store away")
        with pytest.raises(websockets.InvalidStatus, match="503"):
            await opened.socket(open_timeout=BUSY_TIMEOUT_S)
        await holds("it is out of rotation", lambda: gateway.health() == 503)
        assert gateway.health(path=LIVENESS_PATH) == 200
    finally:
        store_server.start()


async def test_stopping_gateway_lets_sessions_finish(start: Start, store: Redis, vad: VadHost) -> None:
    gateway = await start(DRAIN_TIMEOUT_S=60).ready()
    sessions = [await gateway.open() for _ in range(20)]
    readers = [Reader(opened, [gateway]) for opened in sessions]
    reading = [asyncio.create_task(reader.run()) for reader in readers]
    sockets = [await opened.socket() for opened in sessions]
    for connection in sockets:
        await connection.send(bytes(6400))
    gateway.terminate()
    await holds("it says that it drains", lambda: gateway.health() == gateway.health(gateway.media_port) == 503)
    assert gateway.health(path=LIVENESS_PATH) == gateway.health(gateway.media_port, LIVENESS_PATH) == 200
    answer = await _ask(gateway)
    assert (answer.status_code, answer.json()["error"]) == (503, "draining")
    for opened, connection in zip(sessions, sockets, strict=True):
        await connection.send(bytes(6400))
        await speak(store, opened, 3, pause_s=0)
        await connection.send('{"type": "end"}')
    for connection in sockets:
        await connection.wait_closed()
        assert connection.close_code == 1000
    assert await asyncio.gather(*reading) == [[0, 50, 100]] * 20
    assert await asyncio.to_thread(gateway.wait) == 0
    assert {len(await vad.heard(opened.ssrc, 20)) for opened in sessions} == {20}
    assert [await store.hget(state.build_session_key(each.ssrc), "state") for each in sessions] == [b"closed"] * 20


async def test_stopping_gateway_redirects_remaining_callers(start: Start, store: Redis, vad: VadHost) -> None:
    first, second = await start(DRAIN_TIMEOUT_S=1).ready(), await start().ready()
    sessions = [await first.open() for _ in range(20)]
    readers = [Reader(opened, [first, second]) for opened in sessions]
    reading = [asyncio.create_task(reader.run()) for reader in readers]
    sockets = [await opened.socket() for opened in sessions]
    for opened, connection in zip(sessions, sockets, strict=True):
        await connection.send(bytes(6400))
        await speak(store, opened, 2, pause_s=0)
    await holds("events before the end", lambda: all(len(reader.seen) == 2 for reader in readers))
    first.terminate()
    for connection in sockets:
        await connection.wait_closed()
        assert connection.close_code == 1012
    assert await asyncio.to_thread(first.wait) == 0
    await asyncio.gather(*(_finish(opened.at(second), store) for opened in sessions))
    assert await asyncio.gather(*reading) == [[0, 50, 500]] * 20
    assert all(reader.resumes == 1 for reader in readers)
    assert {len(await vad.heard(opened.ssrc, 10)) for opened in sessions} == {10}


async def _finish(opened: Opened, store: Redis) -> None:
    async with opened.socket() as connection:
        await connection.send('{"type": "end"}')
        await connection.wait_closed()
    assert connection.close_code == 1000
    await TranscriptStore(store).publish(opened.ssrc, final(500), 1)


async def test_ended_sessions_leave_no_resources(start: Start, store: Redis) -> None:
    gateway = await start().ready()
    await _wave(gateway, store, 320, at_once=40)  # so that objects that are created once exist
    await holds("nothing is open", lambda: gateway.metric("OpenSockets")[-1:] == [0])
    await asyncio.sleep(REQUEST_HEAD_TIMEOUT_S)  # every connection has a timer
    before = await gateway.objects()
    await _wave(gateway, store, 300, at_once=20)
    await gateway.holds_no_more_than(before + 300 * LOST_WITH_EACH)
    await holds("nothing is open", lambda: gateway.metric("OpenSockets")[-1:] == [0])


async def _wave(gateway: GatewayProcess, store: Redis, count: int, at_once: int) -> None:
    async def one() -> None:
        opened = await gateway.open()
        async with opened.stream() as events, opened.socket() as connection:
            await connection.send(bytes(3200))
            await speak(store, opened, 2, pause_s=0)
            assert len(await events.transcripts(2)) == 2

    for _ in range(count // at_once):
        await asyncio.gather(*(one() for _ in range(at_once)))


async def test_latency_of_the_first_transcript_is_measured(start: Start, store: Redis, hosts: Hosts) -> None:
    hosts.put(Tier.VAD, "vad-1")
    gateway = await start().ready()
    opened = await gateway.open()
    async with opened.socket() as connection:
        await connection.send(bytes(32_000))
        begin = time.monotonic()
        await asyncio.sleep(1.5)
        await speak(store, opened, 1)  # of speech that ended after 0.4 s
        await holds("it is published", lambda: bool(gateway.metric("TimeToFinal")))
        most = 1000 * (time.monotonic() - begin)
    [latency] = gateway.metric("TimeToFinal")
    assert 1000 < latency < most
    assert sum(gateway.metric("SessionsCreated")) == 1
