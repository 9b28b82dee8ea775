"""Detects the end of a caller's turn, and prepares the answer early."""

from pipecat.frames.frames import EagerEndOfTurnCancelFrame, EagerTranscriptionFrame, Frame, TranscriptionFrame
from pipecat.turns.types import ProcessFrameResult, UserTurnSpeculation
from pipecat.turns.user_stop import NormalizedMatch, TurnAnalyzerUserTurnStopStrategy

from voice_agent.models import TurnAnalyzer, VoiceDetector
from voice_agent.speech_to_text import GatewaySTTService


class EarlyAnswerStrategy(TurnAnalyzerUserTurnStopStrategy):
    """Ends turns with Pipecat's strategy, and prepares answers at the first pause that sounds final.

    The speech before the pause is transcribed, and the language model is prompted with the transcript. Pipecat's
    speculation gate holds the model's output until the turn is over. The output is discarded if speech continues, or if
    the final transcript differs.

    Args:
        turn: The end-of-turn model.
        vad: Voice detector that reports the pauses.
        speech_to_text: Service that transcribes the speech before a pause.
    """

    def __init__(self, turn: TurnAnalyzer, vad: VoiceDetector, speech_to_text: GatewaySTTService) -> None:
        super().__init__(turn_analyzer=turn)
        self._turn = turn
        self._speech_to_text = speech_to_text
        self._match = NormalizedMatch()
        self._turn_transcripts: list[str] = []
        """Transcripts from the current turn."""
        self._speculation: UserTurnSpeculation | None = None
        vad.on_pause, vad.on_resume = self._schedule_transcription, self._speech_to_text.cancel_early_transcript

    async def _schedule_transcription(self) -> None:
        """Start to transcribe the speech so far, if the turn sounds complete."""
        # Audio is still processed in the meantime, so that the voice detector can detect further speech.
        self.task_manager.create_task(self._transcribe_if_complete(), f"{self}::_transcribe_if_complete")

    async def _transcribe_if_complete(self) -> None:
        if await self._turn.sounds_complete():
            await self._speech_to_text.request_early_transcript()

    async def process_frame(self, frame: Frame) -> ProcessFrameResult:
        """Prepare an answer, or record that the prepared answer was withdrawn."""
        if isinstance(frame, EagerTranscriptionFrame):
            self._speculation = UserTurnSpeculation(text=" ".join([*self._turn_transcripts, frame.text]))
            await self.trigger_user_turn_inference_triggered(speculation=self._speculation)
        elif isinstance(frame, EagerEndOfTurnCancelFrame):
            self._speculation = None
        return await super().process_frame(frame)

    async def trigger_user_turn_stopped(self, *, enable_user_speaking_frames: bool | None = None) -> None:
        """End the turn. Use the prepared answer if its transcript matches the final one."""
        speculation, self._speculation = self._speculation, None
        if speculation and self._match.matches(speculation.text, " ".join(self._turn_transcripts)):
            await self.trigger_user_turn_finalized(
                enable_user_speaking_frames=enable_user_speaking_frames, confirms_speculation=True
            )
            return
        if speculation:
            await self.trigger_user_turn_speculation_cancelled()
        await super().trigger_user_turn_stopped(enable_user_speaking_frames=enable_user_speaking_frames)

    async def _handle_transcription(self, frame: TranscriptionFrame) -> None:
        self._turn_transcripts.append(frame.text)
        if frame.finalized and not (self._vad_user_speaking or self._vad_stopped):
            self._turn_complete = True  # the interruption ended before it was classified as one
        await super()._handle_transcription(frame)

    async def _discard_pending_end_of_turn(self) -> None:
        """Reset end-of-turn detection. Pipecat calls this at each turn boundary, and when speech continues."""
        await super()._discard_pending_end_of_turn()
        speculation, self._speculation = self._speculation, None
        if speculation:
            await self.trigger_user_turn_speculation_cancelled()

    async def _reset(self) -> None:
        await super()._reset()
        self._turn_transcripts = []
