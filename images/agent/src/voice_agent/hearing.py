"""The gateway: it says who may speak, and hears by OpenAI's realtime transcription unless the language model does."""

import asyncio
import base64
from typing import Any

import websockets
from pipecat.frames.frames import TranscriptionFrame
from pipecat.services.openai.stt import OpenAIRealtimeSTTService
from pipecat.utils.time import time_now_iso8601
from websockets.asyncio.client import ClientConnection

from blueprint.contract.session_api import PRESENCE_PATH, REALTIME_PATH
from voice_agent.refusals import RefusedError
from voice_agent.settings import AgentSettings
from voice_agent.trace import Trace

RATE = 16000
TIMEOUT_S = 10.0
SILENT_S = 5.0
"""A microphone that sends nothing for that long is silence for the gateway, which would close the session."""
PAUSE_S = 0.5
"""Between two tries to reach a gateway again: the first that is tried may be the one that has just stopped."""
TRIES = 3
TAKEN = 1008
"""What the gateway closes a session's older socket with."""


class Line:
    """A way to the gateway in a caller's name: who may speak is for the gateway to say, and so is who is too many.

    Args:
        key: The caller's own ``Authorization``, as the gateway asks for it.
    """

    def __init__(self, settings: AgentSettings, key: str, trace: Trace) -> None:
        path = PRESENCE_PATH if settings.listening == "audio" else f"{REALTIME_PATH}?intent=transcription"
        self.url = f"ws{settings.gateway_url.removeprefix('http')}{path}"
        self.headers = {**({"Authorization": key} if key else {}), **trace.headers()}

    async def open(self) -> ClientConnection:
        """Open a session at the gateway.

        Raises:
            RefusedError: The gateway lets the caller not in, or is not there.
        """
        try:
            return await websockets.connect(
                self.url, additional_headers=self.headers, compression=None, open_timeout=TIMEOUT_S
            )
        except websockets.InvalidStatus as refusal:
            raise RefusedError.passed_on(refusal.response.status_code, refusal.response.body or b"") from None
        except (OSError, TimeoutError, websockets.WebSocketException) as error:
            detail = f"the gateway cannot be reached: {type(error).__name__}"
            raise RefusedError(503, "gateway away", detail) from None


class Presence:
    """The caller's session at the gateway, where the language model hears: it counts there, and has no audio.

    Args:
        opened: The first connection, which came before the caller was let in.
    """

    def __init__(self, line: Line, opened: ClientConnection) -> None:
        self._line = line
        self._opened = opened

    async def lost(self) -> None:
        """Return when the gateway gives the caller no session any more; until then another follows one that ends."""
        tries = 0
        try:
            while tries < TRIES:
                await self._opened.wait_closed()
                if self._opened.close_code == TAKEN:
                    return
                await asyncio.sleep(PAUSE_S * 2**tries)
                try:
                    self._opened, tries = await self._line.open(), 0
                except RefusedError:
                    tries += 1
        finally:
            await self._opened.close()


class Hearing(OpenAIRealtimeSTTService):
    """The gateway as Pipecat's speech to text.

    A commit follows each end of voice, and its answer holds all that was said since the one before, however many
    utterances the gateway made of it. What was heard is passed on with the answer to the last commit, marked as the
    turn's last transcript: it need not wait longer. Earlier it would end the turn before the caller's last words.

    Args:
        opened: The first connection, which came before the caller was let in.
    """

    def __init__(self, line: Line, opened: ClientConnection, settings: AgentSettings) -> None:
        super().__init__(
            api_key="",
            base_url=line.url,
            turn_detection=False,
            sample_rate=RATE,
            ttfs_p99_latency=settings.final_within_s,
            keepalive_timeout=SILENT_S,
            keepalive_interval=SILENT_S / 5,
            reconnect_backoff_min_wait=PAUSE_S,
            settings=self.Settings(model="gateway", language=None),
        )
        self._line = line
        self._opened: ClientConnection | None = opened
        self._language_code = settings.language
        self._unanswered = 0
        """Commits whose transcript has not come."""
        self._held: list[str] = []
        """Transcripts that more may follow."""

    async def _websocket_connect(self, uri: str, **_: Any) -> ClientConnection:  # noqa: ANN401, ARG002  Pipecat's
        self._unanswered = 0
        opened, self._opened = self._opened, None
        return opened or await self._line.open()

    async def _send_session_update(self) -> None:
        transcription = {"language": self._language_code} if self._language_code else {}
        audio = {
            "format": {"type": "audio/pcm", "rate": RATE},
            "transcription": transcription,
            "turn_detection": None,
        }
        await self._ws_send({"type": "session.update", "session": {"type": "transcription", "audio": {"input": audio}}})

    async def _send_audio(self, audio: bytes) -> None:
        await self._ws_send({"type": "input_audio_buffer.append", "audio": base64.b64encode(audio).decode()})

    async def _send_keepalive(self, silence: bytes) -> None:
        await self._send_audio(silence)

    async def _commit_audio_buffer(self) -> None:
        self._unanswered += 1
        await super()._commit_audio_buffer()

    async def _handle_transcription_completed(self, evt: dict[str, Any]) -> None:
        self._unanswered = max(0, self._unanswered - 1)
        self._held += filter(None, [evt["transcript"]])
        if self._held and not self._unanswered and not self._user_speaking:
            text, self._held = " ".join(self._held), []
            await self.push_frame(
                TranscriptionFrame(text, self._user_id, time_now_iso8601(), result=evt, finalized=True)
            )
