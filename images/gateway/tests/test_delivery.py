"""Delivery of the last messages of a socket, and messages that its session's next socket does not repeat."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, MagicMock, Mock, call

import pytest
from redis.exceptions import RedisError
from starlette.types import Message
from starlette.websockets import WebSocketDisconnect

from images.conftest import BUSY_TIMEOUT_S
from images.gateway.tests.clocks import run_quickly
from voice_gateway import client_socket
from voice_gateway.audio import AudioFormat, Encoding
from voice_gateway.audio_socket import NORMAL_END, SERVICE_RESTART, AudioSocket, CloseReason
from voice_gateway.client_socket import (
    CLIENT_TOO_SLOW,
    SHUTDOWN,
    ClientSocket,
    SocketArguments,
    get_resume_position,
)
from voice_gateway.refusals import Refusal, build_no_capacity_refusal
from voice_runtime.transcripts import STREAM_START, EventId, EventKind, Transcript

Changes = Mapping[float, Callable[[Any], object]]
NOW = 100.0


def socket_with(**fields: object) -> Any:
    """Return a socket of no protocol with these attributes only."""
    kind: Any = type("Socket", (ClientSocket,), {"__abstractmethods__": frozenset()})
    socket = object.__new__(kind)
    vars(socket).update(fields)
    return socket


@pytest.mark.parametrize(
    ("ages_s", "delivered"),
    [((), 0), ((0.9,), 0), ((1.0,), 1), ((2.0, 1.5, 0.5), 2), ((3.0, 2.0, 1.0), 3)],
)
@pytest.mark.parametrize("store_error", [None, RedisError()])
async def test_a_message_sent_a_second_before_one_of_the_client_has_arrived(
    monkeypatch: pytest.MonkeyPatch, ages_s: tuple[float, ...], delivered: int, store_error: RedisError | None
) -> None:
    """The position is stored with the session, unless the store is unavailable."""
    clock = SimpleNamespace(time=lambda: NOW)
    monkeypatch.setattr(
        client_socket, "asyncio", SimpleNamespace(get_running_loop=lambda: clock, create_task=asyncio.create_task)
    )
    sessions = AsyncMock()
    sessions.update.side_effect = store_error
    socket = socket_with(_gateway=SimpleNamespace(sessions=sessions), _session=SimpleNamespace(), _record_task=None)
    sent = [(EventId(100 * place, 1), NOW - age_s) for place, age_s in enumerate(ages_s)]
    socket._sent = deque(sent)
    socket._confirm_delivery()
    assert list(socket._sent) == sent[delivered:]
    assert (socket._record_task is not None) == bool(delivered)
    if socket._record_task:
        await socket._record_task
        sessions.update.assert_awaited_once_with(socket._session, told=str(sent[delivered - 1][0]))


@pytest.mark.parametrize("is_disconnected", [False, True])
async def test_a_closing_socket_delivers_the_rest_unless_its_client_disconnects(
    monkeypatch: pytest.MonkeyPatch, is_disconnected: bool
) -> None:
    """Other messages of the client are ignored."""
    messages: asyncio.Queue[Message] = asyncio.Queue()
    is_flushed = asyncio.Event()

    async def flush(_: AudioSocket, close: CloseReason) -> CloseReason:
        await is_flushed.wait()
        return close

    monkeypatch.setattr(AudioSocket, "_flush", flush)
    socket = socket_with(
        _arguments=SimpleNamespace(session_outlives_socket=False),
        _is_disconnected=False,
        _websocket=SimpleNamespace(receive=messages.get),
    )
    closing = asyncio.create_task(socket._flush(NORMAL_END))
    messages.put_nowait({"type": "websocket.receive", "bytes": b""})
    for _ in range(10):  # all tasks read and wait
        await asyncio.sleep(0)
    assert messages.empty()
    assert not closing.done()
    if is_disconnected:
        messages.put_nowait({"type": "websocket.disconnect"})
    else:
        is_flushed.set()
    assert await asyncio.wait_for(closing, BUSY_TIMEOUT_S) is NORMAL_END
    assert socket._is_disconnected is is_disconnected


# --- A stopping process ---------------------------------------------------------------------------------


def waited_s(make: Callable[[Any], Coroutine[Any, Any, object]], changes: Changes, **fields: object) -> float:
    """Return how long a socket waits, while its attributes' states change at planned seconds."""

    async def run() -> float:
        loop = asyncio.get_running_loop()
        begin = loop.time()
        socket = socket_with(
            **{
                "_gateway": SimpleNamespace(shutting_down=asyncio.Event()),
                "_delivery_complete": asyncio.Event(),
                "_speech_paused": asyncio.Event(),
                "_outbox": asyncio.Queue(),
                "_is_disconnected": False,
                **fields,
            }
        )
        for second, change in changes.items():
            loop.call_later(second, change, socket)
        await make(socket)
        return round(loop.time() - begin, 2)

    return run_quickly(run())


def shut_down(socket: Any) -> None:
    socket._gateway.shutting_down.set()


def pause(socket: Any) -> None:
    socket._speech_paused.set()


@pytest.mark.parametrize(
    ("session_outlives_socket", "paused_at_s", "until_s"),
    [(False, 100.0, 7.0), (False, 6.5, 6.5), (False, 1.0, 5.0), (True, 100.0, 5.0)],
)
def test_a_stopping_process_waits_two_seconds_for_a_pause_of_a_caller_who_cannot_return(
    session_outlives_socket: bool, paused_at_s: float, until_s: float
) -> None:
    """docs/clients.md states this time."""
    changes = {5.0: shut_down, paused_at_s: pause}
    arguments = SimpleNamespace(session_outlives_socket=session_outlives_socket)
    assert waited_s(lambda socket: socket._wait_for_shutdown(), changes, _arguments=arguments) == until_s


@pytest.mark.parametrize(("is_shutting_down", "until_s"), [(False, 30.0), (True, 2.5)])
def test_a_closing_socket_waits_for_the_last_finals_but_a_stopping_process_not_longer_than_its_time(
    is_shutting_down: bool, until_s: float
) -> None:
    """With the two seconds for a pause, a stopping process ends a call within five seconds."""
    changes = {0.0: shut_down} if is_shutting_down else {}
    assert waited_s(finish(NORMAL_END, after_s=0.1), changes) == pytest.approx(until_s + 0.1)


def finish(close: CloseReason, after_s: float = 0.0) -> Callable[[Any], Coroutine[Any, Any, None]]:
    async def make(socket: Any) -> None:
        await asyncio.sleep(after_s)
        await socket._finish_before_close(close)

    return make


@pytest.mark.parametrize("close", [NORMAL_END, SHUTDOWN])
def test_the_messages_of_the_protocols_end_follow_the_last_final(close: CloseReason) -> None:
    def complete(socket: Any) -> None:
        socket._outbox.put_nowait("final")
        socket._delivery_complete.set()

    def take_all(socket: Any) -> None:
        while not socket._outbox.empty():
            taken.append(socket._outbox.get_nowait())
            socket._outbox.task_done()

    taken: list[str] = []
    assert waited_s(finish(close), {2.0: complete, 2.25: take_all}, _build_final_messages=lambda: ["end"]) == 2.25
    assert taken == ["final", "end"]


@pytest.mark.parametrize(
    ("close", "is_disconnected", "until_s"),
    [
        (SERVICE_RESTART, False, 1.0),
        (SERVICE_RESTART, True, 0.0),
        (NORMAL_END, True, 0.0),
        (CLIENT_TOO_SLOW, False, 0.0),
    ],
)
def test_a_session_that_continues_only_delivers_what_is_queued(
    close: CloseReason, is_disconnected: bool, until_s: float
) -> None:
    queue: asyncio.Queue[str] = asyncio.Queue()
    queue.put_nowait("partial")
    changes = {1.0: lambda socket: socket._outbox.task_done()}
    assert waited_s(finish(close), changes, _outbox=queue, _is_disconnected=is_disconnected) == until_s


@pytest.mark.parametrize("session_outlives_socket", [False, True])
async def test_a_session_without_a_known_token_ends_with_its_socket(
    monkeypatch: pytest.MonkeyPatch, session_outlives_socket: bool
) -> None:
    """Also if the gateway restarts, which a client with a token survives."""
    end = AsyncMock()
    monkeypatch.setattr(AudioSocket, "_end", end)
    socket = socket_with(_arguments=SimpleNamespace(session_outlives_socket=session_outlives_socket))
    await socket._end(SERVICE_RESTART)
    (close,) = end.await_args_list[0].args
    assert (close.code, close.ends_session) == (1012, not session_outlives_socket)
    assert close in ClientSocket.close_reasons_sent_after_flush


# --- Messages of the client -----------------------------------------------------------------------------


@pytest.mark.parametrize(("queued", "is_too_slow"), [(255, False), (256, True)])
async def test_a_client_that_does_not_read_is_disconnected(
    monkeypatch: pytest.MonkeyPatch, queued: int, is_too_slow: bool
) -> None:
    """Its socket is closed for a violated policy (RFC 6455, section 7.4.1), and its session continues."""
    handle = AsyncMock(return_value=None)
    monkeypatch.setattr(AudioSocket, "_handle_message", handle)
    socket = opened_socket()
    socket._enqueue_messages({"number": number} for number in range(queued))
    close = await socket._handle_message({"type": "websocket.receive", "bytes": b"12"})
    assert close == (CloseReason(1008, "the client does not read its messages") if is_too_slow else None)
    assert handle.await_count == int(not is_too_slow)


@pytest.mark.parametrize(("kind", "is_confirmed"), [("websocket.receive", True), ("websocket.disconnect", False)])
@pytest.mark.parametrize("has_sent", [False, True])
async def test_only_a_message_of_a_connected_client_confirms_the_delivery(
    monkeypatch: pytest.MonkeyPatch, kind: str, is_confirmed: bool, has_sent: bool
) -> None:
    monkeypatch.setattr(AudioSocket, "_handle_message", AsyncMock(return_value=None))
    socket = opened_socket()
    socket._sent.extend([(EventId(0, 1), 0.0)] * has_sent)
    socket._confirm_delivery = Mock()
    assert await socket._handle_message({"type": kind}) is None
    assert socket._is_disconnected is (kind == "websocket.disconnect")
    assert socket._confirm_delivery.called is (is_confirmed and has_sent)


def opened_socket(**arguments: Any) -> Any:
    """Return a socket that was created like any other, with a gateway that stands in for all services."""
    kind: Any = type("Socket", (ClientSocket,), {"__abstractmethods__": frozenset()})
    gateway = MagicMock()
    gateway.settings.idle_timeout_s = gateway.settings.token_ttl_s = 30
    gateway.settings.rtp_port = 0
    session = arguments.pop("session", SimpleNamespace(ssrc=7, last_sent_event=""))
    defaults: dict[str, Any] = {"lease": Mock(), "frame_number": 1, "session_outlives_socket": False, "start_ms": 0}
    socket = kind(gateway, MagicMock(), SocketArguments(session, **defaults | arguments))
    socket._rtp.close()
    return socket


async def test_the_position_of_audio_continues_that_of_the_session() -> None:
    socket = opened_socket(start_ms=1000)
    socket._received_frames = 3
    assert socket._position_ms == 1000 + 3 * 20


@pytest.mark.parametrize(("last_sent_event", "position"), [("", STREAM_START), ("5-7", EventId(5, 7))])
def test_a_socket_continues_after_the_last_sent_event(last_sent_event: str, position: EventId) -> None:
    session: Any = SimpleNamespace(last_sent_event=last_sent_event)
    assert get_resume_position(session) == position


async def test_audio_of_the_previous_format_is_sent_before_another_format_applies() -> None:
    socket = opened_socket()
    socket._pacer = Mock()
    socket._set_audio_format(AudioFormat())
    assert socket._framer is None, "the format is the same"
    socket._send_audio(bytes(642))
    socket._set_audio_format(AudioFormat(encoding=Encoding.MULAW, rate=8000))
    assert socket._format.encoding is Encoding.MULAW
    assert [call.args[0] for call in socket._pacer.put.call_args_list] == [[bytes(640)], [bytes(640)]]


# --- Transcripts ----------------------------------------------------------------------------------------


class Stream:
    """Yields batches of events, each with whether the session is complete."""

    def __init__(self, *batches: tuple[list[EventKind], bool | None]) -> None:
        self._batches = deque(batches)
        self.positions: list[int] = []
        self._next = 0

    async def read_events(self) -> tuple[list[tuple[EventId, Transcript]], bool | None]:
        await asyncio.sleep(1)
        kinds, complete = self._batches.popleft()
        events = []
        for kind in kinds:
            self._next += 1
            transcript = Transcript(kind=kind, utterance=self._next, start_ms=0, end_ms=500)
            events.append((EventId(self._next, 1), transcript))
        return events, complete

    def advance(self, position: EventId) -> None:
        self.positions.append(position.utterance)


def delivered(stream: Stream, *, session_outlives_socket: bool = False, trace: Any = None) -> Any:
    """Return a socket that has delivered all events of a stream, half a second after each was read."""

    async def run() -> Any:
        loop = asyncio.get_running_loop()
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(client_socket, "time", SimpleNamespace(monotonic=loop.time))
            socket = socket_with(
                _stream=stream,
                _gateway=SimpleNamespace(traces=SimpleNamespace(get=lambda ssrc: trace if ssrc == 7 else None)),
                _session=SimpleNamespace(ssrc=7),
                _arguments=SimpleNamespace(session_outlives_socket=session_outlives_socket),
                _outbox=asyncio.Queue(),
                _delivery_complete=asyncio.Event(),
                _speech_paused=asyncio.Event(),
                _sent=deque(),
                _convert_event=lambda transcript: [{"kind": transcript.kind}],
                _is_checkpoint=lambda transcript: transcript.kind is EventKind.FINAL,
                _websocket=SimpleNamespace(send_text=slow_send),
                messages=[],
            )
            sending = asyncio.create_task(socket._send_queued_messages())
            assert await socket._enqueue_transcript_messages() is NORMAL_END
            await socket._outbox.join()
            sending.cancel()
            socket.messages = list(sent_texts)
        return socket

    sent_texts: list[str] = []

    async def slow_send(text: str) -> None:
        await asyncio.sleep(0.5)
        sent_texts.append(text)

    return run_quickly(run())


def test_transcripts_are_delivered_until_the_session_has_ended() -> None:
    stream = Stream(([EventKind.PARTIAL], None), ([], None), ([EventKind.FINAL, EventKind.END], None))
    socket = delivered(stream)
    assert socket.messages == ['{"kind": "partial"}', '{"kind": "final"}', '{"kind": "end"}']
    assert stream.positions == [1, 2, 3]


@pytest.mark.parametrize("complete", [False, True])
def test_a_session_without_a_goodbye_ends_when_no_further_events_follow(complete: bool) -> None:
    stream = Stream(([EventKind.PARTIAL], complete), ([EventKind.FINAL], complete), ([], complete))
    assert delivered(stream).messages == ['{"kind": "partial"}', '{"kind": "final"}']


@pytest.mark.parametrize(
    ("kinds", "is_paused"),
    [
        ([EventKind.SPEECH_STARTED, EventKind.FINAL], False),
        ([EventKind.SPEECH_STARTED, EventKind.SPEECH_STOPPED, EventKind.FINAL], True),
        ([EventKind.SPEECH_STOPPED, EventKind.SPEECH_STARTED, EventKind.GAP, EventKind.PARTIAL], False),
        ([EventKind.SPEECH_STOPPED, EventKind.GAP, EventKind.PARTIAL], True),
        ([EventKind.GAP, EventKind.PARTIAL, EventKind.FINAL], False),
    ],
)
def test_only_the_start_and_the_end_of_speech_change_whether_the_caller_speaks(
    kinds: list[EventKind], is_paused: bool
) -> None:
    socket = delivered(Stream((kinds, None), ([], True)))
    assert socket._speech_paused.is_set() is is_paused


async def test_a_caller_who_has_said_nothing_is_connected_and_does_not_speak() -> None:
    socket = opened_socket()
    assert socket._speech_paused.is_set()
    assert socket._is_disconnected is False


@pytest.mark.parametrize("kind", list(EventKind))
@pytest.mark.parametrize("is_traced", [False, True])
def test_the_delivery_of_a_traced_final_is_a_span_until_it_has_been_sent(kind: EventKind, is_traced: bool) -> None:
    trace = Mock() if is_traced else None
    delivered(Stream(([kind], None), ([], True)), trace=trace)
    expected = [(("deliver", 9, 9.5), {"utterance": "1"})] if kind is EventKind.FINAL else []
    if trace:
        assert [(call.args, call.kwargs) for call in trace.add_span.call_args_list] == expected


@pytest.mark.parametrize("session_outlives_socket", [False, True])
def test_the_position_of_a_delivered_final_is_kept_for_a_caller_who_can_return(session_outlives_socket: bool) -> None:
    stream = Stream(([EventKind.PARTIAL, EventKind.FINAL], None), ([], True))
    socket = delivered(stream, session_outlives_socket=session_outlives_socket)
    assert [(position.utterance, round(at_s, 2)) for position, at_s in socket._sent] == (
        [(2, 10.0)] if session_outlives_socket else []
    )


@pytest.mark.parametrize("error", [WebSocketDisconnect(1006), RuntimeError("closed")])
def test_a_client_that_disconnects_while_it_is_sent_to_is_noticed(error: Exception) -> None:
    async def run() -> Any:
        socket = socket_with(
            _outbox=asyncio.Queue(),
            _is_disconnected=False,
            _websocket=SimpleNamespace(send_text=AsyncMock(side_effect=error)),
        )
        socket._outbox.put_nowait({})
        sending = asyncio.create_task(socket._send_queued_messages())
        await socket._outbox.join()
        sending.cancel()
        return socket

    assert run_quickly(run())._is_disconnected is True


# --- Opening --------------------------------------------------------------------------------------------


async def reserved(gateway: Any, session: Any, *, session_outlives_socket: bool) -> SocketArguments:
    with contextlib.ExitStack() as resources:
        return await ClientSocket._reserve_resources(
            gateway, session, resources, session_outlives_socket=session_outlives_socket
        )


def gateway_with_slots() -> MagicMock:
    gateway = MagicMock(sessions=AsyncMock())
    gateway.settings.reconnect_grace_s = 20
    return gateway


@pytest.mark.parametrize(("frames_before", "start_ms"), [(None, 0), (0, 0), (1, 20), (50, 1000)])
async def test_a_socket_begins_at_the_time_since_the_first_frame_of_its_session(
    monkeypatch: pytest.MonkeyPatch, frames_before: int | None, start_ms: int
) -> None:
    monkeypatch.setattr(client_socket, "admit_socket", AsyncMock(return_value=("lease", "10.0.0.1")))
    monkeypatch.setattr(client_socket, "calculate_first_frame_number", lambda: 1000)
    begins_at = None if frames_before is None else 320 * (1000 - frames_before)
    gateway, session = gateway_with_slots(), SimpleNamespace(begins_at=begins_at)
    arguments = await reserved(gateway, session, session_outlives_socket=True)
    assert (arguments.start_ms, arguments.frame_number, arguments.session_outlives_socket) == (start_ms, 1000, True)
    gateway.sessions.set_gateway.assert_awaited_once_with(session, "10.0.0.1", 320_000)


@pytest.mark.parametrize("session_outlives_socket", [False, True])
async def test_a_refused_socket_closes_only_the_session_that_was_opened_for_it(
    monkeypatch: pytest.MonkeyPatch, session_outlives_socket: bool
) -> None:
    monkeypatch.setattr(client_socket, "admit_socket", AsyncMock(side_effect=build_no_capacity_refusal("full")))
    gateway, session = gateway_with_slots(), SimpleNamespace()
    with pytest.raises(Refusal, match="full"):
        await reserved(gateway, session, session_outlives_socket=session_outlives_socket)
    opened_for_it = int(not session_outlives_socket)
    assert gateway.sessions.close.await_count == opened_for_it
    assert gateway.sessions.start_grace_period.await_args_list == [call(session, 20)] * opened_for_it


@pytest.mark.parametrize("store_error", [None, RedisError()])
async def test_an_accepted_socket_resumes_its_sessions_unless_the_store_is_unavailable(
    store_error: RedisError | None,
) -> None:
    gateway, websocket = gateway_with_slots(), MagicMock(accept=AsyncMock(), scope={}, headers={})
    gateway.settings.authorizer = "none"
    gateway.sessions.resume.side_effect = store_error
    sessions: list[Any] = [SimpleNamespace(caller="shop"), SimpleNamespace(caller="shop")]
    openings = [SocketArguments(each, Mock(), 1, session_outlives_socket=False, start_ms=0) for each in sessions]
    await ClientSocket._accept(gateway, websocket, sessions[0], openings)
    websocket.accept.assert_awaited_once_with(None, headers=[])
    assert gateway.sessions.resume.await_args_list == [call(each) for each in sessions[: 1 if store_error else 2]]
