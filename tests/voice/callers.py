"""Simulated callers: each speaks a few sentences with pauses, and reads the transcripts."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal, Self
from urllib.parse import urlsplit

import httpx2
import numpy as np

from voice_ops.call.recording import SAMPLE_RATE_HZ, SAMPLES_PER_FRAME, read_samples
from voice_ops.call.senders import Samples, Sender, SrtpSender, WebSocketSender
from voice_ops.call.session import CallError, Session, TranscriptEvent
from voice_ops.demo.command import SAMPLE_FILE, calculate_word_error_rate

SENTENCE_STARTS_S = {
    "The whole system is running on one machine.": (2.1, 4.96),
    "We can see the answer on the screen while you are still talking.": (7.3, 11.24),
    "The silence between two sentences is never sent.": (13.6, 17.06),
    "Please call me back tomorrow afternoon.": (19.44, 22.3),
}
"""Start and end of the sentences in the sample, with parts of the surrounding pauses."""

SENTENCES = tuple(SENTENCE_STARTS_S)
MAX_ERROR_RATE = 0.25
"""Maximum word error rate of a caller, since tiny.en makes some mistakes."""

Transport = Literal["websocket", "srtp"]


@lru_cache
def speech(sentences: tuple[str, ...], pause_s: float) -> Samples:
    """Return sentences of the sample with a pause after each, in whole frames."""
    sample = read_samples(SAMPLE_FILE)
    pause = np.zeros(round(pause_s * SAMPLE_RATE_HZ), np.int16)
    parts = [
        sample[round(begin * SAMPLE_RATE_HZ) : round(end * SAMPLE_RATE_HZ)]
        for begin, end in map(SENTENCE_STARTS_S.__getitem__, sentences)
    ]
    said = np.concatenate([piece for part in parts for piece in (part, pause)])
    return said[: said.size // SAMPLES_PER_FRAME * SAMPLES_PER_FRAME]


@dataclass
class Caller:
    """One call.

    Attributes:
        finals: Received finals in order.
        is_speaking: Whether its audio is being sent.
    """

    sentences: tuple[str, ...]
    pause_s: float
    session: Session
    finals: list[TranscriptEvent] = field(default_factory=list)
    is_speaking: bool = False

    @classmethod
    async def open(
        cls,
        client: httpx2.AsyncClient,
        server: str,
        number: int,
        *,
        sentences: int = 2,
        pause_s: float = 3.0,
        transport: Transport = "websocket",
    ) -> Self:
        """Open a session for this many sentences, which differ from those of neighbouring callers."""
        said = tuple(SENTENCES[(number + each) % len(SENTENCES)] for each in range(sentences))
        return cls(said, pause_s, await Session.open(client, server, transport))

    async def call(self, after_s: float = 0.0) -> None:
        """Speak, and listen until everything is transcribed.

        Raises:
            CallError: The call was interrupted.
        """
        async with asyncio.TaskGroup() as group:
            group.create_task(self._listen())
            await asyncio.sleep(after_s)
            self.is_speaking = True
            await self._sender().send(speech(self.sentences, self.pause_s))
            self.is_speaking = False
            if self.session.media.srtp:  # closing the socket closes its session
                await self.session.close()

    async def _listen(self) -> None:
        """Read all events; on a busy machine finals may arrive after a timeout, so the stream is resumed."""
        while True:
            try:
                async for event in self.session.stream_events():
                    if event.kind == "final" and event.text:
                        self.finals.append(event)
            except CallError as error:
                if "before all was transcribed" not in str(error):
                    raise
            else:
                return

    def _sender(self) -> Sender:
        media = self.session.media
        if media.srtp:
            return SrtpSender(media.srtp)
        return WebSocketSender(self.session)

    def send_through(self, port: int) -> None:
        """Send audio to another port than the gateway's."""
        place = urlsplit(self.session.media.websocket or "")
        self.session.media.websocket = place._replace(netloc=f"{place.hostname}:{port}").geturl()

    def check(self) -> None:
        """Assert that every sentence was transcribed once and in order."""
        check_together([self], MAX_ERROR_RATE)


def check_together(callers: Sequence[Caller], worst_error_rate: float) -> None:
    """Assert that each caller's sentences were transcribed once, in order, and well on average.

    The effect of a loss on a single sentence is random, so only the mean is compared.
    """
    said, all_heard = "", ""
    for caller in callers:
        heard = [final.text for final in caller.finals]
        places = [final.start_ms for final in caller.finals]
        assert places == sorted(set(places)), f"finals twice or out of order: {list(zip(places, heard, strict=True))}"
        assert len(heard) >= len(caller.sentences), f"said {caller.sentences}, heard {heard}"
        said += " ".join(("", *caller.sentences))
        all_heard += " ".join(("", *heard))
    wrong = calculate_word_error_rate(said, all_heard)
    assert wrong <= worst_error_rate, f"{wrong:.0%} wrong: said {said}, heard {all_heard}"
