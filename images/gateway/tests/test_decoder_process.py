"""The gateway's side of a decoder process: its output, its end, and containers that arrive in pieces."""

import asyncio
import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, Mock

import numpy as np
import pytest

from images.conftest import BUSY_TIMEOUT_S
from images.gateway.tests.test_transcriptions import wav
from voice_gateway import decoder_process
from voice_gateway.audio import InvalidAudioError
from voice_gateway.decoder_process import (
    ChannelNotFoundError,
    IncrementalDecoder,
    read_samples,
    start_decoder,
    stop_decoder,
)


class Decoder:
    """A decoder process whose output and end are the test's."""

    def __init__(self) -> None:
        self.stdout, self.stderr = asyncio.StreamReader(), asyncio.StreamReader()
        self.stdin = Mock(drain=AsyncMock())
        self.returncode: int | None = None
        self.kill = Mock(side_effect=lambda: self.end(-9))
        self._ended = asyncio.Event()

    def end(self, code: int, message: bytes = b"") -> None:
        self.returncode = code
        self._ended.set()
        self.stderr.feed_data(message)
        for stream in (self.stdout, self.stderr):
            stream.feed_eof()

    async def wait(self) -> int | None:
        await self._ended.wait()
        return self.returncode

    @property
    def pieces(self) -> list[bytes]:
        return [call.args[0] for call in self.stdin.write.call_args_list]


@pytest.fixture
async def process(monkeypatch: pytest.MonkeyPatch) -> Decoder:
    found = Decoder()
    monkeypatch.setattr(decoder_process, "start_decoder", AsyncMock(return_value=found))
    return found


async def test_samples_are_whole(process: Any) -> None:
    chunks = [b"a", b"bcd", b"efghi", b"j", b"k"]
    found: list[bytes] = []

    async def read() -> None:
        found.extend([samples async for samples in read_samples(process)])

    reading = asyncio.create_task(read())
    for chunk in chunks:
        process.stdout.feed_data(chunk)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    process.end(0)
    await reading
    assert b"".join(found) == b"abcdefghij", "without the incomplete last one"
    assert {len(samples) % 2 for samples in found} == {0}


@pytest.mark.parametrize(
    ("code", "error", "message"),
    [
        (1, InvalidAudioError, "it is no \\S* audio"),
        (2, ChannelNotFoundError, "it is no"),
        (3, InvalidAudioError, "its decoder gave up on it"),
        (-9, InvalidAudioError, "its decoder gave up on it"),
    ],
)
async def test_a_failed_decoder_s_exit_code_selects_the_error(
    process: Any, code: int, error: type[Exception], message: str
) -> None:
    process.end(code, b"it is no \xff audio")
    with pytest.raises(error, match=message):
        await anext(read_samples(process))


async def test_a_decoder_gets_its_limit_and_only_a_requested_channel(monkeypatch: pytest.MonkeyPatch) -> None:
    started = AsyncMock()
    monkeypatch.setattr("voice_gateway.decoder_process.asyncio.create_subprocess_exec", started)
    for channel in (None, 0, 1):
        await start_decoder(60, 5, channel)
    command = (sys.executable, "-m", "voice_gateway.decode", "60")
    assert [call.args for call in started.call_args_list] == [command, (*command, "0"), (*command, "1")]
    assert {call.kwargs["stdin"] for call in started.call_args_list} == {5}
    assert set(started.call_args.kwargs["env"]) == {"PYTHONPATH", "PYTHONDONTWRITEBYTECODE"}, "no secret"


async def test_a_decoder_reports_a_missing_channel(tmp_path: Path) -> None:
    (tmp_path / "mono.wav").write_bytes(wav(np.zeros(1600, np.int16))[1])
    with (tmp_path / "mono.wav").open("rb") as file:
        process = await start_decoder(60, file, 1)
        async with asyncio.timeout(BUSY_TIMEOUT_S):
            with pytest.raises(ChannelNotFoundError):
                await anext(read_samples(process))


async def test_only_a_running_decoder_is_killed(process: Any) -> None:
    await stop_decoder(process)
    process.kill.assert_called_once()
    await stop_decoder(process)
    process.kill.assert_called_once()


async def nothing(_: bytes) -> None: ...


async def test_the_pieces_of_a_container_go_to_one_decoder(process: Any) -> None:
    found: list[bytes] = []

    async def take(samples: bytes) -> None:
        found.append(samples)

    decoder = IncrementalDecoder(60, take)
    for piece in (b"one", b"two"):
        await decoder.add(piece)
    assert process.pieces == [b"one", b"two"]
    assert decoder_process.start_decoder.call_args_list == [((60, asyncio.subprocess.PIPE),)]  # type: ignore[attr-defined]
    process.stdout.feed_data(b"abcd")
    process.stdin.close.side_effect = lambda: process.end(0)
    async with asyncio.timeout(BUSY_TIMEOUT_S):
        await decoder.finish()
    assert found == [b"abcd"]
    with pytest.raises(InvalidAudioError, match="the container has ended"):
        await decoder.add(b"three")
    await decoder.stop()


async def test_an_invalid_container_is_reported_with_its_next_piece(process: Any) -> None:
    decoder = IncrementalDecoder(60, nothing)
    await decoder.add(b"one")
    process.stdin.drain.side_effect = BrokenPipeError
    await decoder.add(b"two")
    process.end(1, b"it is no audio file")
    await asyncio.sleep(0.01)
    with pytest.raises(InvalidAudioError, match="it is no audio file"):
        await decoder.add(b"three")


async def test_a_decoder_without_a_container_ends_at_once() -> None:
    decoder = IncrementalDecoder(60, nothing)
    async with asyncio.timeout(BUSY_TIMEOUT_S):
        await decoder.wait_until_read()
        await decoder.finish()
        await decoder.stop()


async def test_a_stopped_decoder_is_killed(process: Any) -> None:
    decoder = IncrementalDecoder(60, nothing)
    await decoder.add(b"one")
    await decoder.stop()
    process.kill.assert_called_once()


class Loop:
    """The time of a loop, which only advances with the pauses between two questions."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, on_pause: Callable[[], object]) -> None:
        self.now = 1000.0
        self._on_pause = on_pause
        self._sleep = asyncio.sleep
        loop = SimpleNamespace(time=lambda: self.now)
        names = {"create_task": asyncio.create_task, "get_running_loop": lambda: loop, "sleep": self.sleep}
        monkeypatch.setattr(decoder_process, "asyncio", SimpleNamespace(**names))

    async def sleep(self, duration_s: float) -> None:
        assert 0.01 <= duration_s <= 0.05, "several times within the quiet period"
        self.now += duration_s
        self._on_pause()
        for _ in range(5):
            await self._sleep(0)

    @property
    def passed_s(self) -> float:
        return self.now - 1000


async def test_a_decoder_that_is_quiet_for_a_tenth_of_a_second_has_read_all(
    process: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    outputs = itertools.chain([b"ab"] * 3, itertools.repeat(b""))
    loop = Loop(monkeypatch, lambda: process.stdout.feed_data(next(outputs)))
    decoder = IncrementalDecoder(60, nothing)
    await decoder.add(b"one")
    await decoder.wait_until_read()
    assert loop.passed_s == pytest.approx(0.175, abs=0.03), "0.1 s after the third output"
    begin = loop.now
    await decoder.wait_until_read()
    assert loop.now - begin == pytest.approx(0.1, abs=0.03), "output before the question does not count"
    await decoder.stop()


async def test_a_decoder_that_always_writes_is_not_waited_for_longer_than_a_second(
    process: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = Loop(monkeypatch, lambda: process.stdout.feed_data(b"ab"))
    decoder = IncrementalDecoder(60, nothing)
    await decoder.add(b"one")
    await decoder.wait_until_read()
    assert loop.passed_s == pytest.approx(1.0, abs=0.05)
    await decoder.stop()


async def test_a_decoder_that_has_ended_is_not_waited_for(process: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Loop(monkeypatch, lambda: process.end(0) if process.returncode is None else None)
    decoder = IncrementalDecoder(60, nothing)
    await decoder.add(b"one")
    await decoder.wait_until_read()
    assert loop.passed_s < 0.1
    await decoder.stop()
