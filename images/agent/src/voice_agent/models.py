"""The two models of turns: loaded once, and shared by every conversation of the process."""

import copy
from concurrent.futures import ThreadPoolExecutor

from pipecat.audio.turn.smart_turn.base_smart_turn import SmartTurnParams
from pipecat.audio.turn.smart_turn.local_smart_turn_v3 import LocalSmartTurnAnalyzerV3
from pipecat.audio.vad.silero import SileroVADAnalyzer
from pipecat.audio.vad.vad_analyzer import VADParams, VADState

TURN_STARTS = VADParams(start_secs=0.15, min_volume=0.3)
"""An interruption is heard after about 220 ms of speech. Pipecat's own values take 380: a smoothed volume has to rise.
Less would let a click interrupt."""


class Vad(SileroVADAnalyzer):
    """Silero's voice detector, which knows how far into the audio it is.

    Attributes:
        heard_bytes: PCM16 that it has looked at.
    """

    heard_bytes = 0

    async def analyze_audio(self, buffer: bytes) -> VADState:
        """Look at what comes next."""
        self.heard_bytes += len(buffer)
        return await super().analyze_audio(buffer)


class Models:
    """Silero's voice detector and smart-turn's end of turn.

    Pipecat's constructors load a model each time: 110 ms in which no audio moves, and 48 MiB a conversation. Here a
    conversation gets a copy of the state, over the same weights and the same thread.

    Args:
        incomplete_within_s: Silence that ends a turn which smart-turn takes for unfinished, seconds.
    """

    def __init__(self, incomplete_within_s: float) -> None:
        self._vad = Vad(params=TURN_STARTS)
        self._turn = LocalSmartTurnAnalyzerV3(params=SmartTurnParams(stop_secs=incomplete_within_s))

    def vad(self) -> Vad:
        """Return a voice detector that has heard nothing yet."""
        vad = copy.copy(self._vad)
        vad._model = copy.copy(self._vad._model)
        vad._model.reset_states()
        vad._executor = ThreadPoolExecutor(max_workers=1)
        return vad

    def turn(self) -> LocalSmartTurnAnalyzerV3:
        """Return an end-of-turn detector that has heard nothing yet."""
        turn = copy.copy(self._turn)
        turn.clear()
        return turn
