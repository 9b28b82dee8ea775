"""Whether a conversation is between two turns, where it can be moved to another agent and nobody hears it."""

import asyncio

from pipecat.frames.frames import BotStartedSpeakingFrame, BotStoppedSpeakingFrame
from pipecat.observers.base_observer import BaseObserver, FramePushed
from pipecat.transports.base_output import BaseOutputTransport


class Turns(BaseObserver):
    """Follows a conversation.

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
        """Note that no answer is owed; the last one may still be spoken."""
        self._owed = False
        self._look()

    async def on_push_frame(self, data: FramePushed) -> None:
        """Look at a frame that goes from one processor to the next."""
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
