"""Makes a test call with a known transcript, and measures its word error rate and latency."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import httpx2

from voice_ops.call.access import ClientAuth, HeaderProvider
from voice_ops.call.recording import read_samples
from voice_ops.call.senders import create_sender
from voice_ops.call.session import REQUEST_TIMEOUT_S, AccessRejectedError, CallError, Session, TranscriptEvent

LAST_FINAL_TIMEOUT_S = 120
"""Maximum time from the end of the audio to the end of the session events."""
MAX_PROBE_ATTEMPTS = 3
"""Number of calls that must fail one after another, since a single request may be throttled or interrupted."""
PROBE_RETRY_DELAY_S = 20.0
"""Pause between these calls."""
MAX_ERROR_RATE_INCREASE = 0.05
"""Maximum increase of the word error rate over the previous release."""
MAX_LATENCY_FACTOR = 1.5
"""Maximum ratio of final transcript latency to that in the previous release. ``LATENCY_TOLERANCE_S`` is
added."""
LATENCY_TOLERANCE_S = 0.5


@dataclass(frozen=True)
class CallMeasurement:
    """Measured quality of one call.

    Attributes:
        word_error_rate: Share of words that are wrong, missing or additional.
        max_final_latency_s: Maximum time from the end of an utterance to its final transcript.
    """

    word_error_rate: float
    max_final_latency_s: float

    def describe_regression(self, before: "CallMeasurement") -> str:
        """Return a reason if this call is worse than an earlier one, and otherwise an empty string."""
        if self.word_error_rate > before.word_error_rate + MAX_ERROR_RATE_INCREASE:
            return f"{self.word_error_rate:.0%} of the words are wrong, {before.word_error_rate:.0%} before the rollout"
        if self.max_final_latency_s > before.max_final_latency_s * MAX_LATENCY_FACTOR + LATENCY_TOLERANCE_S:
            latency_s, earlier_s = self.max_final_latency_s, before.max_final_latency_s
            return f"a final takes {latency_s:.2f} s, compared with {earlier_s:.2f} s before the rollout"
        return ""


class RolloutProbe:
    """Compares test calls during a rollout with a call before it.

    Args:
        measure: Function that makes a call. Raises ``CallError`` if the call fails.
        before: The call before the rollout.
    """

    def __init__(
        self, measure: Callable[[], CallMeasurement], before: CallMeasurement, report: Callable[[str], None]
    ) -> None:
        self._measure, self._before, self._report = measure, before, report
        self._is_accepted = True

    def find_regression(self) -> str:
        """Return a reason if calls fail or are worse than before, and otherwise an empty string.

        Rejected credentials do not indicate a defect of the release, so no further calls are made after a rejection.
        """
        problem = ""
        for attempt in range(MAX_PROBE_ATTEMPTS if self._is_accepted else 0):
            if attempt:
                time.sleep(PROBE_RETRY_DELAY_S)
            try:
                return self._measure().describe_regression(self._before)
            except AccessRejectedError as error:
                self._is_accepted = False
                self._report(
                    f"the credentials of the probe are not accepted: {error}; no more test calls are made, and only "
                    "alarms roll the rollout back. Check the new release with `voice call` and new credentials"
                )
                return ""
            except CallError as error:
                problem = f"{MAX_PROBE_ATTEMPTS} calls failed one after another, the last with: {error}"
                self._report(f"test call {attempt + 1} of at most {MAX_PROBE_ATTEMPTS} failed: {error}")
        return problem


def measure_call(server: str, headers_for: HeaderProvider, recording: Path, transcript: str) -> CallMeasurement:
    """Stream a recording over a WebSocket, wait for all transcripts, and return the measured quality.

    Raises:
        CallError: The session is rejected, interrupted, or does not end.
    """
    return asyncio.run(_measure_call_async(server, headers_for, recording, transcript))


async def _measure_call_async(
    server: str, headers_for: HeaderProvider, recording: Path, transcript: str
) -> CallMeasurement:
    finals: list[tuple[float, TranscriptEvent]] = []
    async with httpx2.AsyncClient(auth=ClientAuth(headers_for), timeout=REQUEST_TIMEOUT_S) as client:
        session = await Session.open(client, server, "websocket")
        begin = time.monotonic()

        async def listen() -> None:
            finals.extend(
                [
                    (time.monotonic() - begin - event.end_ms / 1000, event)
                    async for event in session.stream_events()
                    if event.kind == "final" and event.text
                ]
            )

        listening = asyncio.create_task(listen())
        try:
            await create_sender(session).send(read_samples(recording))
            await session.close()
            await asyncio.wait_for(listening, LAST_FINAL_TIMEOUT_S)
        except TimeoutError:
            raise CallError(f"the last transcript did not arrive within {LAST_FINAL_TIMEOUT_S} s") from None
        finally:
            listening.cancel()
    if not finals:
        return CallMeasurement(1.0, 0.0)
    return CallMeasurement(
        calculate_word_error_rate(transcript, " ".join(final.text for _, final in finals)),
        max(late for late, _ in finals),
    )


def calculate_word_error_rate(expected: str, transcript: str) -> float:
    """Return the word error rate of a transcript. Case and punctuation are ignored."""
    desired, result = (
        "".join(each if each.isalnum() or each.isspace() else " " for each in text.lower()).split()
        for text in (expected, transcript)
    )
    distances = list(range(len(result) + 1))
    for number, word in enumerate(desired, start=1):
        diagonal, distances[0] = distances[0], number
        for position, other in enumerate(result, start=1):
            cheapest = min(distances[position] + 1, distances[position - 1] + 1, diagonal + (word != other))
            diagonal, distances[position] = distances[position], cheapest
    return distances[-1] / max(1, len(desired))
