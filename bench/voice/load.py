"""So many calls at a time, in real time, and what their callers see."""

import asyncio
import time
from dataclasses import dataclass, field
from functools import partial

import httpx2

from bench.voice.call import SENTENCES, Call, call
from bench.voice.shown import Shown, shown
from ops.call.senders import sender_of
from ops.call.session import TIMEOUT_S, CallError, Heard, Session
from ops.demo.command import word_error_rate
from ops.demo.services import Gateway

SPREAD = 1 / SENTENCES
"""Of a call's length: over that time calls begin."""
ENOUGH_S = 0.5
"""Of a sentence: text of less of it tells nothing."""


@dataclass
class Outcome:
    """What one caller saw.

    Attributes:
        events: Transcripts, with the time when they came, seconds from the call's begin.
        error: Why the call failed.
    """

    call: Call
    events: list[tuple[float, Heard]] = field(default_factory=list)
    error: str = ""

    @property
    def finals(self) -> list[tuple[float, Heard]]:
        return [(at, event) for at, event in self.events if event.kind == "final"]

    @property
    def first_texts_s(self) -> list[float]:
        """Time from each sentence's begin to its first text, a partial or where none came the final; seconds."""
        found = []
        for begin, end in self.call.places:
            heard = (at for at, event in self.events if event.text and _is_of(event, begin, end))
            first = next(heard, None)
            found += [] if first is None else [first - begin]
        return found

    @property
    def finals_s(self) -> list[float]:
        """Time from each sentence's end to the final that holds it, seconds."""
        found = []
        for _, end in self.call.places:
            before = [at for at, event in self.finals if event.start_ms < 1000 * end]
            found += [before[-1] - end] if before else []
        return found

    @property
    def shown(self) -> Shown:
        """What was on its screen."""
        return shown(self.events)

    @property
    def real_time_factor(self) -> float:
        """Time that finals took from the end of their audio, over the length of what is said: silence is no work."""
        late_s = sum(at - event.end_ms / 1000 for at, event in self.finals if event.text)
        return late_s / sum(end - begin for begin, end in self.call.places)

    @property
    def word_error_rate(self) -> float:
        """Share of the words that are wrong."""
        return word_error_rate(self.call.text, " ".join(event.text for _, event in self.finals))


def _is_of(event: Heard, begin: float, end: float) -> bool:
    return event.start_ms < 1000 * end and event.end_ms >= 1000 * (begin + ENOUGH_S)


async def put_under_load(gateway: Gateway, streams: int, *, pauses: bool = True) -> list[Outcome]:
    """Hold so many calls at a time, and return what their callers saw."""
    limits = httpx2.Limits(max_connections=None)
    async with httpx2.AsyncClient(timeout=TIMEOUT_S, limits=limits) as client:
        calls = [call(number, pauses=pauses) for number in range(streams)]
        delays = [number / streams * SPREAD * one.seconds for number, one in enumerate(calls)]
        return await asyncio.gather(*map(partial(_hold, client, gateway), calls, delays))


async def _hold(client: httpx2.AsyncClient, gateway: Gateway, one: Call, delay_s: float) -> Outcome:
    outcome = Outcome(one)
    await asyncio.sleep(delay_s)
    try:
        # Whoever waits for longer than the whole call took has a real-time factor above 1.
        async with asyncio.timeout(2 * one.seconds):
            session = await Session.open(client, gateway.url, "websocket")
            speaking = asyncio.ensure_future(sender_of(session).send(one.samples))
            try:
                await _listen(session, outcome)
                await speaking
            finally:
                speaking.cancel()
    except TimeoutError:
        outcome.error = f"no complete transcript {one.seconds:.0f} s after the call"
    except CallError as error:
        outcome.error = str(error)
    return outcome


async def _listen(session: Session, outcome: Outcome) -> None:
    begin = time.monotonic()
    async for event in session.follow():
        outcome.events.append((time.monotonic() - begin, event))
