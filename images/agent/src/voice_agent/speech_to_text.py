"""Connections to the gateway, which authenticates callers.

The gateway also transcribes over OpenAI's realtime protocol, unless the language model accepts audio.
"""

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterable, Iterable, Iterator
from typing import Any

import websockets
from pipecat.frames.frames import (
    EagerEndOfTurnCancelFrame,
    EagerTranscriptionFrame,
    Frame,
    SystemFrame,
    TranscriptionFrame,
    VADUserStoppedSpeakingFrame,
)
from pipecat.processors.frame_processor import FrameDirection
from pipecat.services.openai.stt import OpenAIRealtimeSTTService
from pipecat.utils.time import time_now_iso8601
from websockets.asyncio.client import ClientConnection
from websockets.typing import DataLike

from voice_agent.refusals import RefusedError
from voice_agent.settings import AgentSettings
from voice_agent.trace import Trace
from voice_blueprint.contract.session_api import CALLER_HEADER, PRESENCE_PATH, REALTIME_PATH

SAMPLE_RATE_HZ = 16000
CONNECT_TIMEOUT_S = 10.0
SILENCE_TIMEOUT_S = 5.0
"""Time without audio from the microphone after which silence is sent, so that the gateway does not close the
session."""
SEND_TIMEOUT_S = 5.0
"""Timeout for sending a message to a gateway. Sending only blocks if the gateway has stopped reading."""
CLOSE_TIMEOUT_S = 2.0
"""Timeout for the gateway's response to a close."""
RECONNECT_PAUSE_S = 0.5
"""Pause between two reconnects to a gateway, since the first target may be the gateway that has just stopped."""
MAX_ATTEMPTS = 3
SESSION_TAKEN_OVER_CODE = 1008
"""Close code with which the gateway closes a socket whose session another socket has taken over."""


class GatewayConnection(ClientConnection):
    """A connection that is dropped if the gateway stops reading."""

    async def send(
        self, message: DataLike | Iterable[DataLike] | AsyncIterable[DataLike], *, text: bool | None = None
    ) -> None:
        """Send a message, and drop the connection if the gateway does not read it in time."""
        with self._abort_after(SEND_TIMEOUT_S):
            await super().send(message, text=text)

    async def close(self, code: int = 1000, reason: str = "") -> None:
        """Close the connection, and drop it if the gateway does not respond in time."""
        # The timeout of the websockets library begins once the close frame is written, which a full buffer prevents.
        with self._abort_after(CLOSE_TIMEOUT_S):
            await super().close(code, reason)

    @contextlib.contextmanager
    def _abort_after(self, timeout_s: float) -> Iterator[None]:
        timer = asyncio.get_running_loop().call_later(timeout_s, self.transport.abort)
        try:
            yield
        finally:
            timer.cancel()


class GatewayClient:
    """Opens connections to the gateway on behalf of a caller, whom the gateway authenticates and limits.

    Args:
        authorization: The caller's own ``Authorization`` header, which is passed to the gateway.
    """

    def __init__(self, settings: AgentSettings, authorization: str, trace: Trace) -> None:
        path = PRESENCE_PATH if settings.listening == "audio" else f"{REALTIME_PATH}?intent=transcription"
        self.url = f"ws{settings.gateway_url.removeprefix('http')}{path}"
        self.headers = {**({"Authorization": authorization} if authorization else {}), **trace.build_headers()}

    async def open_session(self) -> ClientConnection:
        """Open a session at the gateway.

        Raises:
            RefusedError: The gateway refuses the caller, or is unavailable.
        """
        try:
            return await websockets.connect(
                self.url,
                additional_headers=self.headers,
                compression=None,
                open_timeout=CONNECT_TIMEOUT_S,
                close_timeout=CLOSE_TIMEOUT_S,
                create_connection=GatewayConnection,
            )
        except websockets.InvalidStatus as refusal:
            raise RefusedError.from_response(refusal.response.status_code, refusal.response.body or b"") from None
        except (OSError, TimeoutError, websockets.WebSocketException) as error:
            detail = f"the gateway cannot be reached: {type(error).__name__}"
            raise RefusedError(503, "gateway away", detail) from None


def read_caller_name(connection: ClientConnection) -> str:
    """Return the caller's name from the gateway's response. It is empty if the gateway does not distinguish callers."""
    return connection.response.headers.get(CALLER_HEADER, "") if connection.response else ""


class NoSpeechFrame(SystemFrame):
    """Reports that the audio up to the last end of speech contains no words."""


class PresenceConnection:
    """The caller's session at the gateway if the language model accepts audio.

    The session counts as one of the caller's sessions, but has no audio.

    Args:
        connection: The first connection, opened before the caller was accepted.
    """

    def __init__(self, gateway_client: GatewayClient, connection: ClientConnection) -> None:
        self._gateway_client = gateway_client
        self._connection = connection

    async def maintain_session(self) -> None:
        """Replace the session whenever its connection closes. Return when the gateway no longer grants a session."""
        tries = 0
        try:
            while tries < MAX_ATTEMPTS:
                await self._connection.wait_closed()
                if self._connection.close_code == SESSION_TAKEN_OVER_CODE:
                    return
                await asyncio.sleep(RECONNECT_PAUSE_S * 2**tries)
                try:
                    self._connection, tries = await self._gateway_client.open_session(), 0
                except RefusedError:
                    tries += 1
        finally:
            await self._connection.close()


class GatewaySTTService(OpenAIRealtimeSTTService):
    """The gateway as Pipecat's speech-to-text service.

    A commit follows each end of speech. The response to a commit contains everything said since the previous commit,
    regardless of the number of utterances at the gateway. When the response to the last commit arrives, the transcripts
    are passed on together, marked as the turn's last transcript, so that no further wait is needed. If they were passed
    on earlier, the turn would end before the caller's last words.

    Args:
        connection: The first connection, opened before the caller was accepted.
    """

    def __init__(self, gateway_client: GatewayClient, connection: ClientConnection, settings: AgentSettings) -> None:
        super().__init__(
            api_key="",
            base_url=gateway_client.url,
            turn_detection=False,
            sample_rate=SAMPLE_RATE_HZ,
            ttfs_p99_latency=settings.final_within_s,
            keepalive_timeout=SILENCE_TIMEOUT_S,
            keepalive_interval=SILENCE_TIMEOUT_S / 5,
            reconnect_backoff_min_wait=RECONNECT_PAUSE_S,
            settings=self.Settings(model="gateway", language=None),
        )
        self._gateway_client = gateway_client
        self._initial_connection: ClientConnection | None = connection
        self._language_code = settings.language
        self._pending_commits = 0
        """Number of commits without a transcript."""
        self._pending_transcripts: list[str] = []
        """Transcripts of a turn that may continue."""
        self._has_requested_early_transcript = False
        """Whether a transcript was requested during a pause that may be the end of the turn."""
        self._has_early_transcript = False
        """Whether the transcript up to this pause was passed on."""

    async def _websocket_connect(self, uri: str, **_: Any) -> ClientConnection:  # noqa: ANN401, ARG002  Pipecat's
        opened, self._initial_connection = self._initial_connection, None
        connection = opened or await self._gateway_client.open_session()
        # Pipecat discards commits until it has this connection, so they get no transcript. There must be no ``await``
        # between this line and the return.
        self._pending_commits = 0
        return connection

    async def _send_session_update(self) -> None:
        transcription = {"language": self._language_code} if self._language_code else {}
        audio = {
            "format": {"type": "audio/pcm", "rate": SAMPLE_RATE_HZ},
            "transcription": transcription,
            "turn_detection": None,
        }
        await self._ws_send({"type": "session.update", "session": {"type": "transcription", "audio": {"input": audio}}})

    async def _send_audio(self, audio: bytes) -> None:
        await self._ws_send({"type": "input_audio_buffer.append", "audio": base64.b64encode(audio).decode()})

    async def _send_keepalive(self, silence: bytes) -> None:
        await self._send_audio(silence)

    async def _commit_audio_buffer(self) -> None:
        self._pending_commits += 1
        await super()._commit_audio_buffer()

    async def request_early_transcript(self) -> None:
        """Request the transcript so far, since the caller's turn seems complete."""
        if self._user_speaking and not self._has_requested_early_transcript:
            self._has_requested_early_transcript = True
            await self._commit_audio_buffer()

    async def cancel_early_transcript(self) -> None:
        """Withdraw the transcript that was requested during a pause, since the caller continues to speak."""
        self._has_requested_early_transcript = False
        if self._has_early_transcript:
            self._has_early_transcript = False
            await self.push_frame(EagerEndOfTurnCancelFrame())

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        """Forward a frame to Pipecat's service, which commits the audio at each end of speech."""
        await super().process_frame(frame, direction)
        if isinstance(frame, VADUserStoppedSpeakingFrame):
            self._has_requested_early_transcript = self._has_early_transcript = False

    async def _handle_transcription_completed(self, evt: dict[str, Any]) -> None:
        self._pending_commits = max(0, self._pending_commits - 1)
        self._pending_transcripts += filter(None, [evt["transcript"]])
        if self._pending_commits:
            return
        text = " ".join(self._pending_transcripts)
        if not text:
            if not self._user_speaking:
                await self.push_frame(NoSpeechFrame())
            return
        if not self._user_speaking:
            self._pending_transcripts = []
            await self.push_frame(
                TranscriptionFrame(text, self._user_id, time_now_iso8601(), result=evt, finalized=True)
            )
        elif self._has_requested_early_transcript:
            self._has_early_transcript = True
            await self.push_frame(EagerTranscriptionFrame(text, self._user_id, time_now_iso8601(), result=evt))
