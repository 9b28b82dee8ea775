"""Synthesizes speech with an OpenAI-compatible ``/v1/audio/speech`` endpoint.

Pipecat's own service only supports OpenAI's voices and 24 kHz.
"""

import re
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
from voice_agent.usage import Usage

INITIAL_SECONDS_PER_CHARACTER = 1 / 15
"""Duration of English speech per character, assumed for the first sentence. Later sentences use the value measured in
the preceding sentence."""

MIN_CLAUSE_CHARACTERS = 15
"""Minimum length of a clause, which is about a second of speech. In this time, the following text can be generated and
synthesized. After a shorter clause, there would be a gap."""
CLAUSE_END_CHARACTERS = frozenset(",;:–—،")  # noqa: RUF001  a dash and the Arabic comma

INVISIBLE_CHARACTER_PATTERN = re.compile("[\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]")
"""Directional marks and the byte order mark. The pattern keeps joiners, since Persian and Indic scripts use them."""
EMOJI_PATTERN = re.compile(
    "[\u20e3\u2190-\u21ff\u2300-\u27bf\u2900-\u297f\u2b00-\u2bff\u3030\u303d\ufe0e\ufe0f"
    "\U0001f000-\U0001faff\U000e0020-\U000e007f]|\u200d(?=[\u2190-\u2bff\U0001f000-\U0001faff])"
)
"""Emoji, arrows and similar characters: Unicode's blocks from Arrows to Symbols and Pictographs Extended-A."""
MARKDOWN_PATTERN = re.compile(r"`+|~~|\*+(?=\S)|(?<=\S)\*+|(?<!\w)_+(?=\w)|(?<=\w)_+(?!\w)|^#{1,6}\s", re.MULTILINE)

EMPTY_ANSWER_SILENCE_S = 0.02
"""Silence that is played for an answer without letters or digits."""
SPEECH_TIMEOUT_S = 30.0
"""Timeout for the next audio of a sentence."""


class FirstClauseAggregator(SimpleTextAggregator):
    """Splits an answer into sentences, and splits the first clause from the first sentence.

    The clause is spoken while the rest of the answer is generated.
    """

    _is_first_clause = True

    async def _check_sentence_with_lookahead(self, char: str, *, protected_end: int = 0) -> Aggregation | None:
        sentence = await super()._check_sentence_with_lookahead(char, protected_end=protected_end)
        if self._is_first_clause and not sentence and char.isspace() and _is_clause(self._text.strip()):
            sentence, self._text = Aggregation(self._text.strip(), TextType.SENTENCE), ""
        self._is_first_clause = self._is_first_clause and not sentence
        return sentence

    async def flush(self) -> Aggregation | None:
        self._is_first_clause = True
        return await super().flush()

    async def handle_interruption(self) -> None:
        self._is_first_clause = True
        await super().handle_interruption()


class SpeechSynthesisService(TTSService):
    """Speech synthesis with estimated word times.

    The engines do not report word times. Words are distributed over a sentence's audio by their length, which is
    sufficient to determine which part of an interrupted answer was played.

    Attributes:
        answer: Part of the current answer that was sent to the engine.
    """

    _spoken_s: float
    """Duration of the answer's audio so far, at which the next sentence starts."""
    _reported_position_s: float
    """Position of the last reported word in the answer's audio."""
    _started_at: float | None
    """Time of the answer's first sound, on this machine's clock."""

    def __init__(self, settings: AgentSettings, client: httpx2.AsyncClient, trace: Trace, usage: Usage) -> None:
        model, voice = settings.speech_model, settings.speech_voice
        super().__init__(
            push_text_frames=False,
            push_start_frame=True,
            push_stop_frames=True,
            stop_frame_timeout_s=SPEECH_TIMEOUT_S,  # after 3 s, Pipecat would treat a slow response as missing
            settings=TTSSettings(model=model, voice=voice, language=None),
        )
        self._text_aggregator = FirstClauseAggregator(language=self.text_aggregation_language)
        self._url = f"{settings.speech_url}/audio/speech"
        self._request_fields = {"model": model, "voice": voice, "response_format": "pcm"}
        key = settings.speech_key.get_secret_value()
        self._auth_headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._rate = settings.speech_rate
        self._client = client
        self._trace = trace
        self._usage = usage
        self._seconds_per_character = INITIAL_SECONDS_PER_CHARACTER
        self.answer = ""
        self._context = ""

    def can_generate_metrics(self) -> bool:
        """Return True, since this service reports its durations to Pipecat."""
        return True

    async def run_tts(self, text: str, context_id: str) -> AsyncGenerator[Frame | None, None]:
        """Yield the audio of a sentence."""
        if context_id != self._context:
            self._context, self._spoken_s, self._reported_position_s, self._started_at = context_id, 0.0, 0.0, None
            self.answer = ""
        self.answer += f" {text}"
        begin: float | None = None
        words = _find_word_offsets(text)
        speech_text = remove_unspeakable_characters(text)
        if not speech_text:  # the text is stored as if it had been played
            await self._report_word_times(words, self._spoken_s, context_id)
            # Pipecat ends a conversation after three answers without any audio.
            if not remove_unspeakable_characters(self.answer):
                yield TTSAudioRawFrame(
                    bytes(2 * round(EMPTY_ANSWER_SILENCE_S * self.sample_rate)),
                    self.sample_rate,
                    1,
                    context_id=context_id,
                )
            return
        self._usage.spoken_characters += len(speech_text)
        try:
            async with self._client.stream(
                "POST",
                self._url,
                json={**self._request_fields, "input": speech_text},
                headers={**self._auth_headers, **self._trace.build_headers()},
            ) as answer:
                if answer.is_error:
                    error_text = (await answer.aread()).decode(errors="replace")[:200]
                    yield ErrorFrame(f"{self._url} answers {answer.status_code}: {error_text}")
                    return
                async for frame in self._stream_audio_frames_from_iterator(
                    answer.aiter_bytes(), in_sample_rate=self._rate, context_id=context_id
                ):
                    yield frame
                    if not isinstance(frame, TTSAudioRawFrame):
                        continue
                    if begin is None:
                        begin = self._spoken_s = self._calculate_next_audio_position_s()
                    self._spoken_s += frame.num_frames / frame.sample_rate
                    due = [word for word in words if begin + word[1] * self._seconds_per_character < self._spoken_s]
                    words = words[len(due) :]
                    await self._report_word_times(due, begin, context_id)
        except httpx2.HTTPError as error:
            yield ErrorFrame(f"{self._url} cannot be reached: {str(error) or type(error).__name__}")
            return
        if begin is not None:
            self._seconds_per_character = (self._spoken_s - begin) / len(text)
            await self._report_word_times(words, begin, context_id)

    async def on_turn_context_completed(self) -> None:
        """End the answer's audio, even if its last sentence has none.

        Pipecat would otherwise wait for this audio until its timeout, and store the answer only then.
        """
        self._is_yielding_frames_synchronously = True
        await super().on_turn_context_completed()

    def _calculate_next_audio_position_s(self) -> float:
        """Return the position of the next sound in the answer.

        The position is the end of the last sound, or a later position if that sound has already been played.
        """
        now = time.monotonic()
        self._started_at = self._started_at or now
        return max(self._spoken_s, now - self._started_at)

    async def _report_word_times(self, words: list[tuple[str, int]], begin: float, context_id: str) -> None:
        times = []
        for word, position in words:
            # A time before the preceding word's, or after the sentence, would change the order in which words are
            # stored.
            due = min(begin + position * self._seconds_per_character, self._spoken_s)
            self._reported_position_s = max(due, self._reported_position_s)
            times.append((word, self._reported_position_s))
        await self.add_word_timestamps(times, context_id)


def remove_unspeakable_characters(text: str) -> str:
    """Remove emoji, Markdown and directional marks. Return an empty string if the text has no letters or digits.

    Engines read the names of emoji aloud ("grinning face"), or fail.
    """
    plain = EMOJI_PATTERN.sub(" ", MARKDOWN_PATTERN.sub("", INVISIBLE_CHARACTER_PATTERN.sub("", text)))
    cleaned = re.sub(r"\s+(?=[.,;:!?])", "", " ".join(plain.split()))
    return cleaned if any(map(str.isalnum, cleaned)) else ""


def _is_clause(text: str) -> bool:
    return len(text) >= MIN_CLAUSE_CHARACTERS and text[-1] in CLAUSE_END_CHARACTERS


def _find_word_offsets(text: str) -> list[tuple[str, int]]:
    """Return each word with the number of characters before it.

    A token without letters and digits, such as an emoji, belongs to the preceding word, since Pipecat treats a sentence
    as spoken at its last letter, and would store the rest twice.
    """
    positions: list[tuple[str, int]] = []
    offset = 0
    for word in text.split():
        offset = text.index(word, offset)
        if positions and not any(map(str.isalnum, word)):
            before, position = positions.pop()
            positions.append((f"{before} {word}", position))
        else:
            positions.append((word, offset))
        offset += len(word)
    return positions
