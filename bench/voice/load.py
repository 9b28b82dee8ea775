"""Runs concurrent calls in real time and measures what callers experience."""

import asyncio
import time
from dataclasses import dataclass, field
from functools import partial

import httpx2

from bench.voice.call import SENTENCE_COUNT, Call, create_call
from bench.voice.shown import DisplayMetrics, measure_display
from voice_ops.call.senders import create_sender
from voice_ops.call.session import REQUEST_TIMEOUT_S, CallError, Session, TranscriptEvent
from voice_ops.demo.command import calculate_word_error_rate
from voice_ops.demo.services import Gateway

START_SPREAD_FRACTION = 1 / SENTENCE_COUNT
"""Period over which the starts of calls are distributed, as a share of a call's length."""
MIN_OVERLAP_S = 0.5
"""Minimum part of a sentence, in seconds, that a transcript must cover to count as the sentence's text."""


@dataclass
class CallResult:
    """Results of one call.

    Attributes:
        events: Transcripts with their arrival times, in seconds since the start of the call.
        error: Reason why the call failed.
    """

    call: Call
    events: list[tuple[float, TranscriptEvent]] = field(default_factory=list)
    error: str = ""

    @property
    def finals(self) -> list[tuple[float, TranscriptEvent]]:
        return [(at, event) for at, event in self.events if event.kind == "final"]

    @property
    def first_text_delays_s(self) -> list[float]:
        """Time from the start of each sentence to its first partial or final transcript, in seconds."""
        first_delays = []
        for begin, end in self.call.utterance_times:
            times = (at for at, event in self.events if event.text and _overlaps(event, begin, end))
            first = next(times, None)
            first_delays += [] if first is None else [first - begin]
        return first_delays

    @property
    def final_delays_s(self) -> list[float]:
        """Time from the end of each sentence to its final transcript, in seconds."""
        first_delays = []
        for _, end in self.call.utterance_times:
            before = [at for at, event in self.finals if event.start_ms < 1000 * end]
            first_delays += [before[-1] - end] if before else []
        return first_delays

    @property
    def display_metrics(self) -> DisplayMetrics:
        """Changes to the displayed text over time."""
        return measure_display(self.events)

    @property
    def real_time_factor(self) -> float:
        """Waiting time for final transcripts after the end of their audio, divided by the duration of speech."""
        total_delay_s = sum(at - event.end_ms / 1000 for at, event in self.finals if event.text)
        return total_delay_s / sum(end - begin for begin, end in self.call.utterance_times)

    @property
    def word_error_rate(self) -> float:
        return calculate_word_error_rate(self.call.text, " ".join(event.text for _, event in self.finals))


def _overlaps(event: TranscriptEvent, begin: float, end: float) -> bool:
    return event.start_ms < 1000 * end and event.end_ms >= 1000 * (begin + MIN_OVERLAP_S)


async def run_load(gateway: Gateway, streams: int, *, pauses: bool = True) -> list[CallResult]:
    """Run a number of concurrent calls, and return the results of each."""
    limits = httpx2.Limits(max_connections=None)
    async with httpx2.AsyncClient(timeout=REQUEST_TIMEOUT_S, limits=limits) as client:
        calls = [create_call(number, pauses=pauses) for number in range(streams)]
        delays = [number / streams * START_SPREAD_FRACTION * one.duration_s for number, one in enumerate(calls)]
        return await asyncio.gather(*map(partial(_run_call, client, gateway), calls, delays))


async def _run_call(client: httpx2.AsyncClient, gateway: Gateway, one: Call, delay_s: float) -> CallResult:
    outcome = CallResult(one)
    await asyncio.sleep(delay_s)
    try:
        # A longer wait than the whole call means a real-time factor above 1.
        async with asyncio.timeout(2 * one.duration_s):
            session = await Session.open(client, gateway.url, "websocket")
            speaking = asyncio.ensure_future(create_sender(session).send(one.samples))
            try:
                await _record_events(session, outcome)
                await speaking
            finally:
                speaking.cancel()
    except TimeoutError:
        outcome.error = f"no complete transcript {one.duration_s:.0f} s after the call"
    except CallError as error:
        outcome.error = str(error)
    return outcome


async def _record_events(session: Session, outcome: CallResult) -> None:
    begin = time.monotonic()
    async for event in session.stream_events():
        outcome.events.append((time.monotonic() - begin, event))
