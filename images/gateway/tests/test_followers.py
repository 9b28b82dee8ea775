"""Readers of transcripts that share one request to the store, with fixed answers and times."""

import asyncio
from collections.abc import AsyncIterator
from unittest.mock import AsyncMock

import pytest
from redis.exceptions import ConnectionError as StoreConnectionError

from images.conftest import BUSY_TIMEOUT_S
from images.gateway.tests.clocks import VirtualTime
from voice_gateway.followers import EventPoller
from voice_runtime.transcripts import EventId, EventKind, Transcript

SSRC = 7


def said(utterance: int) -> Transcript:
    return Transcript(kind=EventKind.FINAL, utterance=utterance, text="yes", start_ms=0, end_ms=20)


class Polled:
    """A poller whose store gives the test's answers, and afterwards nothing."""

    def __init__(self, clock: VirtualTime) -> None:
        self.clock = clock
        self.answers: list[object] = []
        self.asked_at: list[float] = []
        self.transcripts = AsyncMock()
        self.transcripts.read_many.side_effect = self._answer
        self.poller = EventPoller(self.transcripts)
        self._running = asyncio.create_task(self.poller.run())

    def _answer(self, *_: object, **__: object) -> object:
        self.asked_at.append(self.clock.now)
        answer = self.answers.pop(0) if self.answers else {}
        if isinstance(answer, Exception):
            raise answer
        return answer

    def wait(self, after: EventId, timeout_s: float = BUSY_TIMEOUT_S) -> asyncio.Task[list[tuple[EventId, Transcript]]]:
        return asyncio.create_task(self.poller.wait_for_next_events(SSRC, after, timeout_s))

    def stop(self) -> None:
        self._running.cancel()


@pytest.fixture
async def polled(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Polled]:
    found = Polled(VirtualTime(monkeypatch, "voice_gateway.followers"))
    yield found
    found.stop()


async def test_events_are_requested_every_25_ms_while_there_are_readers(polled: Polled) -> None:
    await polled.clock.run_for(1)
    assert polled.asked_at == []
    polled.answers = [{}, {}, {SSRC: [(EventId(1, 1), said(1))]}]
    reading = polled.wait(EventId(0, 0))
    await polled.clock.run_for(1)
    assert [event.utterance for _, event in await reading] == [1]
    assert polled.asked_at == pytest.approx([1.0, 1.025, 1.05])
    polled.transcripts.read_many.assert_awaited_with({SSRC: EventId(0, 0)}, count=32)


@pytest.mark.parametrize("error", [StoreConnectionError(), OSError(), KeyError("unexpected")])
async def test_after_an_error_events_are_requested_half_a_second_later(polled: Polled, error: Exception) -> None:
    polled.answers = [error]
    reading = polled.wait(EventId(0, 0))
    await polled.clock.run_for(0.54)
    reading.cancel()
    assert polled.asked_at == pytest.approx([0, 0.525])


async def test_a_reader_gets_only_events_after_its_position(polled: Polled) -> None:
    events = [(EventId(1, number), said(number)) for number in (1, 2, 3)]
    polled.answers = [{SSRC: events}, {SSRC: events}]
    behind, ahead, last = polled.wait(EventId(0, 9)), polled.wait(EventId(1, 2)), polled.wait(EventId(1, 3))
    await polled.clock.run_for(0.02)
    assert await behind == events
    assert await ahead == events[2:]
    assert not last.done()
    assert polled.transcripts.read_many.await_args.args == ({SSRC: EventId(0, 9)},), "the position of the last one"
    last.cancel()


async def test_invalid_entries_are_not_requested_again(polled: Polled) -> None:
    polled.answers = [{SSRC: [(EventId(1, 1), None), (EventId(1, 2), None)]}]
    reading = polled.wait(EventId(0, 0))
    await polled.clock.run_for(0.03)
    reading.cancel()
    asked = [call.args[0] for call in polled.transcripts.read_many.await_args_list]
    assert asked == [{SSRC: EventId(0, 0)}, {SSRC: EventId(1, 2)}]


async def test_a_reader_without_events_gets_none_after_its_timeout(polled: Polled) -> None:
    reading = polled.wait(EventId(0, 0), 0.05)
    assert await reading == []
    await polled.clock.run_for(0.03)
    before = len(polled.asked_at)
    await polled.clock.run_for(1)
    assert len(polled.asked_at) == before, "and nothing is requested for it"
