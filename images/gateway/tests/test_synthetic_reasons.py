"""The reason of a failed synthetic call in the log, and its metric."""

import logging
from unittest.mock import AsyncMock, Mock

import pytest
from redis.exceptions import RedisError

from voice_gateway.refusals import Refusal
from voice_gateway.synthetic_call import SyntheticCaller


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        (Refusal(503, "no capacity", "no ASR host has a free slot"), "no ASR host has a free slot"),
        (ConnectionRefusedError("port 443"), "port 443"),
        (TimeoutError(), "TimeoutError"),
        (RedisError("away"), "away"),
        (("",), "its transcript is empty"),
        (("please hold",), None),
    ],
)
async def test_a_failed_call_is_logged_with_its_reason(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    outcome: Exception | tuple[str],
    reason: str | None,
) -> None:
    gateway = Mock()
    caller = SyntheticCaller(gateway, "wss://media.voice.test")
    monkeypatch.setattr(caller, "_transcribe_speech", AsyncMock(side_effect=outcome))
    with caplog.at_level(logging.WARNING, "voice_gateway.synthetic_call"):
        assert await caller.make_call() is (reason is None)
    assert [record.__dict__["fields"] for record in caplog.records] == ([{"reason": reason}] if reason else [])
    gateway.metrics.observe.assert_called_once_with("SyntheticCallSucceeds", int(reason is None))
