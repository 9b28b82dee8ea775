"""Transcripts that the speech-to-text service passes on, message by message."""

from unittest.mock import Mock

import pytest
from pipecat.frames.frames import EagerEndOfTurnCancelFrame, EagerTranscriptionFrame, Frame, TranscriptionFrame

from images.agent.tests.conftest import settings_of
from images.agent.tests.engines import Engines
from voice_agent.speech_to_text import GatewayClient, GatewaySTTService, NoSpeechFrame
from voice_agent.trace import ConversationTracer


class Service:
    """The service without a socket, and the frames that it pushes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        settings = settings_of(Engines(), 1)
        line = GatewayClient(settings, "", ConversationTracer("", 0, "test").begin())
        self._hearing = GatewaySTTService(line, Mock(), settings)
        self.pushed: list[Frame] = []
        self.commits = 0
        monkeypatch.setattr(self._hearing, "push_frame", self._push)
        monkeypatch.setattr(self._hearing, "_ws_send", self._send)

    async def _push(self, frame: Frame) -> None:
        self.pushed.append(frame)

    async def _send(self, message: dict[str, str]) -> None:
        self.commits += message["type"] == "input_audio_buffer.commit"

    def speaks(self, *, speaking: bool) -> None:
        self._hearing._user_speaking = speaking

    async def pauses(self) -> None:
        """Report a pause that may be the end of a turn."""
        await self._hearing.request_early_transcript()

    async def continues(self) -> None:
        await self._hearing.cancel_early_transcript()

    async def stops(self) -> None:
        """End the speech, as Pipecat's service does."""
        self.speaks(speaking=False)
        await self._hearing._commit_audio_buffer()

    async def receives(self, transcript: str) -> list[Frame]:
        """Return the frames that the transcript of the oldest commit leads to."""
        self.pushed = []
        await self._hearing._handle_transcription_completed({"transcript": transcript})
        return self.pushed


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Service:
    return Service(monkeypatch)


async def test_the_transcripts_of_all_commits_are_passed_on_together_and_marked_as_the_last(service: Service) -> None:
    """Without the mark, Pipecat would wait for more."""
    await service.stops()
    await service.stops()
    assert service.commits == 2
    assert await service.receives("What") == []
    [frame] = await service.receives("is this?")
    assert isinstance(frame, TranscriptionFrame)
    assert (frame.text, frame.finalized) == ("What is this?", True)
    await service.stops()
    [silence] = await service.receives("")
    assert isinstance(silence, NoSpeechFrame), "the first transcripts are not repeated"


async def test_a_transcript_of_a_pause_is_preliminary_and_can_be_withdrawn(service: Service) -> None:
    service.speaks(speaking=True)
    await service.continues()
    assert service.pushed == [], "there is no transcript to withdraw"
    await service.pauses()
    await service.pauses()
    assert service.commits == 1
    [frame] = await service.receives("What is this?")
    assert isinstance(frame, EagerTranscriptionFrame)
    assert frame.text == "What is this?"
    service.pushed = []
    await service.continues()
    await service.continues()
    assert [type(frame) for frame in service.pushed] == [EagerEndOfTurnCancelFrame]
    await service.pauses()
    await service.continues()
    assert await service.receives("that I hear?") == [], "the caller continues"
