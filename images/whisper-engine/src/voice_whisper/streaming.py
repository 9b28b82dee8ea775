"""Engines that stream by themselves: they hear an utterance once, as it comes, and their text only grows."""

import asyncio
import re
import time
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import Protocol
from weakref import WeakKeyDictionary, finalize

import numpy as np
from numpy.typing import NDArray

from blueprint.contract.chunk import CHUNK_FRAME_SAMPLES, ChunkKind
from voice_runtime.features import SAMPLE_RATE
from voice_whisper.job import GivenUpError, Heard, Wanted
from voice_whisper.utterance import Utterance
from voice_whisper.window import FRAME_MS

LONGEST_FRAMES = 300_000 // FRAME_MS
"""Of an utterance: its audio is kept until its final, for another stream or another host to hear it."""
OVERLAP = 2 * SAMPLE_RATE
"""Samples that the next stream hears again: a word that the turn falls into is whole in one of the two."""
SEAM_WORDS = 16
"""Said in an overlap at most."""
LATE_FRAMES = 200 // FRAME_MS
"""A chunk that is missing for longer is lost; until then a partial stops before it."""
RETRY_PAUSE_S = 1.0
MOST_ATTEMPTS = 60
"""A restart of the engine is waited for; then an utterance is given up."""


class StreamError(Exception):
    """The engine broke a stream off."""


class Stream(Protocol):
    """One stretch of audio.

    Attributes:
        text: What is heard so far; it only grows.
    """

    text: str

    async def send(self, samples: NDArray[np.int16]) -> None:
        """Let it hear more, at 16 kHz.

        Raises:
            StreamError: It is broken off.
        """
        ...

    async def finish(self) -> str:
        """Say that this was all, and return the whole text.

        Raises:
            StreamError: It is broken off.
        """
        ...

    async def close(self) -> None:
        """Let go of it."""
        ...


class StreamingRecognizer(Protocol):
    """An engine that streams by itself."""

    @property
    def longest_s(self) -> float:
        """Audio that its context holds, seconds; known when it is ready."""
        ...

    async def run(self) -> None:
        """Keep it reachable until cancelled."""
        ...

    async def ready(self) -> None:
        """Return when it takes streams."""
        ...

    async def open(self) -> Stream:
        """Begin a stream.

        Raises:
            StreamError: There is none to be had.
        """
        ...


@dataclass(eq=False)
class _Fed:
    """How far an utterance has been heard.

    Attributes:
        begin: Its first frame when that began; where another comes to be, all is heard anew.
        said: By streams that are over.
        at: Samples that have been sent.
        since: Where the open stream began.
        overlaps: Whether it hears again what the one before it did.
    """

    begin: int
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    stream: Stream | None = None
    said: str = ""
    at: int = 0
    since: int = 0
    overlaps: bool = False


class Streams:
    """A transcriber of an engine that streams: each utterance is sent once, in one stream or several in a row."""

    longest_frames = LONGEST_FRAMES

    def __init__(self, recognizer: StreamingRecognizer) -> None:
        self.kinds = frozenset({ChunkKind.PCM16})
        self.languages: tuple[str, ...] = ()
        self.restarts: dict[str, int] = {}
        self._recognizer = recognizer
        self._fed: WeakKeyDictionary[Utterance, _Fed] = WeakKeyDictionary()
        self._closing: set[asyncio.Task[None]] = set()
        self._finals = 0
        self.run, self.ready = recognizer.run, recognizer.ready

    @property
    def depths(self) -> tuple[int, int]:
        """Utterances whose last words are waited for."""
        return 0, self._finals

    async def transcribe(self, utterance: Utterance, language: str | None, wanted: Wanted) -> Heard:
        """Return what an utterance says; a partial is tried once, all else until the engine is back.

        Raises:
            GivenUpError: The engine stays away.
        """
        since, is_partial = time.monotonic(), wanted is Wanted.PARTIAL
        self._finals += not is_partial
        try:
            # Half a message must not be left behind where a partial is not wanted any more.
            hearing = asyncio.ensure_future(self._hear(utterance, 1 if is_partial else MOST_ATTEMPTS, is_partial))
            text = await asyncio.shield(hearing)
        finally:
            self._finals -= not is_partial
        took_s = time.monotonic() - since
        return Heard(text, language, {"decode": 1000 * took_s}, took_s)

    async def _hear(self, utterance: Utterance, attempts: int, is_partial: bool) -> str:
        if (fed := self._fed.get(utterance)) is None:
            fed = self._fed[utterance] = _Fed(utterance.begin)
            # Of a session that another host has taken nobody asks for the final.
            finalize(utterance, self._let_go, fed).atexit = False
        async with fed.lock:
            for attempt in range(attempts):
                if attempt:
                    await asyncio.sleep(RETRY_PAUSE_S)
                try:
                    return await self._feed(fed, utterance, is_partial)
                except StreamError as error:
                    why = str(error)
                    await self._forget(fed, utterance)
        raise GivenUpError(why)

    def _let_go(self, fed: _Fed) -> None:
        if fed.stream:
            closing = asyncio.get_running_loop().create_task(fed.stream.close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    async def _forget(self, fed: _Fed, utterance: Utterance) -> None:
        if fed.stream:
            await fed.stream.close()
        fed.begin, fed.stream, fed.said, fed.at = utterance.begin, None, "", 0

    async def _feed(self, fed: _Fed, utterance: Utterance, is_partial: bool) -> str:
        if fed.begin != utterance.begin:
            await self._forget(fed, utterance)
        samples, longest = utterance.samples(), round(SAMPLE_RATE * self._recognizer.longest_s)
        end = _certain(utterance, len(samples)) if is_partial else len(samples)
        while fed.at < end:
            if fed.stream is None:
                fed.stream, fed.since, fed.overlaps = await self._recognizer.open(), fed.at, False
            elif fed.at - fed.since >= longest:
                await self._finish(fed)
                fed.at = fed.since = fed.at - OVERLAP
                fed.stream, fed.overlaps = await self._recognizer.open(), True
            piece = samples[fed.at : min(end, fed.since + longest)]
            await fed.stream.send(piece)
            fed.at += len(piece)
        if not is_partial:
            await self._finish(fed)
            return fed.said
        return joined(fed.said, fed.stream.text, fed.overlaps, is_whole=False) if fed.stream else fed.said

    async def _finish(self, fed: _Fed) -> None:
        if fed.stream:
            fed.said = joined(fed.said, await fed.stream.finish(), fed.overlaps, is_whole=True)
            await fed.stream.close()
            fed.stream = None


def joined(before: str, behind: str, overlaps: bool, *, is_whole: bool) -> str:
    """Return what two streams one after the other say, and once what both say.

    Args:
        overlaps: Whether the second heard some of the first's audio again.
        is_whole: Whether the second says no more: until then it may only not have come to what both say.
    """
    if not overlaps:
        return f"{before} {behind}".strip()
    first, second = before.split(), behind.split()
    at = max(0, len(first) - SEAM_WORDS)
    last, next_ = _plain(first[at:]), _plain(second[:SEAM_WORDS])
    # With everything that is said behind it: a word that the turn cut is as the second stream has it.
    match = SequenceMatcher(None, last, next_, autojunk=False).find_longest_match()
    if match.size == 0:
        return f"{before} {behind}".strip() if is_whole else before
    return " ".join(first[: at + match.a] + second[match.b :])


def _plain(words: list[str]) -> list[str]:
    return [re.sub(r"\W", "", word).casefold() for word in words]


def _certain(utterance: Utterance, samples: int) -> int:
    """Return the samples up to the first chunk that may still come."""
    newest = utterance.start + utterance.frames - LATE_FRAMES
    late = next((first for first, _ in utterance.gaps if first >= newest), None)
    return samples if late is None else (late - utterance.begin) * CHUNK_FRAME_SAMPLES
