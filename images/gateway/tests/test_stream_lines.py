"""The text of an event stream and the times of its lines, with a clock whose time passes in jumps."""

import asyncio
import contextlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from redis.exceptions import RedisError
from starlette.requests import Request

from images.gateway.tests.clocks import run_quickly
from voice_gateway import event_stream
from voice_gateway.event_stream import EventStream, stream_events
from voice_gateway.refusals import Refusal
from voice_runtime.media import MediaFormat
from voice_runtime.sessions import Session, SessionKind, SessionState
from voice_runtime.transcripts import STREAM_START, EventId, EventKind, Transcript

OPEN = Session(
    ssrc=7,
    id="s7",
    state=SessionState.OPEN,
    kind=SessionKind.GATEWAY,
    caller="shop",
    expires_at=4_000_000_000,
    last_sequence=40,
    last_transcribed_sequence=40,
)
CLOSED = replace(OPEN, state=SessionState.CLOSED)
TOKEN = 'event: token\ndata: {"token": "token of s7", "expires_at": "2026-11-29T12:00:00+00:00"}\n\n'
HEARTBEAT = ": still here\n\n"


def said(utterance: int = 0, text: str = "yes", kind: EventKind = EventKind.FINAL) -> tuple[EventId, Transcript]:
    transcript = Transcript(
        kind=kind, utterance=utterance, text=text, start_ms=utterance * 20, end_ms=utterance * 20 + 500
    )
    return EventId(utterance, 5), transcript


def end_event(*, complete: bool, lost_ms: int = 0) -> str:
    return f'event: end\ndata: {{"complete": {json.dumps(complete)}, "lost_ms": {lost_ms}}}\n\n'


@dataclass
class Store:
    """A session and its events, which change at planned times.

    Attributes:
        session: The session, or an error of the store.
        events: Events that have been published.
        spans: Spans of the call's trace.
    """

    session: Session | RedisError | None = OPEN
    events: list[tuple[EventId, Transcript]] = field(default_factory=list)
    error: RedisError | None = None
    idle_timeout_s: float = 900
    token_ttl_s: float = 2000
    is_traced: bool = False
    spans: list[tuple[str, float, float, str]] = field(default_factory=list)
    shutting_down: asyncio.Event = field(default_factory=asyncio.Event)

    async def read_session(self, ssrc: int) -> Session | None:
        assert ssrc == OPEN.ssrc
        if isinstance(self.session, RedisError):
            raise self.session
        return self.session

    async def read(self, ssrc: int, after: EventId) -> list[tuple[EventId, Transcript]]:
        assert ssrc == OPEN.ssrc
        if self.error:
            raise self.error
        return [each for each in self.events if each[0] > after]

    async def wait(self, ssrc: int, after: EventId, timeout_s: float) -> list[tuple[EventId, Transcript]]:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not await self.read(ssrc, after):
                    await asyncio.sleep(0.125)
        return await self.read(ssrc, after)

    @property
    def gateway(self) -> Any:
        trace = SimpleNamespace(
            add_span=lambda name, begin, end, utterance: self.spans.append((name, begin, end, utterance))
        )
        return SimpleNamespace(
            settings=SimpleNamespace(idle_timeout_s=self.idle_timeout_s, token_ttl_s=self.token_ttl_s),
            sessions=SimpleNamespace(read=self.read_session),
            transcripts=SimpleNamespace(read=self.read),
            followers=SimpleNamespace(wait_for_next_events=self.wait),
            tokens=SimpleNamespace(
                create=lambda session_id: (f"token of {session_id}", datetime(2026, 11, 29, 12, tzinfo=UTC))
            ),
            traces=SimpleNamespace(get=lambda ssrc: trace if self.is_traced and ssrc == OPEN.ssrc else None),
            shutting_down=self.shutting_down,
        )


Lines = list[tuple[float, str]]


def read_stream(
    monkeypatch: pytest.MonkeyPatch,
    store: Store,
    changes: Mapping[float, Callable[[], object]],
    *,
    seconds: float = 1000,
    after: EventId = STREAM_START,
) -> Lines:
    """Return the lines of a stream with the seconds since its start, without the first line and the first token.

    Args:
        changes: Changes of the store, by the second at which they happen.
        seconds: Duration after which the reader leaves.
    """

    async def run() -> Lines:
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(event_stream, "time", SimpleNamespace(monotonic=loop.time))
        begin, lines = loop.time(), Lines()
        for second, change in changes.items():
            loop.call_later(second, change)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                async for line in EventStream(store.gateway, OPEN, after).iter_lines():
                    lines.append((loop.time() - begin, line))
        return lines

    lines = run_quickly(run())
    assert [line for _, line in lines[:2]] == ["retry: 1000\n\n", TOKEN]
    return [(round(second, 2), line) for second, line in lines[2:]]


def becomes(store: Store, session: Session | RedisError | None) -> Callable[[], None]:
    return lambda: setattr(store, "session", session)


# --- Silence --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("idle_timeout_s", "seconds"), [(15, [5, 10, 15]), (16, [6, 12])])
def test_three_heartbeats_are_sent_per_idle_timeout_of_a_proxy(
    monkeypatch: pytest.MonkeyPatch, idle_timeout_s: float, seconds: list[float]
) -> None:
    """They are due between two checks, and sent after the second one."""
    lines = read_stream(monkeypatch, Store(idle_timeout_s=idle_timeout_s), {}, seconds=16.5)
    assert lines == [(second, HEARTBEAT) for second in seconds]


def test_heartbeats_of_a_short_timeout_do_not_wait_for_the_next_check(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = read_stream(monkeypatch, Store(idle_timeout_s=1.5), {}, seconds=1.1)
    assert lines == [(0.5, HEARTBEAT), (1.0, HEARTBEAT)]


def test_other_lines_replace_a_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    """A token comes after half of the previous one's lifetime."""
    store = Store(idle_timeout_s=15, token_ttl_s=17)
    lines = read_stream(monkeypatch, store, {2: lambda: store.events.append(said())}, seconds=18.5)
    final = 'id: 0-5\nevent: final\ndata: {"kind":"final","utterance":0,"text":"yes","start_ms":0,"end_ms":500}\n\n'
    assert lines == [(2, final), (7, HEARTBEAT), (9, TOKEN), (14, HEARTBEAT), (18, TOKEN)]


# --- The end --------------------------------------------------------------------------------------------


def test_a_session_without_open_speech_ends_two_seconds_after_its_close(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_stream(monkeypatch, Store(session=CLOSED), {}) == [(2, end_event(complete=True))]


def test_a_closed_session_ends_after_two_seconds_without_further_speech(monkeypatch: pytest.MonkeyPatch) -> None:
    """The close is detected within a second, at 4 s; a final that still arrives is sent before the end."""
    store = Store()
    changes = {
        3.5: becomes(store, CLOSED),
        5.5: lambda: store.events.append(said()),
    }
    lines = read_stream(monkeypatch, store, changes)
    assert [line.partition("\n")[0] for _, line in lines] == ["id: 0-5", "event: end"]
    assert lines[1] == (6.5, end_event(complete=True))


@pytest.mark.parametrize(("partial_at_s", "ends_at_s"), [(5.0, 30.0), (5.25, 30.25)])
def test_a_closed_session_waits_30_seconds_for_its_last_final(
    monkeypatch: pytest.MonkeyPatch, partial_at_s: float, ends_at_s: float
) -> None:
    """Other events do not extend this time, but determine when it is checked."""
    store = Store(session=replace(CLOSED, last_sequence=41))
    changes = {partial_at_s: lambda: store.events.append(said(kind=EventKind.PARTIAL))}
    lines = read_stream(monkeypatch, store, changes)
    assert lines[1:] == [(ends_at_s, end_event(complete=False))]


def test_a_final_that_arrives_meanwhile_completes_a_closed_session(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(session=replace(CLOSED, last_sequence=41))
    changes = {20.25: becomes(store, CLOSED)}
    assert read_stream(monkeypatch, store, changes) == [(21, end_event(complete=True))]


@pytest.mark.parametrize(("lost_ms", "is_complete"), [(0, True), (500, False)])
def test_a_session_ends_with_its_goodbye(monkeypatch: pytest.MonkeyPatch, lost_ms: int, is_complete: bool) -> None:
    """Lost audio is read after the goodbye, since it may have been counted shortly before."""
    store = Store()

    def end() -> None:
        store.events += [said(), said(50, "", EventKind.END), said(60)]
        store.session = replace(OPEN, lost_ms=lost_ms)

    lines = read_stream(monkeypatch, store, {4: end})
    assert [line.partition("\n")[0] for _, line in lines] == ["id: 0-5", "event: end"]
    assert lines[-1] == (4, end_event(complete=is_complete, lost_ms=lost_ms))


def test_a_session_whose_record_is_gone_ends_incompletely(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = read_stream(monkeypatch, Store(session=None, events=[said()]), {})
    assert [line.partition("\n")[0] for _, line in lines] == ["id: 0-5", "event: end"]
    assert lines[-1] == (0, end_event(complete=False))


def test_a_stopping_gateway_names_the_last_event(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(events=[said(50)])
    lines = read_stream(monkeypatch, store, {10.5: store.shutting_down.set})
    assert lines[1:] == [(11, 'event: resume\ndata: {"last_event_id": "50-5"}\n\n')]


# --- Faults ---------------------------------------------------------------------------------------------


def test_the_stream_outlives_an_outage_of_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the session nor its events can be read meanwhile."""
    store = Store()

    def fail() -> None:
        store.session = store.error = RedisError()

    def recover() -> None:
        store.session, store.error, store.events = OPEN, None, [said(), said(9, "", EventKind.END)]

    with_pauses(monkeypatch)
    lines = read_stream(monkeypatch, store, {2: fail, 9: recover})
    assert [line.partition("\n")[0] for _, line in lines] == ["id: 0-5", "event: end"]
    assert lines[-1][1] == end_event(complete=True)


def with_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the time pass while the store fails."""
    check = EventStream._check_completion

    async def check_later(stream: EventStream) -> bool | None:
        await asyncio.sleep(0.25)
        return await check(stream)

    monkeypatch.setattr(EventStream, "_check_completion", check_later)


def test_each_refusal_of_an_asr_host_is_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store()
    changes = {
        2.5: becomes(store, replace(OPEN, refused_at=100)),
        6.5: becomes(store, OPEN),
        8.5: becomes(store, replace(OPEN, refused_at=101)),
    }
    lines = read_stream(monkeypatch, store, changes, seconds=20)
    detail = "no ASR host takes this session: what is said now is not transcribed; connect again"
    error = f'event: error\ndata: {{"error": "no capacity", "detail": "{detail}"}}\n\n'
    assert lines == [(second, error) for second in (4, 10)]


@pytest.mark.parametrize("count", [1, 9])
def test_packets_of_another_format_are_reported_once(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    session = replace(OPEN, wrong_payload_count=count)
    store = Store(session=session)
    changes = {5.0: becomes(store, replace(session, wrong_payload_count=count + 7))}
    ((second, line),) = read_stream(monkeypatch, store, changes, seconds=20)
    assert second == 1
    assert line.startswith('event: error\ndata: {"error": "wrong payload", ')
    media = MediaFormat.parse(str(OPEN.media))
    assert f"{count} packets are not L16/16000 of {media.packet_ms} ms with payload type {media.payload_type}" in line


# --- Traces ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [each for each in EventKind if each is not EventKind.END])
@pytest.mark.parametrize("is_traced", [False, True])
def test_the_delivery_of_finals_of_a_traced_call_is_a_span(
    monkeypatch: pytest.MonkeyPatch, kind: EventKind, is_traced: bool
) -> None:
    store = Store(events=[said(50, kind=kind)], is_traced=is_traced)
    assert len(read_stream(monkeypatch, store, {}, seconds=2)) == 1
    expected = [("deliver", 8, 8, "50")] if is_traced and kind is EventKind.FINAL else []
    assert store.spans == expected


# --- Requests -------------------------------------------------------------------------------------------


class Doors:
    """Counts what a request holds."""

    def __init__(self) -> None:
        self.held: list[object] = []

    @contextlib.contextmanager
    def holding(self, name: object) -> Any:
        self.held.append(name)
        yield
        self.held.remove(name)


def request_with(headers: dict[str, str], doors: Doors, store: Store) -> Request:
    async def authenticate(session_id: str, token: str | None) -> Session:
        assert (session_id, token) == ("s7", "mine")
        return OPEN

    gateway = store.gateway
    gateway.authenticate = authenticate
    gateway.count_connection = lambda: doors.holding("connection")
    gateway.count_reader = doors.holding
    return Request(
        {
            "type": "http",
            "headers": [
                (name.lower().encode(), value.encode()) for name, value in ({"X-Voice-Token": "mine"} | headers).items()
            ],
            "path_params": {"id": "s7"},
            "app": SimpleNamespace(state=SimpleNamespace(gateway=gateway)),
        }
    )


@pytest.mark.parametrize(
    ("last_event_id", "utterances"), [("", [0, 50]), ("0-5", [50]), ("0-4", [0, 50]), ("50-5", [])]
)
def test_a_response_is_a_stream_that_holds_its_connection_until_its_end(
    monkeypatch: pytest.MonkeyPatch, last_event_id: str, utterances: list[int]
) -> None:
    doors, body, heads = Doors(), [], []
    headers = {"Last-Event-ID": last_event_id} if last_event_id else {}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            heads.append(message)
        assert sorted(map(str, doors.held)) == ["7", "connection"]
        body.append(message.get("body", b"").decode())

    async def receive() -> Any:
        await asyncio.Event().wait()

    async def run() -> None:
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(event_stream, "time", SimpleNamespace(monotonic=loop.time))
        store = Store(session=CLOSED, events=[said(0), said(50)])
        request = request_with(headers, doors, store)
        response = await stream_events(request)
        await response({"type": "http", "asgi": {"spec_version": "2.4"}}, receive, send)

    run_quickly(run())
    assert doors.held == []
    assert [line.split("-")[0] for line in body if line.startswith("id: ")] == [f"id: {each}" for each in utterances]
    (head,) = heads
    assert head["status"] == 200
    found = {name.decode(): value.decode() for name, value in head["headers"]}
    assert found["content-type"].startswith("text/event-stream")
    assert found["cache-control"] == "no-store"
    assert found["x-accel-buffering"] == "no"


def test_an_invalid_position_is_refused_and_holds_nothing() -> None:
    doors = Doors()

    async def run() -> None:
        with pytest.raises(Refusal, match="Last-Event-ID: 'x' is no event id") as refused:
            await stream_events(request_with({"Last-Event-ID": "x"}, doors, Store()))
        assert refused.value.status_code == 400

    run_quickly(run())
    assert doors.held == []
