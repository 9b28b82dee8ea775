"""The spoken text of an answer, and its splits."""

from collections.abc import AsyncIterator
from types import SimpleNamespace

import httpx2
import pytest
from pipecat.frames.frames import ErrorFrame, Frame, MetricsFrame, TTSAudioRawFrame, TTSSpeakFrame, TTSStartedFrame
from pipecat.metrics.metrics import TTFBMetricsData
from pipecat.pipeline.worker import PipelineParams
from pipecat.tests.utils import run_test

from images.agent.tests.conftest import settings_of
from images.agent.tests.engines import SPEECH_RATE, Engines
from images.conftest import BUSY_TIMEOUT_S
from voice_agent.speech_synthesis import FirstClauseAggregator, SpeechSynthesisService, remove_unspeakable_characters
from voice_agent.trace import ConversationTracer
from voice_agent.usage import Usage


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        ("Sure! 😊 Let's go 👩‍💻🇩🇪.", "Sure! Let's go."),
        ("🎉🎉", ""),
        ("👍🏽", ""),
        ("It is 20 °C → 68 °F ☀️.", "It is 20 °C 68 °F."),
        ("## A title", "A title"),
        ("**Bold**, `code`, _leaning_, C# and 2 * 3 of snake_case", "Bold, code, leaning, C# and 2 * 3 of snake_case"),
        ("شكرا جزيلا، إلى اللقاء.", "شكرا جزيلا، إلى اللقاء."),
        ("\u202bשלום\u202c עולם", "שלום עולם"),  # noqa: RUF001  Hebrew
        ("می\u200cروم", "می\u200cروم"),
        ("1️⃣ first", "1 first"),
        ("Order #5 costs $1,234.56", "Order #5 costs $1,234.56"),
        ("...", ""),
    ],
)
def test_pictures_and_marks_are_not_read_aloud(text: str, spoken: str) -> None:
    assert remove_unspeakable_characters(text) == spoken


@pytest.mark.parametrize(
    "text",
    [
        "It costs $1,234.56 at 10:30 a.m. on May 5, 2026. ",
        "Version 3.5 of Dr. Smith's plan has 1,000,000 users. ",
        "Your name is spelled S-M-I-T-H, and the code is A1B2. ",
    ],
)
async def test_numbers_dates_and_spelled_names_are_not_split(text: str) -> None:
    aggregator = FirstClauseAggregator()  # type: ignore[no-untyped-call]  # Pipecat's
    pieces = [piece.text async for piece in aggregator.aggregate(text)]
    if rest := await aggregator.flush():
        pieces.append(rest.text)
    assert " ".join(pieces).split() == text.split()
    for whole in ("$1,234.56", "10:30", "3.5", "1,000,000", "S-M-I-T-H", "A1B2", "Dr. Smith"):
        assert whole not in text or any(whole in piece for piece in pieces), pieces


@pytest.mark.parametrize(
    ("text", "first"),
    [("Yes of course, one moment please. ", None), ("Yes, of course, one moment please, thanks. ", "Yes, of course,")],
)
async def test_a_clause_of_a_second_is_spoken_first(text: str, first: str | None) -> None:
    """The first has 14 characters, and the second 15."""
    aggregator = FirstClauseAggregator()  # type: ignore[no-untyped-call]  # Pipecat's
    for end in (aggregator.flush, aggregator.handle_interruption, aggregator.flush):  # of one answer after the other
        pieces = [piece.text async for piece in aggregator.aggregate(text)]
        assert pieces == [first] if first else "Yes of course," not in pieces
        await end()


SENTENCE = "to be, or not, a question of it all"
"""Its fifth word begins after 15 characters."""
STARTS = [0, 3, 7, 10, 15, 17, 26, 29, 32]


class Speaker:
    """Speech synthesis whose audio, or error, is scripted for each sentence."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answers: list[list[float] | httpx2.Response | Exception] = []
        self.words: list[list[tuple[str, float]]] = []
        self.now = 100.0
        monkeypatch.setattr("voice_agent.speech_synthesis.time", SimpleNamespace(monotonic=lambda: self.now))
        self.usage = Usage()
        trace, client = (
            ConversationTracer("", 0, "test").begin(),
            httpx2.AsyncClient(transport=httpx2.MockTransport(self._answer)),
        )
        self._speaking = SpeechSynthesisService(settings_of(Engines(), 1), client, trace, self.usage)
        self._speaking._sample_rate = SPEECH_RATE  # which Pipecat sets when a pipeline starts
        monkeypatch.setattr(self._speaking, "add_word_timestamps", self._note)

    def _answer(self, _: httpx2.Request) -> httpx2.Response:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, httpx2.Response):
            return answer
        return httpx2.Response(200, content=self._audio(answer))

    async def _audio(self, parts_s: list[float]) -> AsyncIterator[bytes]:
        for part_s in parts_s:
            yield bytes(2 * round(part_s * SPEECH_RATE))

    async def _note(self, words: list[tuple[str, float]], _: str) -> None:
        self.words.append(words)

    async def speak_in_a_pipeline(self, text: str) -> list[Frame]:
        """Return the frames that leave the service downstream."""
        parameters = PipelineParams(audio_out_sample_rate=SPEECH_RATE, enable_metrics=True)
        frames, _ = await run_test(
            self._speaking,
            frames_to_send=[TTSSpeakFrame(text)],
            pipeline_params=parameters,
            start_timeout=BUSY_TIMEOUT_S,
        )
        return list(frames)

    async def say(self, text: str, context: str = "c") -> list[Frame | None]:
        self.words = []
        return [frame async for frame in self._speaking.run_tts(text, context)]

    @property
    def name(self) -> str:
        return self._speaking.name

    @property
    def times(self) -> list[float]:
        return [at for words in self.words for _, at in words]


async def test_words_are_timed_by_the_speed_of_the_previous_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    speaker = Speaker(monkeypatch)
    speaker.answers = [[1.0, 1.0], [4.0], [2.0], [1.0]]
    await speaker.say(SENTENCE)
    assert [[word for word, _ in words] for words in speaker.words] == [
        ["to", "be,", "or", "not,"], ["a", "question", "of", "it"], ["all"]
    ]  # fmt: skip
    # At first 15 characters a second. A word is reported while the audio of its start is sent, or else at the end.
    assert speaker.times == pytest.approx([start / 15 for start in [*STARTS[:8], STARTS[7]]])
    speaker.now += 1  # while the first is played
    await speaker.say(SENTENCE)
    assert speaker.times == pytest.approx([2.0 + 2.0 * start / len(SENTENCE) for start in STARTS])
    await speaker.say("\U0001f389")
    assert speaker.words == [[("\U0001f389", 6.0)]], "it is stored with the end of the audio"
    speaker.now += 9  # a pause of four seconds after both
    await speaker.say(SENTENCE)
    assert speaker.times == sorted(speaker.times)
    assert (speaker.times[0], speaker.times[-1] < 12.0) == (10.0, True)
    speaker.now += 50
    await speaker.say(SENTENCE, "another answer")
    assert speaker.times[0] == 0.0
    assert speaker.usage.spoken_characters == 4 * len(SENTENCE)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (httpx2.Response(503, text="busy"), "answers 503: busy"),
        (httpx2.ConnectError("no route"), "cannot be reached: no route"),
        (httpx2.ReadTimeout(""), "cannot be reached: ReadTimeout"),
    ],
)
async def test_a_failing_speech_engine_is_reported_with_its_reason(
    monkeypatch: pytest.MonkeyPatch, answer: httpx2.Response | Exception, reason: str
) -> None:
    speaker = Speaker(monkeypatch)
    speaker.answers = [answer]
    [frame] = await speaker.say(SENTENCE)
    assert isinstance(frame, ErrorFrame)
    assert frame.error.endswith(reason)
    assert speaker.words == []


async def test_the_start_of_speech_and_its_delay_are_reported_to_the_pipeline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pipecat's breakdown of a turn contains the delay."""
    speaker = Speaker(monkeypatch)
    speaker.answers = [[0.2]]
    frames = await speaker.speak_in_a_pipeline(SENTENCE)
    kinds = [type(frame) for frame in frames if isinstance(frame, TTSStartedFrame | TTSAudioRawFrame)]
    assert (kinds[0], kinds.count(TTSStartedFrame)) == (TTSStartedFrame, 1)
    figures = [figure for frame in frames if isinstance(frame, MetricsFrame) for figure in frame.data]
    [delay] = [figure for figure in figures if isinstance(figure, TTFBMetricsData) and figure.value > 0]
    assert delay.processor == speaker.name
