"""Delivery of the last messages of a socket, and messages that its session's next socket does not repeat."""

import asyncio
from collections import deque
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest
from redis.exceptions import RedisError
from starlette.types import Message

from images.conftest import BUSY_TIMEOUT_S
from voice_gateway import client_socket
from voice_gateway.audio_socket import NORMAL_END, AudioSocket, CloseReason
from voice_gateway.client_socket import ClientSocket
from voice_runtime.transcripts import EventId

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
