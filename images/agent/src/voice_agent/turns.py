"""Tracks whether a conversation is between two turns, when it can be moved to another agent unnoticed."""

import asyncio

from pipecat.frames.frames import BotStartedSpeakingFrame, BotStoppedSpeakingFrame
from pipecat.observers.base_observer import BaseObserver, FramePushed
from pipecat.transports.base_output import BaseOutputTransport


class Turns(BaseObserver):
    """Tracks the turns of a conversation.

    Attributes:
        ended: Set while neither side speaks, and no question waits for its answer.

    Event handlers: ``on_silent``, when the agent has finished speaking.
    """

    def __init__(self) -> None:
        super().__init__()
        self.ended = asyncio.Event()
        self.ended.set()
        self._is_response_pending = self._is_speaking = False
        self._register_event_handler("on_silent")

    def begin(self) -> None:
        """Note that the caller speaks, or waits for an answer."""
        self._is_response_pending = True
        self.ended.clear()

    def end(self) -> None:
        """Note that no answer is pending; the last one may still be playing."""
        self._is_response_pending = False
        self._check_end()

    async def on_push_frame(self, data: FramePushed) -> None:
        """Observe a frame between two processors."""
        if isinstance(data.source, BaseOutputTransport):
            if isinstance(data.frame, BotStartedSpeakingFrame):
                self._is_speaking = True
                self.ended.clear()
            elif isinstance(data.frame, BotStoppedSpeakingFrame):
                self._is_speaking = False
                await self._call_event_handler("on_silent")
                self._check_end()

    def _check_end(self) -> None:
        if not (self._is_response_pending or self._is_speaking):
            self.ended.set()
