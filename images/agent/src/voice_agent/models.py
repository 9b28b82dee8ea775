"""The voice detector and the end-of-turn model, which are loaded once and shared by all conversations of a process."""

import asyncio
import copy
import math
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor

from pipecat.audio.turn.base_turn_analyzer import EndOfTurnState
from pipecat.audio.turn.smart_turn.base_smart_turn import SmartTurnParams
from pipecat.audio.turn.smart_turn.local_smart_turn_v3 import LocalSmartTurnAnalyzerV3
from pipecat.audio.vad.silero import SileroVADAnalyzer
from pipecat.audio.vad.vad_analyzer import VADParams, VADState

TURN_START_PARAMS = VADParams(start_secs=0.1, min_volume=0.3)
"""Parameters with which an answer is paused after about 160 ms of speech. With Pipecat's defaults, this takes 380 ms,
since a smoothed volume has to rise. A click may pause an answer, but does not interrupt it (``interruptions.py``)."""


MIN_PAUSE_S = 0.08
"""Silence after which a turn may be over. Pipecat ends the turn after 200 ms of silence. By then, the work that starts
after this shorter silence is complete."""


async def _do_nothing() -> None:
    pass


class VoiceDetector(SileroVADAnalyzer):
    """Silero's voice detector, which also reports pauses that are too short to end speech.

    Attributes:
        processed_bytes: Number of processed bytes of PCM16.
        on_pause: Callback that is called after speech has paused for ``MIN_PAUSE_S``.
        on_resume: Callback that is called if speech continues after such a pause, before the pause ends the speech.
    """

    processed_bytes = 0
    on_pause: Callable[[], Awaitable[None]] = staticmethod(_do_nothing)
    on_resume: Callable[[], Awaitable[None]] = staticmethod(_do_nothing)
    _is_paused = False

    async def analyze_audio(self, buffer: bytes) -> VADState:
        """Process the next audio, and report pauses in speech."""
        self.processed_bytes += len(buffer)
        state = await super().analyze_audio(buffer)
        window_s = self._vad_frames / self.sample_rate
        was_paused = self._is_paused
        self._is_paused = state is VADState.STOPPING and self._vad_stopping_count >= math.ceil(MIN_PAUSE_S / window_s)
        if self._is_paused and not was_paused:
            await self.on_pause()
        elif was_paused and state is VADState.SPEAKING:
            await self.on_resume()
        return state


class TurnAnalyzer(LocalSmartTurnAnalyzerV3):
    """Smart-turn's end-of-turn model, which can also be queried before speech has ended."""

    async def sounds_complete(self) -> bool:
        """Return True if the turn sounds complete, without ending the turn."""
        audio = list(self._audio_buffer)
        loop = asyncio.get_running_loop()
        state, _ = await loop.run_in_executor(self._model_executor, self._process_speech_segment, audio)
        return state is EndOfTurnState.COMPLETE


class TurnModels:
    """Silero's voice detector and smart-turn's end-of-turn detector.

    Pipecat's constructors load the models again for each conversation, which blocks audio processing for 110 ms and
    uses 48 MiB. With this class, each conversation has its own state, but weights and a thread are shared.

    Args:
        incomplete_within_s: Silence that ends a turn that smart-turn classifies as incomplete, seconds.
    """

    def __init__(self, incomplete_within_s: float) -> None:
        self._vad = VoiceDetector(params=TURN_START_PARAMS)
        self._turn = TurnAnalyzer(params=SmartTurnParams(stop_secs=incomplete_within_s))

    def create_voice_detector(self) -> VoiceDetector:
        """Return a new voice detector."""
        vad = copy.copy(self._vad)
        vad._model = copy.copy(self._vad._model)
        vad._model.reset_states()
        vad._executor = ThreadPoolExecutor(max_workers=1)
        return vad

    def create_turn_analyzer(self) -> TurnAnalyzer:
        """Return a new end-of-turn detector."""
        turn = copy.copy(self._turn)
        turn.clear()
        return turn
