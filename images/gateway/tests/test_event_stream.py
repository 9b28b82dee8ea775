"""Transcripts as events: complete, in order, without duplicates, and at the reader's own pace."""

import asyncio
import contextlib
import socket
import time
from collections.abc import Mapping

import pytest
from redis.asyncio import Redis

from images.conftest import BUSY_TIMEOUT_S
from images.gateway.tests.conftest import Start
from images.gateway.tests.running import GatewayProcess, Opened, holds
from voice_blueprint.contract.session_api import TOKEN_HEADER
from voice_gateway.followers import MAX_EVENTS_PER_READER, EventPoller
from voice_runtime import state
from voice_runtime.transcripts import STREAM_START, EventId, EventKind, Transcript, TranscriptStore

pytestmark = pytest.mark.usefixtures("hosts")


def said(utterance: int, text: str = "yes", kind: EventKind = EventKind.FINAL) -> Transcript:
    return Transcript(kind=kind, utterance=utterance, text=text, start_ms=utterance * 20, end_ms=utterance * 20 + 500)


async def say(store: Redis, opened: Opened, utterance: int) -> None:
    """Publish an utterance as an engine does: first a partial, then the final."""
    transcripts = TranscriptStore(store)
    assert await transcripts.publish(opened.ssrc, said(utterance, "ye", EventKind.PARTIAL), 1)
    assert await transcripts.publish(opened.ssrc, said(utterance), 2)


async def test_events_are_partials_and_finals(gateway: GatewayProcess, store: Redis) -> None:
    opened = await gateway.open()
    await say(store, opened, 0)
    async with opened.stream() as events:
        first = await events.transcripts(2)
        await say(store, opened, 50)
        second = await events.transcripts(2)
    assert [(event.name, event.data["utterance"]) for event in (*first, *second)] == [
        ("partial", 0), ("final", 0), ("partial", 50), ("final", 50),
    ]  # fmt: skip
    assert [event.id for event in first] == ["0-1", f"0-{2**32}"]
    assert Transcript.model_validate(second[1].data) == said(50)


async def test_http_1_0_readers_are_supported(gateway: GatewayProcess, store: Redis) -> None:
    """Some proxies use it: there are no chunks, and the end of the connection is the end of the stream."""
    opened = await gateway.open()
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.http_port)
    head = f"GET /v1/sessions/{opened.id}/events HTTP/1.0\r\nHost: 127.0.0.1\r\n{TOKEN_HEADER}: {opened.token}\r\n\r\n"
    writer.write(head.encode())
    async with asyncio.timeout(BUSY_TIMEOUT_S):
        answer = await reader.readuntil(b"\r\n\r\n")
        assert b" 200 " in answer.partition(b"\r\n")[0]
        assert b"chunked" not in answer.lower()
        await say(store, opened, 0)
        told = await reader.readuntil(b"event: final\n")
        assert b"event: partial" in told
        await opened.close()
        rest = await reader.read()
    assert b"event: end" in rest
    writer.close()


async def test_stream_resumes_after_the_last_seen_event(gateway: GatewayProcess, store: Redis) -> None:
    opened = await gateway.open()
    for utterance in range(0, 500, 50):
        await say(store, opened, utterance)
    seen: list[str | None] = []
    while len(seen) < 20:
        async with opened.stream(seen[-1] if seen else None) as events:
            seen += [event.id for event in await events.transcripts(min(3, 20 - len(seen)))]
    assert len(set(seen)) == 20
    assert seen[-1] == f"450-{2**32}"


async def test_invalid_last_event_id_is_rejected(gateway: GatewayProcess) -> None:
    opened = await gateway.open()
    async with gateway.client() as client:
        for wrong in ("x", "1", "1-2-3"):
            answer = await client.get(
                f"/v1/sessions/{opened.id}/events", headers=opened.headers | {"Last-Event-ID": wrong}
            )
            assert answer.status_code == 400
            assert "no event id" in answer.json()["detail"]


async def test_stream_of_a_closed_session_ends_after_its_last_final(gateway: GatewayProcess, store: Redis) -> None:
    opened = await gateway.open()
    await store.hset(state.build_sent_audio_key(opened.ssrc), "last_sequence", "40")
    async with opened.stream() as events:
        await opened.close()
        begin = time.monotonic()
        reading = asyncio.create_task(events.until("end"))
        await asyncio.sleep(4)
        assert not reading.done(), "an utterance is still with the engine"
        await say(store, opened, 0)
        await TranscriptStore(store).mark_transcribed(opened.ssrc, 40, 1)
        found = await reading
    assert time.monotonic() - begin < 30
    assert [event.name for event in found if event.name != "token"] == ["partial", "final", "end"]
    assert found[-1].data == {"complete": True, "lost_ms": 0}


async def test_stream_ends_immediately_after_a_received_goodbye(gateway: GatewayProcess, store: Redis) -> None:
    opened = await gateway.open()
    async with opened.stream() as events:
        await say(store, opened, 0)
        await TranscriptStore(store).publish(opened.ssrc, said(0, kind=EventKind.END))
        found = await events.until("end")
    assert [event.name for event in found if event.name != "token"] == ["partial", "final", "end"]
    assert found[-1].data == {"complete": True, "lost_ms": 0}


async def test_end_reports_losses(gateway: GatewayProcess, store: Redis) -> None:
    opened = await gateway.open()
    await TranscriptStore(store).publish(opened.ssrc, said(50, "", EventKind.GAP), 0)
    await TranscriptStore(store).add_lost_audio(opened.ssrc, 500)
    await TranscriptStore(store).publish(opened.ssrc, said(50, kind=EventKind.END))
    async with opened.stream() as events:
        found = [event for event in await events.until("end") if event.name != "token"]
    assert [event.name for event in found] == ["gap", "end"]
    assert (found[0].data["start_ms"], found[0].data["end_ms"]) == (1000, 1500)
    assert found[-1].data == {"complete": False, "lost_ms": 500}


async def test_stream_of_an_untranscribed_session_ends(gateway: GatewayProcess, store: Redis) -> None:
    opened = await gateway.open()
    await store.hset(state.build_sent_audio_key(opened.ssrc), "last_sequence", "40")
    await opened.close()
    async with opened.stream() as events:
        assert (await asyncio.wait_for(events.until("end"), BUSY_TIMEOUT_S))[-1].data == {
            "complete": False,
            "lost_ms": 0,
        }


async def test_session_that_was_never_closed_ends_when_it_expires(start: Start) -> None:
    gateway = await start(SESSION_MAX_S=1).ready()
    opened = await gateway.open()
    async with opened.stream() as events:
        assert (await asyncio.wait_for(events.until("end"), BUSY_TIMEOUT_S))[-1].data == {
            "complete": True,
            "lost_ms": 0,
        }


async def test_heartbeats_and_new_tokens_are_sent_during_silence(start: Start) -> None:
    gateway = await start(IDLE_TIMEOUT_S=1.5, TOKEN_TTL_S=3).ready()
    opened = await gateway.open()
    tokens = []
    async with opened.stream() as events:
        async for event in events:
            assert event.name == "token"
            tokens.append(event.data["token"])
            if len(tokens) == 4:
                break
        assert events.comments > 3
    assert await opened.close() == 401, "the first token has expired"
    opened.described["token"] = tokens[-1]
    assert await opened.close() == 204


async def test_readers_of_a_session_are_limited(gateway: GatewayProcess, store: Redis) -> None:
    opened = await gateway.open()
    await say(store, opened, 0)
    async with contextlib.AsyncExitStack() as streams:
        readers = [await streams.enter_async_context(opened.stream()) for _ in range(4)]
        for reader in readers:
            assert len(await reader.transcripts(2)) == 2
        async with gateway.client() as client:
            answer = await client.get(f"/v1/sessions/{opened.id}/events", headers=opened.headers)
        assert (answer.status_code, answer.json()["error"]) == (429, "too many readers")
    for _ in range(20):  # disconnected readers release their slots
        async with opened.stream() as reader:
            assert len(await reader.transcripts(2)) == 2


async def test_readers_share_a_connection_to_the_store(gateway: GatewayProcess, store: Redis) -> None:
    sessions = [await gateway.open() for _ in range(120)]
    async with contextlib.AsyncExitStack() as streams:
        readers = [await streams.enter_async_context(opened.stream()) for opened in sessions]
        for opened in sessions:
            await say(store, opened, 0)
        found = await asyncio.gather(*(reader.transcripts(2) for reader in readers))
        clients = (await store.info("clients"))["connected_clients"]
    assert [[event.name for event in events] for events in found] == [["partial", "final"]] * 120
    assert clients < 60


async def test_slow_reader_does_not_delay_another(gateway: GatewayProcess, store: Redis) -> None:
    opened = await gateway.open()
    for utterance in range(300):
        await say(store, opened, utterance)
    async with opened.stream() as behind, opened.stream(f"290-{2**32}") as ahead:
        of_both = await asyncio.gather(behind.transcripts(600), ahead.transcripts(18))
    assert [len({event.id for event in events}) for events in of_both] == [600, 18]


class SlowTranscripts(TranscriptStore):
    """A store with a delayed first response."""

    def __init__(self, store: Redis) -> None:
        super().__init__(store)
        self.asked, self.may_answer = asyncio.Event(), asyncio.Event()

    async def read_many(
        self, after: Mapping[int, EventId], *, count: int
    ) -> dict[int, list[tuple[EventId, Transcript | None]]]:
        found = await super().read_many(after, count=count)
        self.asked.set()
        await self.may_answer.wait()
        return found


async def test_second_reader_misses_nothing(store: Redis) -> None:
    ssrc, transcripts = 7, SlowTranscripts(store)
    for utterance in range(4):
        await transcripts.publish(ssrc, said(utterance), 1)
    followers = EventPoller(transcripts)
    running = asyncio.create_task(followers.run())
    ahead = asyncio.create_task(followers.wait_for_next_events(ssrc, EventId(2, 2**32), BUSY_TIMEOUT_S))
    await transcripts.asked.wait()
    behind = asyncio.create_task(followers.wait_for_next_events(ssrc, STREAM_START, BUSY_TIMEOUT_S))
    await asyncio.sleep(0)
    transcripts.may_answer.set()
    assert [event.utterance for _, event in await ahead] == [3]
    assert [event.utterance for _, event in await behind] == [0, 1, 2, 3]
    running.cancel()


async def test_an_invalid_entry_of_a_session_is_skipped_for_all_readers(store: Redis) -> None:
    """For example, an entry of a newer engine with an unknown kind."""
    transcripts = TranscriptStore(store)
    for number, field in enumerate(("event", "other"), start=1):
        await store.xadd(state.build_transcript_key(7), {field: "{}"}, id=f"1-{number}")
    followers = EventPoller(transcripts)
    running = asyncio.create_task(followers.run())
    try:
        of_invalid, of_other = (
            asyncio.create_task(followers.wait_for_next_events(ssrc, STREAM_START, BUSY_TIMEOUT_S)) for ssrc in (7, 8)
        )
        await asyncio.sleep(0.2)  # both wait, and the invalid entries have been read
        await transcripts.publish(8, said(3))
        assert [event.utterance for _, event in await of_other] == [3]
        await transcripts.publish(7, said(4))
        assert [event.utterance for _, event in await of_invalid] == [4]
        assert [event.utterance for _, event in await transcripts.read(7)] == [4]
    finally:
        running.cancel()


async def test_more_invalid_entries_than_are_read_at_once_are_skipped(store: Redis) -> None:
    transcripts = TranscriptStore(store)
    for number in range(1, 3 * MAX_EVENTS_PER_READER):
        await store.xadd(state.build_transcript_key(7), {"event": "{}"}, id=f"1-{number}")
    await transcripts.publish(7, said(4))
    assert [event.utterance for _, event in await transcripts.read(7, count=MAX_EVENTS_PER_READER)] == [4]
    followers = EventPoller(transcripts)
    running = asyncio.create_task(followers.run())
    assert [event.utterance for _, event in await followers.wait_for_next_events(7, STREAM_START, BUSY_TIMEOUT_S)] == [
        4
    ]
    running.cancel()


class FailingTranscripts(TranscriptStore):
    """Transcripts whose first read fails with an unexpected error."""

    has_failed = False

    async def read_many(
        self, after: Mapping[int, EventId], *, count: int
    ) -> dict[int, list[tuple[EventId, Transcript | None]]]:
        if not self.has_failed:
            self.has_failed = True
            raise KeyError("unexpected")
        return await super().read_many(after, count=count)


async def test_readers_survive_an_unexpected_error(store: Redis, caplog: pytest.LogCaptureFixture) -> None:
    transcripts = FailingTranscripts(store)
    await transcripts.publish(7, said(4))
    followers = EventPoller(transcripts)
    running = asyncio.create_task(followers.run())
    assert [event.utterance for _, event in await followers.wait_for_next_events(7, STREAM_START, 5)] == [4]
    running.cancel()
    assert "transcripts could not be read" in caplog.messages


def slow_reader(opened: Opened) -> socket.socket:
    """Return a connection that has requested events and reads none."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect(("127.0.0.1", opened.gateway.http_port))
    head = f"GET /v1/sessions/{opened.id}/events HTTP/1.1\r\nHost: localhost\r\nX-Voice-Token: {opened.token}\r\n\r\n"
    connection.sendall(head.encode())
    return connection


async def test_events_for_a_slow_reader_stay_in_the_store(gateway: GatewayProcess, store: Redis) -> None:
    opened = await gateway.open()
    before = gateway.memory_mib
    with slow_reader(opened) as slow:
        text = "word " * 2000
        for utterance in range(2000):
            await TranscriptStore(store).publish(opened.ssrc, said(utterance, text), 1)
        await asyncio.sleep(2)
        published_mib = 2000 * len(text) / 2**20
        assert gateway.memory_mib - before < published_mib / 2
        async with opened.stream() as quick:
            assert len(await quick.transcripts(2000)) == 2000
        seen = bytearray()
        slow.settimeout(BUSY_TIMEOUT_S)
        while f"id: 1999-{2**32}".encode() not in seen[-40_000:]:
            seen += await asyncio.to_thread(slow.recv, 1 << 20)
    assert seen.count(b"event: final") == 2000


async def test_stalled_reader_is_disconnected(start: Start, store: Redis) -> None:
    gateway = await start(IDLE_TIMEOUT_S=2).ready()
    opened = await gateway.open()
    for utterance in range(1000):
        await TranscriptStore(store).publish(opened.ssrc, said(utterance, "word " * 2000), 1)
    with slow_reader(opened):
        await holds("it is counted", lambda: gateway.metric("OpenSockets")[-1:] == [1])
        await holds("it is gone", lambda: gateway.metric("OpenSockets")[-1:] == [0])
