"""Decides whether a sound from the caller interrupts a pending or spoken answer.

An answer is paused at the first sound, so that the caller does not have to talk over it. It continues if the sound was
a cough, a word of assent such as "mhm", or the agent's own voice from the caller's loudspeaker. Longer speech and other
words interrupt the answer.
"""

import asyncio
import contextlib
import re
import time
from collections.abc import Callable
from difflib import SequenceMatcher

from pipecat.frames.frames import (
    BotStartedSpeakingFrame,
    BotStoppedSpeakingFrame,
    Frame,
    InputAudioRawFrame,
    TranscriptionFrame,
    VADUserStartedSpeakingFrame,
    VADUserStoppedSpeakingFrame,
)
from pipecat.turns.types import ProcessFrameResult
from pipecat.turns.user_start import BaseUserTurnStartStrategy

from voice_agent.playback import Playback
from voice_agent.speech_to_text import NoSpeechFrame

MIN_INTERRUPTION_S = 1.0
"""Minimum duration of detected speech that interrupts regardless of its words. "Mhm", a cough and an echo are shorter:
an echo ends one round trip after the answer is paused. While the answer is paused, the caller hears silence."""
MIN_ECHO_RATIO = 0.7
"""Minimum share of words that the transcript of an echo has in common with the answer. Audio from a loudspeaker is
transcribed with errors."""
DECISION_TIMEOUT_S = 3.0
"""Maximum time for which a paused answer waits for a transcript."""
INTERRUPTION_TIMEOUT_S = 1.0
"""Timeout for an interruption to pass through the pipeline, which takes milliseconds."""
BACKCHANNELS = frozenset({
    *("ok", "okay", "yes", "yeah", "yep", "yup", "right", "sure", "exactly"),
    *("ja", "jaja", "jo", "genau", "richtig", "oui", "ouais", "si", "claro", "vale", "sim", "certo"),
})  # fmt: skip
"""Words that a listener says without taking the turn: English, German, French, Spanish, Portuguese and Italian."""
HUM_PATTERN = re.compile(r"(?:[hm]*m[hm]*|u+h+m*|h+u+h+|a+h+|o+h+|e+h+m*|a+ha+|u+hu+h*)+")
"""Sounds that a listener makes, as engines write them, without punctuation: mhm, uh-huh, hmm, aha."""


class InterruptionStrategy(BaseUserTurnStartStrategy):
    """Starts a caller's turn immediately if the agent is silent. During an answer, only an interruption starts a turn.

    Args:
        playback: Playback that pauses the answer.
        is_response_pending: Function that returns True while an answer is pending or spoken, or the caller has the
            turn.
        get_answer: Function that returns the current answer of the agent.
        on_interruption: Callback with the time from the onset of an interruption to silence, seconds.
        interruption_processed: Event that is set once the words of an interrupted answer are in the context.
    """

    def __init__(
        self,
        playback: Playback,
        is_response_pending: Callable[[], bool],
        get_answer: Callable[[], str],
        on_interruption: Callable[[float], None],
        interruption_processed: asyncio.Event,
    ) -> None:
        super().__init__()
        self._playback = playback
        self._is_response_pending = is_response_pending
        self._get_answer = get_answer
        self._on_interruption = on_interruption
        self._interruption_processed = interruption_processed
        self._has_caller_turn = False
        self._is_agent_speaking = False
        self._is_caller_speaking = False
        self._has_echo = False
        """Whether the agent's own voice is echoed. If so, sound alone does not pause an answer."""
        self._spoken_s = 0.0
        """Duration of the caller's speech since the answer was paused."""
        self._time_to_silence_s: float | None = None
        """Time from the onset of speech to the pause of the answer, or ``None`` while the answer is not paused."""
        self._timeout_task: asyncio.Task[None] | None = None

    async def handle_user_turn_started(self) -> None:
        """Record that the caller has the turn."""
        self._has_caller_turn = True

    async def handle_user_turn_stopped(self) -> None:
        """Record that the caller's turn is over, so that an answer can follow."""
        self._has_caller_turn = self._has_echo = False
        await self._continue_answer()

    async def process_frame(self, frame: Frame) -> ProcessFrameResult:
        """Decide whether a frame starts a turn, interrupts an answer, or lets a paused answer continue."""
        match frame:
            case BotStartedSpeakingFrame():
                self._is_agent_speaking = True
            case BotStoppedSpeakingFrame():
                self._is_agent_speaking = False
            case VADUserStartedSpeakingFrame():
                self._is_caller_speaking = True
                return await self._handle_speech_start(frame)
            case VADUserStoppedSpeakingFrame():
                self._is_caller_speaking = False
            case InputAudioRawFrame() if self._is_answer_paused and self._is_caller_speaking:
                self._spoken_s += len(frame.audio) / 2 / frame.sample_rate
                if self._spoken_s >= MIN_INTERRUPTION_S:
                    return await self._interrupt_answer()
            case TranscriptionFrame() if not self._has_caller_turn:  # speech began during a pending or spoken answer
                return await self._classify_transcript(frame.text)
            case NoSpeechFrame():
                await self._continue_answer()
        return ProcessFrameResult.CONTINUE

    @property
    def _is_answering(self) -> bool:
        return not self._has_caller_turn and self._is_response_pending()

    @property
    def _is_answer_paused(self) -> bool:
        return self._time_to_silence_s is not None

    async def _handle_speech_start(self, frame: VADUserStartedSpeakingFrame) -> ProcessFrameResult:
        if not self._is_answering:
            await self.trigger_user_turn_started()
            return ProcessFrameResult.STOP
        if not self._has_echo and not self._is_answer_paused:
            self._playback.pause()
            self._spoken_s, self._time_to_silence_s = 0.0, time.time() - frame.timestamp + frame.start_secs
            self._timeout_task = self.task_manager.create_task(
                self._continue_after_timeout(), f"{self}::_continue_in_time"
            )
        return ProcessFrameResult.CONTINUE

    async def _classify_transcript(self, text: str) -> ProcessFrameResult:
        words = _split_words(text)
        if is_assent(words):
            await self._continue_answer()
        elif is_echo(words, _split_words(self._get_answer())):
            self._has_echo = True
            await self._continue_answer()
        else:
            return await self._interrupt_answer()
        await self.trigger_reset_aggregation()
        return ProcessFrameResult.CONTINUE

    async def _interrupt_answer(self) -> ProcessFrameResult:
        if self._is_agent_speaking and self._time_to_silence_s is not None:
            self._on_interruption(self._time_to_silence_s)
        self._time_to_silence_s = None
        self._interruption_processed.clear()
        # The answer stays paused until the interruption reaches the transport, which discards it.
        await self.trigger_user_turn_started()
        # The same transcript may end the turn. Without this wait, the question would precede the words of the answer
        # that it interrupts, and the language model would be prompted without these words.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._interruption_processed.wait(), INTERRUPTION_TIMEOUT_S)
        return ProcessFrameResult.STOP

    async def _continue_answer(self) -> None:
        self._time_to_silence_s = None
        self._playback.resume()
        deciding, self._timeout_task = self._timeout_task, None
        if deciding and deciding is not asyncio.current_task():
            await self.task_manager.cancel_task(deciding)

    async def _continue_after_timeout(self) -> None:
        await asyncio.sleep(DECISION_TIMEOUT_S)
        if self._is_answer_paused:
            await self._continue_answer()

    async def cleanup(self) -> None:
        """Cancel pending tasks."""
        await super().cleanup()
        await self._continue_answer()


def is_assent(words: list[str]) -> bool:
    """Return True for words of assent, and for an empty transcript."""
    return all(word in BACKCHANNELS or HUM_PATTERN.fullmatch(word) for word in words)


def is_echo(words: list[str], answer_words: list[str]) -> bool:
    """Return True if most of the words occur in an answer, adjacent to each other and in the same order."""
    size = len(words) + 2
    windows = (answer_words[begin : begin + size] for begin in range(len(answer_words)))
    matches = (SequenceMatcher(None, window, words, autojunk=False).get_matching_blocks() for window in windows)
    return any(sum(match.size for match in blocks) >= MIN_ECHO_RATIO * len(words) for blocks in matches)


def _split_words(text: str) -> list[str]:
    # "uh-huh" and "mm-hmm" are one word.
    return ["".join(filter(str.isalnum, word)) for word in text.lower().split() if any(map(str.isalnum, word))]
