"""``WS /v1/listen``: Deepgram's live transcription, for its clients.

https://developers.deepgram.com/reference/speech-to-text/listen-streaming. What the address asks for beyond
``Listening`` is passed over, as Deepgram does with what a model does not have.
"""

import asyncio
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from statistics import fmean
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, ValidationError
from starlette.datastructures import QueryParams
from starlette.types import Message
from starlette.websockets import WebSocket

from blueprint.contract.session_api import MOST_END_OF_TURN_MS
from voice_gateway.audio import AudioFormat, Encoding
from voice_gateway.audio_socket import ENDED, Close
from voice_gateway.client_socket import ClientSocket, Opening
from voice_gateway.gateway import Gateway
from voice_gateway.refusals import Refusal
from voice_gateway.rtp import COMMIT
from voice_gateway.transcriptions import MODEL
from voice_runtime.sessions import Session
from voice_runtime.transcripts import EventKind, Transcript

CHANNEL = [0, 1]
"""The first of one."""
ENCODINGS = {"linear16": Encoding.PCM16, "mulaw": Encoding.MULAW, "alaw": Encoding.ALAW}

Json = Mapping[str, Any]


class Listening(BaseModel):
    """What the address asks for.

    Attributes:
        encoding: Needed: audio in containers is not read here.
        interim_results: Whether partials are told.
        vad_events: Whether the beginning of speech is told.
        endpointing: Silence behind a finished sentence that ends an utterance, milliseconds; false: the longest.
        utterance_end_ms: Silence behind the last word after which the end of the utterance is told.
    """

    encoding: Literal["linear16", "mulaw", "alaw"]
    sample_rate: int = Field(ge=8000, le=48_000)
    channels: Literal["1"] = "1"
    interim_results: bool = False
    vad_events: bool = False
    endpointing: Annotated[int, Field(ge=0, le=MOST_END_OF_TURN_MS)] | Literal["false", "true"] | None = None
    utterance_end_ms: int | None = Field(default=None, ge=0)

    @property
    def audio(self) -> AudioFormat:
        return AudioFormat(encoding=ENCODINGS[self.encoding], rate=self.sample_rate)


class Control(BaseModel):
    """What the client asks for between its audio."""

    type: Literal["KeepAlive", "Finalize", "CloseStream", "Configure"]


class ListenSocket(ClientSocket):
    """One client."""

    def __init__(self, gateway: Gateway, websocket: WebSocket, opening: Opening) -> None:
        super().__init__(gateway, websocket, opening)
        self._asked = Listening.model_validate(dict(websocket.query_params))
        self._set_format(self._asked.audio)
        self._created = datetime.now(UTC)
        self._heard_ms = 0
        self._ending: asyncio.TimerHandle | None = None
        self._last_word_s: float | None = None

    @classmethod
    def check(cls, asked: QueryParams) -> None:
        try:
            Listening.model_validate(dict(asked))
        except ValidationError as error:
            problem = error.errors(include_url=False, include_input=False)[0]
            raise Refusal(400, "bad request", f"{problem['loc'][0]}: {problem['msg']}") from None

    @classmethod
    def language(cls, asked: QueryParams) -> str | None:
        language = asked.get("language")
        return None if language == "multi" else language

    @classmethod
    def end_of_turn_ms(cls, asked: QueryParams) -> int | None:
        asked_for = Listening.model_validate(dict(asked)).endpointing
        if asked_for == "false":
            return MOST_END_OF_TURN_MS
        return asked_for if isinstance(asked_for, int) else None

    @classmethod
    def headers(cls, session: Session) -> list[tuple[bytes, bytes]]:
        return [(b"dg-request-id", session.id.encode())]

    def _handle(self, message: Message) -> Close | None:
        # How clients ended a stream before there was CloseStream.
        return ENDED if message.get("bytes") == b"" else super()._handle(message)

    def _control(self, text: str) -> Close | None:
        try:
            control = Control.model_validate_json(text)
        except ValidationError:
            return Close(1003, "text is for KeepAlive, Finalize and CloseStream only")
        if control.type == "Finalize":
            self._mark(COMMIT)
        return ENDED if control.type == "CloseStream" else None

    def _hear(self, said: Transcript) -> Iterator[Json]:
        self._heard_ms = max(self._heard_ms, said.end_ms)
        if said.kind is EventKind.SPEECH_STARTED:
            yield from self._go_on(said.start_ms / 1000)
            if self._asked.vad_events:
                yield {"type": "SpeechStarted", "channel": CHANNEL, "timestamp": said.start_ms / 1000}
        elif said.kind is EventKind.FINAL and (said.text or said.commit):
            yield self._result(said)
            self._expect_end(said)
        elif said.kind is EventKind.PARTIAL and self._asked.interim_results:
            yield self._result(said)

    def _settles(self, said: Transcript) -> bool:
        return said.kind is EventKind.FINAL

    def _result(self, said: Transcript) -> Json:
        is_final = said.kind is EventKind.FINAL
        words = [
            {
                "word": "".join(each for each in word.text.lower() if each.isalnum() or each in "'-"),
                "punctuated_word": word.text,
                "start": word.start_ms / 1000,
                "end": word.end_ms / 1000,
                "confidence": word.confidence,
            }
            for word in said.words
        ]
        confidence = fmean(word.confidence for word in said.words) if said.words else 0.0
        return {
            "type": "Results",
            "channel_index": CHANNEL,
            "start": said.start_ms / 1000,
            "duration": (said.end_ms - said.start_ms) / 1000,
            "is_final": is_final,
            "speech_final": is_final and said.speech_final,
            "from_finalize": said.commit,
            "channel": {"alternatives": [{"transcript": said.text, "confidence": confidence, "words": words}]},
            "metadata": {
                "request_id": self._session.id,
                "model_uuid": self._session.id,
                "model_info": {"name": MODEL, "version": "", "arch": MODEL},
            },
        }

    def _expect_end(self, said: Transcript) -> None:
        """Tell the end of the utterance once nothing has been said for so long."""
        if self._asked.utterance_end_ms is None or not (said.text and said.speech_final):
            return
        self._last_word_s = (said.words[-1].end_ms if said.words else said.end_ms) / 1000
        self._ending = asyncio.get_running_loop().call_later(
            self._asked.utterance_end_ms / 1000, lambda: self._tell(self._end_utterance())
        )

    def _end_utterance(self) -> Iterator[Json]:
        if self._last_word_s is not None:
            yield {"type": "UtteranceEnd", "channel": CHANNEL, "last_word_end": self._last_word_s}
        self._forget_end()

    def _go_on(self, at_s: float) -> Iterator[Json]:
        """Tell the end ahead of the next utterance, where it begins late enough: a final may come later than that."""
        silence_ms = self._asked.utterance_end_ms
        if self._last_word_s is not None and silence_ms is not None and 1000 * (at_s - self._last_word_s) >= silence_ms:
            yield from self._end_utterance()
        self._forget_end()

    def _forget_end(self) -> None:
        if self._ending:
            self._ending.cancel()
        self._ending = self._last_word_s = None

    def _farewell(self) -> Iterator[Json]:
        yield from self._end_utterance()
        yield {
            "type": "Metadata",
            "transaction_key": "deprecated",
            "request_id": self._session.id,
            "sha256": "",
            "created": self._created.isoformat(timespec="milliseconds"),
            "duration": self._heard_ms / 1000,
            "channels": 1,
        }
