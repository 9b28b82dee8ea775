"""The ends of an audio socket, and what each of them does to its session, its slot and the caller's usage."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as StoreConnectionError

from images.conftest import BUSY_TIMEOUT_S
from images.gateway.tests.local_gateway import LocalGateway, LocalSocket
from images.gateway.tests.running import APP, BYE, VadHost, holds
from voice_gateway import audio_socket
from voice_gateway.audio import InvalidAudioError
from voice_gateway.audio_socket import CLIENT_DISCONNECTED, NORMAL_END, AudioSocket, CloseReason
from voice_gateway.pacer import MAX_REDUCED_BUFFER_S
from voice_gateway.socket_lease import SocketLease
from voice_runtime import state
from voice_runtime.sessions import Session, SessionState
from voice_runtime.transcripts import EventId, EventKind, Transcript

FRAMES = bytes(3200)
"""100 ms of audio: five frames."""


class Clock:
    """A clock that only advances while a socket sleeps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.monotonic = 0.0
        self.began_at = int(time.time())
        self.after_sleep: Callable[[], Any] = lambda: None
        monkeypatch.setattr(audio_socket, "asyncio", SimpleNamespace(**vars(asyncio) | {"sleep": self.sleep}))
        fake = SimpleNamespace(monotonic=lambda: self.monotonic, time=lambda: self.began_at + self.monotonic)
        monkeypatch.setattr(audio_socket, "time", fake)

    async def sleep(self, seconds: float) -> None:
        self.monotonic += seconds
        self.after_sleep()
        await asyncio.sleep(0)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


class Served:
    """An audio socket and its parts."""

    def __init__(self, gateway: LocalGateway, session: Session) -> None:
        self.gateway, self.session = gateway, session
        self.websocket = LocalSocket(gateway)
        self.lease = SocketLease(gateway.store, session.ssrc)
        self.socket = AudioSocket(gateway, self.websocket, session, self.lease, 1)
        self.reports: list[tuple[str, float]] = []
        schedule: Any = lambda each, wait_s: self.reports.append((each.id, wait_s))  # noqa: E731
        gateway.usage.schedule_report = schedule  # type: ignore[method-assign]

    async def serve(self) -> None:
        """Accept the WebSocket, and serve it to its end."""
        await self.websocket.accept()
        await asyncio.wait_for(self.socket.serve(), BUSY_TIMEOUT_S)

    async def end(self, close: CloseReason) -> None:
        await self.websocket.accept()
        await self.socket._end(close)

    async def slot(self) -> float | None:
        """Return the time until which its slot is reserved."""
        found = await self.gateway.store.zscore(state.SLOT_RESERVATIONS_KEY, str(self.session.ssrc))
        return None if found is None else float(found)


async def serve(gateway: LocalGateway, **fields: Any) -> Served:
    served = Served(gateway, await gateway.open_session(**fields))
    await served.lease.acquire()
    await gateway.reservations.acquire(served.session.ssrc, time.time() + 10)
    return served


async def audio_of(served: Served) -> float:
    return (await served.gateway.read_session()).received_s


async def test_the_end_of_the_audio_closes_the_session(store: Redis, vad: VadHost, rtp_port: int) -> None:
    served = await serve(LocalGateway(store, rtp_port=rtp_port))
    for message in (FRAMES, FRAMES[:100], '{"type": "commit"}', FRAMES, '{"type": "end"}'):
        served.websocket.put(message)
    await served.serve()
    assert served.websocket.closed == (1000, "all audio has been taken")
    await holds("the goodbye", lambda: [kind for _, kind in vad.notices] == [APP, BYE])
    packets = vad.of(served.session.ssrc)
    assert [packet.sequence for packet in packets] == list(range(1, 12)), "the commit completes the sixth frame"
    assert packets[0].timestamp == 320
    session = await served.gateway.read_session()
    assert session.state is SessionState.CLOSED
    assert session.received_s == pytest.approx(0.22)
    assert served.reports == [(session.id, 0.0)], "its caller does not return"
    assert (await served.slot() or 0) < time.time() + 6


@pytest.mark.parametrize("code", [1001, 1005, 1006])
async def test_a_lost_connection_leaves_the_session_for_the_grace_period(
    store: Redis, vad: VadHost, rtp_port: int, caplog: pytest.LogCaptureFixture, code: int
) -> None:
    """The log has code 1006 for a connection that was lost (RFC 6455, section 7.1.5)."""
    caplog.set_level(logging.INFO)
    served = await serve(LocalGateway(store, rtp_port=rtp_port))
    served.websocket.put(FRAMES)
    served.websocket.disconnect(code)
    await served.serve()
    assert served.websocket.closed is None
    session = await served.gateway.read_session()
    assert session.state is SessionState.OPEN
    assert time.time() + 15 < session.reconnect_by <= time.time() + 20
    assert time.time() + 15 < (await served.slot() or 0) <= time.time() + 20
    assert served.reports == [(session.id, 20)]
    assert len(vad.of(session.ssrc)) == 5, "audio that arrived before is still sent"
    assert not vad.notices
    [line] = [each for each in caplog.records if each.message == "socket closed"]
    assert line.__dict__["fields"] == {"ssrc": session.ssrc, "code": 1006}


async def test_a_normal_closure_ends_the_session(store: Redis, vad: VadHost, rtp_port: int) -> None:
    """Code 1000 of RFC 6455, section 7.4.1."""
    served = await serve(LocalGateway(store, rtp_port=rtp_port))
    served.websocket.put(FRAMES)
    served.websocket.disconnect(1000)
    await served.serve()
    assert (await served.gateway.read_session()).state is SessionState.CLOSED
    await holds("the goodbye", lambda: [kind for _, kind in vad.notices] == [BYE])


async def test_a_socket_that_lost_its_lease_leaves_the_session_to_the_newer_one(store: Redis) -> None:
    served = await serve(LocalGateway(store))
    slot = await served.slot()
    await SocketLease(store, served.session.ssrc).acquire()
    assert await served.socket._renew_lease_and_slot() == audio_socket.LEASE_LOST
    await served.end(audio_socket.LEASE_LOST)
    assert served.websocket.closed == (1008, "another socket has this session")
    session = await served.gateway.read_session()
    assert (session.state, session.reconnect_by) == (SessionState.OPEN, 0)
    assert await served.slot() == slot


async def test_a_stopping_gateway_sends_all_audio_before_it_asks_the_caller_to_reconnect(
    store: Redis, vad: VadHost, rtp_port: int
) -> None:
    served = await serve(LocalGateway(store, rtp_port=rtp_port))
    await served.websocket.accept()
    served.socket._send_audio(FRAMES)
    served.gateway.shutting_down.set()
    await asyncio.wait_for(served.socket.serve(), BUSY_TIMEOUT_S)
    assert served.websocket.closed == (1012, "this gateway is stopping; connect again with the newest token")
    assert len(vad.of(served.session.ssrc)) == 5
    assert (await served.gateway.read_session()).state is SessionState.OPEN


async def test_a_closed_session_ends_its_socket(store: Redis) -> None:
    served = await serve(LocalGateway(store))
    await served.gateway.sessions.close(served.session)
    assert await served.socket._renew_lease_and_slot() == audio_socket.SESSION_CLOSED
    await store.delete(state.build_session_key(served.session.ssrc))
    assert await served.socket._renew_lease_and_slot() == audio_socket.SESSION_CLOSED
    await served.end(audio_socket.SESSION_CLOSED)
    assert served.websocket.closed == (1000, "the session was closed")
    assert served.reports == [(served.session.id, 0.0)], "its caller does not return"


async def test_a_session_that_an_engine_refuses_may_be_tried_again(store: Redis) -> None:
    served = await serve(LocalGateway(store))
    await served.gateway.sessions.mark_refused(served.session.ssrc)
    assert await served.socket._renew_lease_and_slot() == audio_socket.ASR_SLOT_UNAVAILABLE
    assert served.gateway.read_metrics() == {"SessionsRefused": 1}
    await served.end(audio_socket.ASR_SLOT_UNAVAILABLE)
    assert served.websocket.closed == (1013, "no ASR host takes this session; try again")
    assert (await served.gateway.read_session()).state is SessionState.OPEN


async def test_a_session_ends_when_the_minutes_of_its_caller_are_used_up(
    store: Redis, vad: VadHost, rtp_port: int
) -> None:
    served = await serve(LocalGateway(store, rtp_port=rtp_port, caller_minutes_per_day=1))
    served.socket._received_frames = 60 * 50 - 1
    assert await served.socket._renew_lease_and_slot() is None
    served.socket._received_frames += 1
    assert await served.socket._renew_lease_and_slot() == audio_socket.QUOTA_EXCEEDED
    assert await audio_of(served) == pytest.approx(60.0)
    await served.end(audio_socket.QUOTA_EXCEEDED)
    assert served.websocket.closed
    assert served.websocket.closed[0] == 1008
    assert (await served.gateway.read_session()).state is SessionState.CLOSED
    await holds("the goodbye", lambda: [kind for _, kind in vad.notices] == [BYE])


async def test_a_socket_keeps_its_lease_its_slot_and_its_session(store: Redis) -> None:
    served = await serve(LocalGateway(store))
    await store.zrem(state.SLOT_RESERVATIONS_KEY, str(served.session.ssrc))
    await served.gateway.sessions.start_grace_period(served.session, 1)  # by an older socket
    earliest = time.time()
    assert await served.socket._renew_lease_and_slot() is None
    assert earliest + 10 <= (await served.slot() or 0) <= time.time() + 10
    assert (await served.gateway.read_session()).reconnect_by == 0
    assert await served.lease.is_held()


def test_a_message_may_have_64_kib() -> None:
    """``docs/clients.md`` and the README of the gateway name the limit."""
    assert audio_socket.MAX_MESSAGE_BYTES == 65_536


@pytest.mark.parametrize(("encoding", "rate"), [("pcm16", 16_000), ("mulaw", 8000), ("alaw", 8000)])
async def test_audio_of_a_raw_encoding_needs_no_decoder_process(store: Redis, encoding: str, rate: int) -> None:
    served = await serve(LocalGateway(store))
    await served.socket._handle_control_message(f'{{"type": "start", "encoding": "{encoding}", "rate": {rate}}}')
    assert await served.socket._add_audio(FRAMES) is None
    assert served.socket._received_frames > 0
    assert served.socket._container is None


def test_a_lease_outlives_one_missed_renewal() -> None:
    assert 2 * audio_socket.SESSION_CHECK_INTERVAL_S < state.SESSION_LEASE_TTL_S


def test_the_end_of_a_socket_waits_until_the_reduced_buffer_is_sent() -> None:
    assert MAX_REDUCED_BUFFER_S < audio_socket.FLUSH_TIMEOUT_S < 10


async def test_a_socket_without_audio_is_closed_after_the_idle_timeout(store: Redis, clock: Clock) -> None:
    served = await serve(LocalGateway(store, idle_timeout_s=8))
    assert await served.socket._monitor_session() == CloseReason(1008, "no audio for 8 s")
    assert 8 < clock.monotonic <= 12


async def test_audio_that_is_still_being_sent_is_not_idle(store: Redis, clock: Clock) -> None:
    gateway = LocalGateway(store)
    gateway.set_hosts(vad_slots=0)
    served = await serve(gateway)
    served.socket._pacer.put([bytes(640)])
    clock.monotonic = 100.0
    assert not served.socket._is_idle()
    served.socket._pacer.close()
    clock.monotonic = 130.0
    assert not served.socket._is_idle()
    clock.monotonic = 130.1
    assert served.socket._is_idle()


@pytest.mark.parametrize(("lasts_s", "ends_at_s"), [(10, 10), (11, 12)])
async def test_a_session_ends_at_its_expiry(store: Redis, clock: Clock, lasts_s: int, ends_at_s: int) -> None:
    """The expiry is checked every two seconds."""
    served = await serve(LocalGateway(store), expires_at=clock.began_at + lasts_s)
    assert await served.socket._monitor_session() == CloseReason(1008, "a session lasts 3600 s at most")
    assert clock.monotonic == ends_at_s


async def test_a_socket_waits_five_seconds_for_another_vad_host(
    store: Redis, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audio_socket, "SESSION_CHECK_INTERVAL_S", 0.5)
    gateway = LocalGateway(store)
    served = await serve(gateway)
    clock.after_sleep = lambda: gateway.set_hosts(vad_slots=10 if 2 <= clock.monotonic <= 3 else 0)
    assert await served.socket._monitor_session() == audio_socket.VAD_HOST_UNAVAILABLE
    assert 3 + 5 < clock.monotonic < 3 + 6
    await served.end(audio_socket.VAD_HOST_UNAVAILABLE)
    assert served.websocket.closed == (1013, "no VAD host takes audio; try again")


@pytest.mark.usefixtures("clock")
async def test_a_socket_survives_a_failure_of_the_store(store: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    served = await serve(LocalGateway(store))
    answers = iter((StoreConnectionError(), None, NORMAL_END))

    async def renew() -> CloseReason | None:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(served.socket, "_renew_lease_and_slot", renew)
    assert await served.socket._monitor_session() is NORMAL_END


async def test_nothing_resumes_a_session_after_its_socket_even_if_a_cancellation_is_lost(
    store: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client of the store may lose one before Python 3.12."""
    monkeypatch.setattr(audio_socket, "SESSION_CHECK_INTERVAL_S", 0.01)
    served = await serve(LocalGateway(store))

    async def renew() -> None:
        monkeypatch.undo()
        served.websocket.disconnect()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(BUSY_TIMEOUT_S)

    monkeypatch.setattr(served.socket, "_renew_lease_and_slot", renew)
    before = asyncio.all_tasks()
    await served.serve()
    assert asyncio.all_tasks() <= before


async def test_the_end_of_a_socket_survives_a_failure_of_the_store(
    store: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = await serve(LocalGateway(store))

    async def fail(*_: object) -> None:
        raise StoreConnectionError

    monkeypatch.setattr(served.gateway.sessions, "close", fail)
    monkeypatch.setattr(served.gateway.usage, "count_audio", fail)
    await served.end(NORMAL_END)
    assert served.websocket.closed == (1000, "all audio has been taken")


@pytest.mark.parametrize(
    ("text", "code", "reason"),
    [
        ("{", 1003, "text is for start, commit and end only:  Invalid JSON"),
        ('{"type": "stop"}', 1003, "text is for start, commit and end only:  Input tag 'stop'"),
        ('{"type": "end", "at": 1}', 1003, "text is for start, commit and end only: end.at Extra inputs"),
        ('{"type": "commit", "at": 1}', 1003, "text is for start, commit and end only: commit.at Extra inputs"),
        ('{"type": "start", "rate": 7999}', 1003, "text is for start, commit and end only: start.rate Input should"),
        ('{"type": "start", "at": 1}', 1003, "text is for start, commit and end only: start.at Extra inputs"),
        ('{"type": "end"}', 1000, "all audio has been taken"),
    ],
)
async def test_a_text_message_ends_the_socket_unless_it_is_known(
    store: Redis, text: str, code: int, reason: str
) -> None:
    served = await serve(LocalGateway(store))
    close = await served.socket._handle_message({"type": "websocket.receive", "text": text})
    assert close
    assert (close.code, close.ends_session) == (code, code == 1000)
    assert close.reason.startswith(reason)
    assert len(close.reason.encode()) <= 123, "RFC 6455, section 5.5"


async def test_the_format_is_set_once_before_any_audio(store: Redis) -> None:
    served = await serve(LocalGateway(store))
    start = {"type": "websocket.receive", "text": '{"type": "start", "rate": 8000}'}
    assert await served.socket._handle_message(start) is None
    assert await served.socket._handle_message({"type": "websocket.receive", "bytes": bytes(3200)}) is None
    served.socket._enqueue_frames(served.socket._framer.flush() if served.socket._framer else [])
    assert served.socket._received_frames == 10, "200 ms at 8 kHz"
    late = CloseReason(1003, "`start` comes once, before any audio")
    assert await served.socket._handle_message(start) == late
    other = await serve(LocalGateway(store), ssrc=8)
    await other.socket._handle_message({"type": "websocket.receive", "bytes": FRAMES})
    assert await other.socket._handle_message(start) == late


@pytest.mark.parametrize(
    ("text", "reason"),
    [("x" * 123, "x" * 123), ("x" * 124, "x" * 123), ("é" * 62, "é" * 61), ("x" + "é" * 62, "x" + "é" * 61)],
)
async def test_invalid_audio_closes_the_socket_with_a_reason_that_fits(
    store: Redis, monkeypatch: pytest.MonkeyPatch, text: str, reason: str
) -> None:
    """A close frame has a reason of at most 123 bytes of UTF-8 (RFC 6455, section 5.5)."""
    served = await serve(LocalGateway(store))
    await served.websocket.accept()

    def fail(_: bytes) -> None:
        raise InvalidAudioError(text)

    monkeypatch.setattr(served.socket, "_send_audio", fail)
    served.websocket.put(FRAMES)
    assert await served.socket._receive_messages() == CloseReason(1007, reason)


class Decoder:
    """A decoder that returns the bytes that it receives."""

    def __init__(self, max_duration_s: int, on_samples: Callable[[bytes], Any]) -> None:
        self.max_duration_s, self._on_samples = max_duration_s, on_samples
        self.calls: list[str] = []

    async def add(self, piece: bytes) -> None:
        await self._on_samples(piece)

    async def wait_until_read(self) -> None:
        self.calls.append("wait_until_read")

    async def finish(self) -> None:
        self.calls.append("finish")

    async def stop(self) -> None:
        self.calls.append("stop")


async def test_a_container_is_decoded_by_one_process_per_socket(
    store: Redis, monkeypatch: pytest.MonkeyPatch, vad: VadHost, rtp_port: int
) -> None:
    monkeypatch.setattr(audio_socket, "IncrementalDecoder", Decoder)
    served = await serve(LocalGateway(store, rtp_port=rtp_port))
    for message in (
        '{"type": "start", "encoding": "container"}',
        FRAMES,
        FRAMES,
        '{"type": "commit"}',
        '{"type": "end"}',
    ):
        served.websocket.put(message)
    await served.serve()
    decoder: Any = served.socket._container
    assert decoder.max_duration_s == 3600
    assert decoder.calls == ["wait_until_read", "finish", "stop"]
    assert len(vad.of(served.session.ssrc)) == 10
    assert served.gateway.container_slots._value == 16, "its slot is free again"


async def test_a_container_is_refused_while_all_decoders_are_in_use(
    store: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audio_socket, "IncrementalDecoder", Decoder)
    served = await serve(LocalGateway(store))
    served.gateway.container_slots = asyncio.Semaphore(0)
    await served.socket._handle_control_message('{"type": "start", "encoding": "container"}')
    close = await served.socket._add_audio(FRAMES)
    assert close
    assert (close.code, close.ends_session) == (1013, False)
    assert close.reason.startswith("this gateway decodes 16 containers at a time")


class Followers:
    """Events of a session, with their times after the first read."""

    def __init__(self, first_at_s: float) -> None:
        self._first_at_s = first_at_s
        self.reads: list[EventId] = []

    async def wait_for_next_events(self, _: int, after: EventId, timeout_s: float) -> list[tuple[EventId, Transcript]]:
        self.reads.append(after)
        if len(self.reads) == 1 and self._first_at_s > timeout_s:
            return []
        final = Transcript(kind=EventKind.FINAL, utterance=0, text="yes", start_ms=0, end_ms=20)
        partial = Transcript(kind=EventKind.PARTIAL, utterance=0, text="y", start_ms=0, end_ms=20)
        return [(EventId(len(self.reads), 0), final if len(self.reads) > 2 else partial)]


@pytest.mark.parametrize(("first_at_s", "is_measured"), [(0.1, False), (0.5, True)])
async def test_the_first_transcripts_of_a_session_are_measured(
    store: Redis, monkeypatch: pytest.MonkeyPatch, first_at_s: float, is_measured: bool
) -> None:
    """A session that has transcripts when its socket opens was continued, and no caller waited for them."""
    served = await serve(LocalGateway(store))
    followers: Any = Followers(first_at_s)
    served.gateway.followers = followers
    monkeypatch.setattr(served.socket._pacer, "get_sent_time", lambda _: 0.0)
    await asyncio.wait_for(served.socket._measure_transcript_latency(), BUSY_TIMEOUT_S)
    assert set(served.gateway.read_metrics()) == ({"TimeToFirstText", "TimeToFinal"} if is_measured else set())
    if is_measured:
        assert len(set(followers.reads)) == len(followers.reads) - 1, "each read continues after the last event"


async def test_a_lost_connection_waits_for_the_audio_before_it(store: Redis) -> None:
    """Other ends do not wait here."""
    gateway = LocalGateway(store)
    gateway.set_hosts(vad_slots=0)
    served = await serve(gateway)
    served.socket._pacer.put([bytes(640)])
    other = CloseReason(1003, "other")
    assert await served.socket._flush(other) is other
    for close in (NORMAL_END, CLIENT_DISCONNECTED):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(served.socket._flush(close), 0.05)
