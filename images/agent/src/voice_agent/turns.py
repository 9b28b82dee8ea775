"""Tracks whether a conversation is between two turns, so that it can be moved to another agent unnoticed."""

import asyncio

from pipecat.frames.frames import BotStartedSpeakingFrame, BotStoppedSpeakingFrame
from pipecat.observers.base_observer import BaseObserver, FramePushed
from pipecat.transports.base_output import BaseOutputTransport


class TurnTracker(BaseObserver):
    """Tracks the turns of a conversation.

    Attributes:
        ended: Event that is set while neither side speaks, and no question waits for an answer.

    Event handlers: ``on_silent``, when the agent has finished speaking.
    """

    def __init__(self) -> None:
        super().__init__()
        self.ended = asyncio.Event()
        self.ended.set()
        self._is_response_pending = self._is_speaking = False
        self._register_event_handler("on_silent")

    def mark_response_pending(self) -> None:
        """Record that the caller speaks, or waits for an answer."""
        self._is_response_pending = True
        self.ended.clear()

    def clear_response_pending(self) -> None:
        """Record that no answer is pending. The last answer may still be playing."""
        self._is_response_pending = False
        self._mark_ended_if_idle()

    async def on_push_frame(self, data: FramePushed) -> None:
        """Update the turns if a frame starts or ends the agent's speech."""
        if isinstance(data.source, BaseOutputTransport):
            if isinstance(data.frame, BotStartedSpeakingFrame):
                self._is_speaking = True
                self.ended.clear()
            elif isinstance(data.frame, BotStoppedSpeakingFrame):
                self._is_speaking = False
                await self._call_event_handler("on_silent")
                self._mark_ended_if_idle()

    def _mark_ended_if_idle(self) -> None:
        if not (self._is_response_pending or self._is_speaking):
            self.ended.set()
