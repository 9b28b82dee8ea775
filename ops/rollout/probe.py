"""A call whose words are known: how many are wrong, and how long the last ones take."""

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path

import httpx2

from ops.call.access import Access, ClientAuth
from ops.call.recording import read
from ops.call.senders import sender_of
from ops.call.session import TIMEOUT_S, CallError, Heard, Session

LAST_WORDS_S = 120
"""Longest from the end of the audio to the end of the session's events."""
MORE_WORDS_WRONG = 0.05
"""Share of the words that may be wrong beyond those of the release before: one in twenty."""
SLOWER = 1.5
"""Factor by which a final may come later, and 500 ms that nobody notices."""
UNNOTICED_S = 0.5


@dataclass(frozen=True)
class Measured:
    """What one call heard.

    Attributes:
        words_wrong: Share of words that are wrong, missing or too many.
        final_s: The longest from the end of an utterance to its final.
    """

    words_wrong: float
    final_s: float

    def is_worse_than(self, before: "Measured") -> str:
        """Return why, or nothing."""
        if self.words_wrong > before.words_wrong + MORE_WORDS_WRONG:
            return f"{self.words_wrong:.0%} of the words are wrong, {before.words_wrong:.0%} before the rollout"
        if self.final_s > before.final_s * SLOWER + UNNOTICED_S:
            return f"a final comes after {self.final_s:.2f} s, after {before.final_s:.2f} s before the rollout"
        return ""


def measure(server: str, headers_of: Access, recording: Path, said: str) -> Measured:
    """Speak a recording by WebSocket, as browsers do, and hear it out.

    Raises:
        CallError: The session is refused, breaks off, or does not end.
    """
    return asyncio.run(_measure(server, headers_of, recording, said))


async def _measure(server: str, headers_of: Access, recording: Path, said: str) -> Measured:
    finals: list[tuple[float, Heard]] = []
    async with httpx2.AsyncClient(auth=ClientAuth(headers_of), timeout=TIMEOUT_S) as client:
        session = await Session.open(client, server, "websocket")
        begin = time.monotonic()

        async def listen() -> None:
            finals.extend(
                [
                    (time.monotonic() - begin - event.end_ms / 1000, event)
                    async for event in session.follow()
                    if event.kind == "final" and event.text
                ]
            )

        listening = asyncio.create_task(listen())
        try:
            await sender_of(session).send(read(recording))
            await session.close()
            await asyncio.wait_for(listening, LAST_WORDS_S)
        except TimeoutError:
            raise CallError(f"the last words did not come within {LAST_WORDS_S} s") from None
        finally:
            listening.cancel()
    if not finals:
        return Measured(1.0, 0.0)
    return Measured(words_wrong(said, " ".join(final.text for _, final in finals)), max(late for late, _ in finals))


def words_wrong(said: str, heard: str) -> float:
    """Return the word error rate, whatever the words' case and punctuation."""
    wanted, found = (
        "".join(each if each.isalnum() or each.isspace() else " " for each in text.lower()).split()
        for text in (said, heard)
    )
    distances = list(range(len(found) + 1))
    for number, word in enumerate(wanted, start=1):
        diagonal, distances[0] = distances[0], number
        for place, other in enumerate(found, start=1):
            cheapest = min(distances[place] + 1, distances[place - 1] + 1, diagonal + (word != other))
            diagonal, distances[place] = distances[place], cheapest
    return distances[-1] / max(1, len(wanted))
