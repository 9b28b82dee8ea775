"""``WS /v1/listen``: Deepgram's live transcription, for its clients.

https://developers.deepgram.com/reference/speech-to-text/listen-streaming. Query parameters other than those of
``DeepgramQuery`` are ignored, just as Deepgram ignores options that a model does not support.
"""

import asyncio
import contextlib
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from statistics import fmean
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, Field, ValidationError, model_validator
from starlette.datastructures import QueryParams
from starlette.types import Message
from starlette.websockets import WebSocket

from voice_blueprint.contract.session_api import MAX_END_OF_TURN_MS
from voice_gateway.audio import MAX_CHANNELS, MIN_RATE, SAMPLE_RATE_HZ, AudioFormat, Encoding
from voice_gateway.audio_socket import NORMAL_END, CloseReason
from voice_gateway.bearer import open_or_resume_session
from voice_gateway.channels import ChannelSplitter
from voice_gateway.client_socket import ClientSocket, SocketArguments
from voice_gateway.gateway import Gateway
from voice_gateway.numerals import convert_numbers_in_transcript
from voice_gateway.refusals import Refusal
from voice_gateway.session_routes import SessionRequest, open_session
from voice_gateway.transcriptions import MODEL_ID
from voice_runtime import tasks
from voice_runtime.redaction import Redaction
from voice_runtime.sessions import Session
from voice_runtime.transcripts import EventKind, TimedWord, Transcript

ENCODINGS_BY_NAME = {
    "linear16": Encoding.PCM16,
    "mulaw": Encoding.MULAW,
    "alaw": Encoding.ALAW,
    "opus": Encoding.OPUS,
    "ogg-opus": Encoding.CONTAINER,
    "flac": Encoding.CONTAINER,
    None: Encoding.CONTAINER,
}
"""Encodings by Deepgram's names. If the client specifies no encoding, the audio is in a container, which specifies the
codec."""
SELF_DESCRIBING_ENCODINGS = (Encoding.OPUS, Encoding.CONTAINER)

JsonObject = Mapping[str, Any]


class DeepgramQuery(BaseModel):
    """The query parameters.

    Attributes:
        encoding: Encoding; missing for audio in a container, such as the WebM of a browser.
        sample_rate: Sample rate of raw audio.
        channels: Number of interleaved channels; two are mixed.
        multichannel: Whether channels are transcribed separately, for one speaker per channel.
        interim_results: Whether partials are sent.
        vad_events: Whether the start of speech is reported.
        endpointing: Silence that ends an utterance after a complete sentence, milliseconds; false for the maximum.
        utterance_end_ms: Silence after the last word before the end of the utterance is reported.
        punctuate: Whether text is capitalized and punctuated.
        numerals: Whether numbers are written in digits.
    """

    encoding: Literal["linear16", "mulaw", "alaw", "opus", "ogg-opus", "flac"] | None = None
    sample_rate: int | None = Field(default=None, ge=MIN_RATE, le=48_000)
    channels: int = Field(default=1, ge=1, le=MAX_CHANNELS)
    multichannel: bool = False
    interim_results: bool = False
    vad_events: bool = False
    endpointing: Annotated[int, Field(ge=0, le=MAX_END_OF_TURN_MS)] | Literal["false", "true"] | None = None
    utterance_end_ms: int | None = Field(default=None, ge=0)
    punctuate: bool = True
    numerals: bool = False

    @model_validator(mode="after")
    def _check_sample_rate(self) -> Self:
        if self.sample_rate is None and ENCODINGS_BY_NAME[self.encoding] not in SELF_DESCRIBING_ENCODINGS:
            raise ValueError(f"sample_rate: {self.encoding} needs one")
        if self.has_separate_channels and ENCODINGS_BY_NAME[self.encoding] in SELF_DESCRIBING_ENCODINGS:
            raise ValueError("multichannel: only linear16, mulaw and alaw are split into channels")
        return self

    @property
    def has_separate_channels(self) -> bool:
        """Whether each channel is transcribed separately."""
        return self.multichannel and self.channels > 1

    @classmethod
    def parse(cls, query: QueryParams) -> Self:
        """Parse query parameters.

        Raises:
            Refusal: An option is not supported.
        """
        try:
            return cls.model_validate(dict(query))
        except ValidationError as error:
            problem = error.errors(include_url=False, include_input=False)[0]
            field = next(iter(problem["loc"]), "")
            raise Refusal(400, "bad request", f"{field}: {problem['msg']}" if field else problem["msg"]) from None

    @property
    def end_of_turn_ms(self) -> int | None:
        """Silence that ends a turn, or ``None`` for the deployment's default."""
        if self.endpointing == "false":
            return MAX_END_OF_TURN_MS
        return self.endpointing if isinstance(self.endpointing, int) else None

    @property
    def audio_format(self) -> AudioFormat:
        encoding = ENCODINGS_BY_NAME[self.encoding]
        if encoding in SELF_DESCRIBING_ENCODINGS:
            return AudioFormat(encoding=encoding)
        return AudioFormat(encoding=encoding, rate=self.sample_rate or SAMPLE_RATE_HZ, channels=self.channels)


REDACTIONS_BY_NAME = {
    "pci": (Redaction.CARD,),
    "credit_card": (Redaction.CARD,),
    "credit_card_number": (Redaction.CARD,),
    "email": (Redaction.EMAIL,),
    "email_address": (Redaction.EMAIL,),
    "pii": (Redaction.CARD, Redaction.EMAIL),
    "true": (Redaction.CARD, Redaction.EMAIL),
    "false": (),
}
"""Redactions by Deepgram's names."""


def parse_session_settings(query: QueryParams) -> dict[str, object]:
    """Return the session settings in query parameters, which are the same for streams and files.

    Raises:
        Refusal: A redaction is not supported.
    """
    redact = query.getlist("redact")
    if unknown := set(redact) - REDACTIONS_BY_NAME.keys():
        supported = ", ".join(REDACTIONS_BY_NAME)
        raise Refusal(
            400, "bad request", f"redact: {', '.join(sorted(unknown))} is not taken out here; {supported} are"
        )
    # Syntax of older models: "word:boost".
    words = [*query.getlist("keyterm"), *(word.partition(":")[0] for word in query.getlist("keywords"))]
    return {
        "language": None if query.get("language") == "multi" else query.get("language"),
        "prompt": ", ".join(words) or None,
        "redact": sorted({each for name in redact for each in REDACTIONS_BY_NAME[name]}),
    }


class ControlMessage(BaseModel):
    """A control message from the client."""

    type: Literal["KeepAlive", "Finalize", "CloseStream", "Configure"]


class DeepgramSocket(ClientSocket):
    """The socket of one of Deepgram's clients."""

    def __init__(
        self,
        gateway: Gateway,
        websocket: WebSocket,
        arguments: SocketArguments,
        channels: ChannelSplitter | None = None,
    ) -> None:
        """Serve a client, or one of its channels."""
        super().__init__(gateway, websocket, arguments)
        self._channels = channels
        self._channel_index = [channels.sockets.index(websocket), len(channels.sockets)] if channels else [0, 1]
        self._query = DeepgramQuery.parse(websocket.query_params)
        audio = self._query.audio_format
        self._set_audio_format(audio.model_copy(update={"channels": 1}) if channels else audio)
        self._created_at = datetime.now(UTC)
        self._transcribed_ms = 0
        self._end_timer: asyncio.TimerHandle | None = None
        self._last_word_s: float | None = None

    @classmethod
    async def _serve(cls, gateway: Gateway, websocket: WebSocket) -> None:
        listening = DeepgramQuery.parse(websocket.query_params)
        if not listening.has_separate_channels:
            await super()._serve(gateway, websocket)
            return
        query = cls.parse_session_settings(websocket.query_params)
        session, session_outlives_socket = await open_or_resume_session(gateway, websocket, query)
        with contextlib.ExitStack() as resources:
            openings = [
                await cls._reserve_resources(
                    gateway, session, resources, session_outlives_socket=session_outlives_socket
                )
            ]
            try:
                for _ in range(1, listening.channels):
                    request = SessionRequest.model_validate({"transport": "websocket", **query})
                    channel_session = await open_session(gateway, session.caller, request)
                    openings.append(
                        await cls._reserve_resources(gateway, channel_session, resources, session_outlives_socket=False)
                    )
            except Refusal:
                if not session_outlives_socket:
                    await gateway.sessions.close(session)
                raise
            await cls._accept(gateway, websocket, session, openings)
            channels = ChannelSplitter(websocket, listening.audio_format)
            split_task = asyncio.create_task(channels.run())
            try:
                await asyncio.gather(
                    *(
                        cls(gateway, socket, opening, channels).serve()
                        for socket, opening in zip(channels.sockets, openings, strict=True)
                    )
                )
            finally:
                await tasks.cancel_tasks([split_task])

    @classmethod
    def validate_query(cls, query: QueryParams) -> None:
        DeepgramQuery.parse(query)

    @classmethod
    def parse_session_settings(cls, query: QueryParams) -> Mapping[str, object]:
        return parse_session_settings(query) | {"end_of_turn_ms": DeepgramQuery.parse(query).end_of_turn_ms}

    @classmethod
    def build_response_headers(cls, session: Session) -> list[tuple[bytes, bytes]]:
        return [(b"dg-request-id", session.id.encode())]

    async def _handle_message(self, message: Message) -> CloseReason | None:
        # An empty message ended a stream before CloseStream existed.
        return NORMAL_END if message.get("bytes") == b"" else await super()._handle_message(message)

    async def _handle_control_message(self, text: str) -> CloseReason | None:
        try:
            control = ControlMessage.model_validate_json(text)
        except ValidationError:
            return CloseReason(1003, "text is for KeepAlive, Finalize and CloseStream only")
        if control.type == "Finalize":
            await self._commit_audio()
        return NORMAL_END if control.type == "CloseStream" else None

    def _convert_event(self, transcript: Transcript) -> Iterator[JsonObject]:
        self._transcribed_ms = max(self._transcribed_ms, transcript.end_ms)
        if transcript.kind is EventKind.SPEECH_STARTED:
            yield from self._build_delayed_utterance_end(transcript.start_ms / 1000)
            if self._query.vad_events:
                yield {"type": "SpeechStarted", "channel": self._channel_index, "timestamp": transcript.start_ms / 1000}
        elif transcript.kind is EventKind.FINAL and (transcript.text or transcript.commit):
            yield self._build_result_message(transcript)
            self._schedule_utterance_end(transcript)
        elif transcript.kind is EventKind.PARTIAL and self._query.interim_results:
            yield self._build_result_message(transcript)

    def _is_checkpoint(self, transcript: Transcript) -> bool:
        return transcript.kind is EventKind.FINAL

    def _build_result_message(self, transcript: Transcript) -> JsonObject:
        is_final = transcript.kind is EventKind.FINAL
        if self._query.numerals:
            transcript = convert_numbers_in_transcript(transcript, self._session.language)
        words = format_words(transcript.words, punctuate=self._query.punctuate)
        confidence = fmean(word.confidence for word in transcript.words) if transcript.words else 0.0
        text = transcript.text if self._query.punctuate else normalize_text(transcript.text)
        return {
            "type": "Results",
            "channel_index": self._channel_index,
            "start": transcript.start_ms / 1000,
            "duration": (transcript.end_ms - transcript.start_ms) / 1000,
            "is_final": is_final,
            "speech_final": is_final and transcript.speech_final,
            "from_finalize": transcript.commit,
            "channel": {"alternatives": [{"transcript": text, "confidence": confidence, "words": words}]},
            "metadata": {
                "request_id": self._session.id,
                "model_uuid": self._session.id,
                "model_info": {"name": MODEL_ID, "version": "", "arch": MODEL_ID},
            },
        }

    def _schedule_utterance_end(self, transcript: Transcript) -> None:
        """Schedule the message for the end of an utterance, if the client requests one."""
        if self._query.utterance_end_ms is None or not (transcript.text and transcript.speech_final):
            return
        self._last_word_s = (transcript.words[-1].end_ms if transcript.words else transcript.end_ms) / 1000
        self._end_timer = asyncio.get_running_loop().call_later(
            self._query.utterance_end_ms / 1000, lambda: self._enqueue_messages(self._build_utterance_end_messages())
        )

    def _build_utterance_end_messages(self) -> Iterator[JsonObject]:
        if self._last_word_s is not None:
            yield {"type": "UtteranceEnd", "channel": self._channel_index, "last_word_end": self._last_word_s}
        self._cancel_utterance_end()

    def _build_delayed_utterance_end(self, at_s: float) -> Iterator[JsonObject]:
        """Yield the message for the end of the last utterance if the next one starts after the requested silence.

        The timer may not have expired yet, since it starts only when the final transcript arrives.
        """
        silence_ms = self._query.utterance_end_ms
        if self._last_word_s is not None and silence_ms is not None and 1000 * (at_s - self._last_word_s) >= silence_ms:
            yield from self._build_utterance_end_messages()
        self._cancel_utterance_end()

    def _cancel_utterance_end(self) -> None:
        if self._end_timer:
            self._end_timer.cancel()
        self._end_timer = self._last_word_s = None

    def _build_final_messages(self) -> Iterator[JsonObject]:
        yield from self._build_utterance_end_messages()
        if self._channels and not self._channels.mark_channel_complete():
            return
        yield {
            "type": "Metadata",
            "transaction_key": "deprecated",
            "request_id": self._session.id,
            "sha256": "",
            "created": self._created_at.isoformat(timespec="milliseconds"),
            "duration": self._transcribed_ms / 1000,
            "channels": self._channel_index[1],
        }


def normalize_text(text: str) -> str:
    """Convert text to lower case, and remove punctuation. Redaction markers are unchanged."""
    return " ".join(filter(None, map(_normalize_word, text.split())))


def _normalize_word(word: str) -> str:
    if word.startswith("[") and word.endswith("]"):
        return word
    return "".join(each for each in word.lower() if each.isalnum() or each in "'-")


def format_words(words: Iterable[TimedWord], *, punctuate: bool) -> list[JsonObject]:
    """Return words in Deepgram's format."""
    return [
        {
            "word": _normalize_word(word.text),
            "punctuated_word": word.text if punctuate else _normalize_word(word.text),
            "start": word.start_ms / 1000,
            "end": word.end_ms / 1000,
            "confidence": word.confidence,
        }
        for word in words
    ]
