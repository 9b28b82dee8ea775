"""Tracks whether a conversation is between two turns, when it can be moved to another agent unnoticed."""

import asyncio

from pipecat.frames.frames import BotStartedSpeakingFrame, BotStoppedSpeakingFrame
from pipecat.observers.base_observer import BaseObserver, FramePushed
from pipecat.transports.base_output import BaseOutputTransport


class Turns(BaseObserver):
    """Tracks the turns of a conversation.

    Attributes:
        over: Set while neither side speaks, and no question waits for its answer.

    Event handlers: ``on_silent``, when the agent has finished speaking.
    """

    def __init__(self) -> None:
        super().__init__()
        self.over = asyncio.Event()
        self.over.set()
        self._owed = self._spoken = False
        self._register_event_handler("on_silent")

    def begin(self) -> None:
        """Note that the caller speaks, or waits for an answer."""
        self._owed = True
        self.over.clear()

    def end(self) -> None:
        """Note that no answer is pending; the last one may still be playing."""
        self._owed = False
        self._look()

    async def on_push_frame(self, data: FramePushed) -> None:
        """Observe a frame between two processors."""
        if isinstance(data.source, BaseOutputTransport):
            if isinstance(data.frame, BotStartedSpeakingFrame):
                self._spoken = True
                self.over.clear()
            elif isinstance(data.frame, BotStoppedSpeakingFrame):
                self._spoken = False
                await self._call_event_handler("on_silent")
                self._look()

    def _look(self) -> None:
        if not (self._owed or self._spoken):
            self.over.set()
