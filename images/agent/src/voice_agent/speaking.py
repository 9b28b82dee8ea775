"""Speech by an OpenAI-compatible ``/v1/audio/speech``. Pipecat's own knows OpenAI's voices and 24 kHz alone."""

import time
from collections.abc import AsyncGenerator

import httpx2
from pipecat.frames.frames import ErrorFrame, Frame, TTSAudioRawFrame
from pipecat.services.settings import TTSSettings
from pipecat.services.tts_service import TTSService
from pipecat.utils.text.base_text_aggregator import Aggregation, TextType
from pipecat.utils.text.simple_text_aggregator import SimpleTextAggregator

from voice_agent.settings import AgentSettings
from voice_agent.trace import Trace

SECONDS_A_CHARACTER = 1 / 15
"""Of English read aloud; what a sentence really took corrects it for the next one."""

CLAUSE_CHARACTERS = 15
"""A second, in which what follows can be written and spoken: a shorter clause would leave a gap behind it."""
CLAUSE_ENDS = frozenset(",;:–—،")  # noqa: RUF001  a dash, and Arabic's comma

SPEECH_TIMEOUT_S = 30.0
"""Longest that an engine may take for the next of a sentence's audio."""


class FirstClause(SimpleTextAggregator):
    """Cuts an answer into sentences, and off the first one its first clause: it is spoken while the rest is written."""

    _is_first = True

    async def _check_sentence_with_lookahead(self, char: str, *, protected_end: int = 0) -> Aggregation | None:
        found = await super()._check_sentence_with_lookahead(char, protected_end=protected_end)
        if self._is_first and not found and char.isspace() and _is_clause(self._text.strip()):
            found, self._text = Aggregation(self._text.strip(), TextType.SENTENCE), ""
        self._is_first = self._is_first and not found
        return found

    async def flush(self) -> Aggregation | None:
        self._is_first = True
        return await super().flush()

    async def handle_interruption(self) -> None:
        self._is_first = True
        await super().handle_interruption()


class Speaking(TTSService):
    """Speaks, and says when each word is heard.

    The engines do not tell when which word comes. Words are spread over a sentence's audio by their length, which is
    enough to know how far an interrupted answer was heard.
    """

    def __init__(self, settings: AgentSettings, client: httpx2.AsyncClient, trace: Trace) -> None:
        model, voice = settings.speech_model, settings.speech_voice
        super().__init__(
            push_text_frames=False,
            push_start_frame=True,
            push_stop_frames=True,
            stop_frame_timeout_s=SPEECH_TIMEOUT_S,  # after 3 s Pipecat would take a slow answer for none
            settings=TTSSettings(model=model, voice=voice, language=None),
        )
        self._text_aggregator = FirstClause(language=self.text_aggregation_language)
        self._url = f"{settings.speech_url}/audio/speech"
        self._asked = {"model": model, "voice": voice, "response_format": "pcm"}
        key = settings.speech_key.get_secret_value()
        self._key = {"Authorization": f"Bearer {key}"} if key else {}
        self._rate = settings.speech_rate
        self._client = client
        self._trace = trace
        self._per_character_s = SECONDS_A_CHARACTER
        self._context = ""
        self._spoken_s = 0.0
        """Of the answer, in audio: where the next sentence begins."""
        self._told_s = 0.0
        """Where its last word was told to be."""
        self._began_at = 0.0
        """When its first sound came, by this machine's clock."""

    def can_generate_metrics(self) -> bool:
        """Whether it tells Pipecat how long it took."""
        return True

    async def run_tts(self, text: str, context_id: str) -> AsyncGenerator[Frame | None, None]:
        """Yield the audio of a sentence."""
        if context_id != self._context:
            self._context, self._spoken_s, self._told_s, self._began_at = context_id, 0.0, 0.0, 0.0
        begin: float | None = None
        words = _placed(text)
        try:
            async with self._client.stream(
                "POST", self._url, json={**self._asked, "input": text}, headers={**self._key, **self._trace.headers()}
            ) as answer:
                if answer.is_error:
                    said = (await answer.aread()).decode(errors="replace")[:200]
                    yield ErrorFrame(f"{self._url} answers {answer.status_code}: {said}")
                    return
                async for frame in self._stream_audio_frames_from_iterator(
                    answer.aiter_bytes(), in_sample_rate=self._rate, context_id=context_id
                ):
                    yield frame
                    if not isinstance(frame, TTSAudioRawFrame):
                        continue
                    if begin is None:
                        begin = self._spoken_s = self._sentence_begins()
                    self._spoken_s += frame.num_frames / frame.sample_rate
                    due = [word for word in words if begin + word[1] * self._per_character_s < self._spoken_s]
                    words = words[len(due) :]
                    await self._tell(due, begin, context_id)
        except httpx2.HTTPError as error:
            yield ErrorFrame(f"{self._url} cannot be reached: {error or type(error).__name__}")
            return
        if begin is not None:
            self._per_character_s = (self._spoken_s - begin) / max(len(text), 1)
            await self._tell(words, begin, context_id)

    def _sentence_begins(self) -> float:
        """Return where in the answer the next sound is: behind the last one, or later where that has been played."""
        now = time.monotonic()
        self._began_at = self._began_at or now
        return max(self._spoken_s, now - self._began_at)

    async def _tell(self, words: list[tuple[str, int]], begin: float, context_id: str) -> None:
        times = []
        for word, place in words:
            # Never before the word that it follows, nor after its sentence: they would be remembered in another order.
            due = min(begin + place * self._per_character_s, self._spoken_s)
            self._told_s = max(due, self._told_s)
            times.append((word, self._told_s))
        await self.add_word_timestamps(times, context_id)


def _is_clause(text: str) -> bool:
    return len(text) >= CLAUSE_CHARACTERS and text[-1] in CLAUSE_ENDS


def _placed(text: str) -> list[tuple[str, int]]:
    """Return each word with the number of characters before it."""
    placed, place = [], 0
    for word in text.split():
        place = text.index(word, place)
        placed.append((word, place))
        place += len(word)
    return placed
