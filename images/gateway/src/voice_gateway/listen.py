"""``WS /v1/listen``: Deepgram's live transcription, for its clients.

https://developers.deepgram.com/reference/speech-to-text/listen-streaming. Query parameters other than those of
``Listening`` are ignored, as Deepgram does with options that a model does not support.
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
from voice_gateway.audio import MAX_CHANNELS, MIN_RATE, RATE, AudioFormat, Encoding
from voice_gateway.audio_socket import ENDED, Close
from voice_gateway.bearer import session_of
from voice_gateway.channels import Channels
from voice_gateway.client_socket import ClientSocket, Opening
from voice_gateway.gateway import Gateway
from voice_gateway.numerals import in_digits
from voice_gateway.refusals import Refusal
from voice_gateway.session_routes import SessionRequest, open_session
from voice_gateway.transcriptions import MODEL
from voice_runtime import tasks
from voice_runtime.redaction import Redaction
from voice_runtime.sessions import Session
from voice_runtime.transcripts import EventKind, TimedWord, Transcript

ENCODINGS = {
    "linear16": Encoding.PCM16,
    "mulaw": Encoding.MULAW,
    "alaw": Encoding.ALAW,
    "opus": Encoding.OPUS,
    "ogg-opus": Encoding.CONTAINER,
    "flac": Encoding.CONTAINER,
    None: Encoding.CONTAINER,
}
"""Encodings by Deepgram's name; audio without one is in a container, which specifies its codec."""
WITHOUT_RATE = (Encoding.OPUS, Encoding.CONTAINER)

Json = Mapping[str, Any]


class Listening(BaseModel):
    """The query parameters.

    Attributes:
        encoding: Missing for audio in a container, such as the WebM of a browser.
        sample_rate: Sample rate of raw audio.
        channels: Number of interleaved channels; two are mixed.
        multichannel: Whether channels are transcribed separately, for one speaker per channel.
        interim_results: Whether partials are sent.
        vad_events: Whether the start of speech is reported.
        endpointing: Silence after a complete sentence that ends an utterance, milliseconds; false for the maximum.
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
    def _raw_samples_have_a_rate(self) -> Self:
        if self.sample_rate is None and ENCODINGS[self.encoding] not in WITHOUT_RATE:
            raise ValueError(f"sample_rate: {self.encoding} needs one")
        if self.is_split and ENCODINGS[self.encoding] in WITHOUT_RATE:
            raise ValueError("multichannel: only linear16, mulaw and alaw are split into channels")
        return self

    @property
    def is_split(self) -> bool:
        """Whether each channel is transcribed separately."""
        return self.multichannel and self.channels > 1

    @classmethod
    def of(cls, asked: QueryParams) -> Self:
        """Parse query parameters.

        Raises:
            Refusal: An option is not supported.
        """
        try:
            return cls.model_validate(dict(asked))
        except ValidationError as error:
            problem = error.errors(include_url=False, include_input=False)[0]
            place = next(iter(problem["loc"]), "")
            raise Refusal(400, "bad request", f"{place}: {problem['msg']}" if place else problem["msg"]) from None

    @property
    def end_of_turn_ms(self) -> int | None:
        """Silence that ends a turn; ``None`` for the deployment's."""
        if self.endpointing == "false":
            return MAX_END_OF_TURN_MS
        return self.endpointing if isinstance(self.endpointing, int) else None

    @property
    def audio(self) -> AudioFormat:
        encoding = ENCODINGS[self.encoding]
        if encoding in WITHOUT_RATE:
            return AudioFormat(encoding=encoding)
        return AudioFormat(encoding=encoding, rate=self.sample_rate or RATE, channels=self.channels)


REDACTIONS = {
    "pci": (Redaction.CARD,),
    "credit_card": (Redaction.CARD,),
    "credit_card_number": (Redaction.CARD,),
    "email": (Redaction.EMAIL,),
    "email_address": (Redaction.EMAIL,),
    "pii": (Redaction.CARD, Redaction.EMAIL),
    "true": (Redaction.CARD, Redaction.EMAIL),
    "false": (),
}
"""Redactions by Deepgram's name."""


def wanted(asked: QueryParams) -> dict[str, object]:
    """Return the settings in query parameters except those of the audio, for streams and files.

    Raises:
        Refusal: A redaction is not supported.
    """
    redact = asked.getlist("redact")
    if unknown := set(redact) - REDACTIONS.keys():
        known = ", ".join(REDACTIONS)
        raise Refusal(400, "bad request", f"redact: {', '.join(sorted(unknown))} is not taken out here; {known} are")
    # Syntax of older models: "word:boost".
    words = [*asked.getlist("keyterm"), *(word.partition(":")[0] for word in asked.getlist("keywords"))]
    return {
        "language": None if asked.get("language") == "multi" else asked.get("language"),
        "prompt": ", ".join(words) or None,
        "redact": sorted({each for name in redact for each in REDACTIONS[name]}),
    }


class Control(BaseModel):
    """A control message of the client."""

    type: Literal["KeepAlive", "Finalize", "CloseStream", "Configure"]


class ListenSocket(ClientSocket):
    """A client's socket."""

    def __init__(
        self, gateway: Gateway, websocket: WebSocket, opening: Opening, channels: Channels | None = None
    ) -> None:
        """Serve a client, or one of its channels."""
        super().__init__(gateway, websocket, opening)
        self._channels = channels
        self._channel = [channels.sockets.index(websocket), len(channels.sockets)] if channels else [0, 1]
        self._asked = Listening.of(websocket.query_params)
        audio = self._asked.audio
        self._set_format(audio.model_copy(update={"channels": 1}) if channels else audio)
        self._created = datetime.now(UTC)
        self._heard_ms = 0
        self._ending: asyncio.TimerHandle | None = None
        self._last_word_s: float | None = None

    @classmethod
    async def _serve(cls, gateway: Gateway, websocket: WebSocket) -> None:
        listening = Listening.of(websocket.query_params)
        if not listening.is_split:
            await super()._serve(gateway, websocket)
            return
        asked = cls.wanted(websocket.query_params)
        session, outlives = await session_of(gateway, websocket, asked)
        with contextlib.ExitStack() as counted:
            openings = [await cls._open(gateway, session, counted, outlives=outlives)]
            try:
                for _ in range(1, listening.channels):
                    request = SessionRequest.model_validate({"transport": "websocket", **asked})
                    another = await open_session(gateway, session.caller, request)
                    openings.append(await cls._open(gateway, another, counted, outlives=False))
            except Refusal:
                if not outlives:
                    await gateway.sessions.close(session)
                raise
            await cls._accept(gateway, websocket, session)
            channels = Channels(websocket, listening.audio)
            splitting = asyncio.create_task(channels.run())
            try:
                await asyncio.gather(
                    *(
                        cls(gateway, socket, opening, channels).serve()
                        for socket, opening in zip(channels.sockets, openings, strict=True)
                    )
                )
            finally:
                await tasks.end([splitting])

    @classmethod
    def check(cls, asked: QueryParams) -> None:
        Listening.of(asked)

    @classmethod
    def wanted(cls, asked: QueryParams) -> Mapping[str, object]:
        return wanted(asked) | {"end_of_turn_ms": Listening.of(asked).end_of_turn_ms}

    @classmethod
    def headers(cls, session: Session) -> list[tuple[bytes, bytes]]:
        return [(b"dg-request-id", session.id.encode())]

    async def _handle(self, message: Message) -> Close | None:
        # An empty message ended a stream before CloseStream existed.
        return ENDED if message.get("bytes") == b"" else await super()._handle(message)

    async def _control(self, text: str) -> Close | None:
        try:
            control = Control.model_validate_json(text)
        except ValidationError:
            return Close(1003, "text is for KeepAlive, Finalize and CloseStream only")
        if control.type == "Finalize":
            await self._commit_audio()
        return ENDED if control.type == "CloseStream" else None

    def _hear(self, said: Transcript) -> Iterator[Json]:
        self._heard_ms = max(self._heard_ms, said.end_ms)
        if said.kind is EventKind.SPEECH_STARTED:
            yield from self._go_on(said.start_ms / 1000)
            if self._asked.vad_events:
                yield {"type": "SpeechStarted", "channel": self._channel, "timestamp": said.start_ms / 1000}
        elif said.kind is EventKind.FINAL and (said.text or said.commit):
            yield self._result(said)
            self._expect_end(said)
        elif said.kind is EventKind.PARTIAL and self._asked.interim_results:
            yield self._result(said)

    def _settles(self, said: Transcript) -> bool:
        return said.kind is EventKind.FINAL

    def _result(self, said: Transcript) -> Json:
        is_final = said.kind is EventKind.FINAL
        if self._asked.numerals:
            said = in_digits(said, self._session.language)
        words = words_of(said.words, punctuate=self._asked.punctuate)
        confidence = fmean(word.confidence for word in said.words) if said.words else 0.0
        text = said.text if self._asked.punctuate else bare(said.text)
        return {
            "type": "Results",
            "channel_index": self._channel,
            "start": said.start_ms / 1000,
            "duration": (said.end_ms - said.start_ms) / 1000,
            "is_final": is_final,
            "speech_final": is_final and said.speech_final,
            "from_finalize": said.commit,
            "channel": {"alternatives": [{"transcript": text, "confidence": confidence, "words": words}]},
            "metadata": {
                "request_id": self._session.id,
                "model_uuid": self._session.id,
                "model_info": {"name": MODEL, "version": "", "arch": MODEL},
            },
        }

    def _expect_end(self, said: Transcript) -> None:
        """Report the end of the utterance after this silence."""
        if self._asked.utterance_end_ms is None or not (said.text and said.speech_final):
            return
        self._last_word_s = (said.words[-1].end_ms if said.words else said.end_ms) / 1000
        self._ending = asyncio.get_running_loop().call_later(
            self._asked.utterance_end_ms / 1000, lambda: self._tell(self._end_utterance())
        )

    def _end_utterance(self) -> Iterator[Json]:
        if self._last_word_s is not None:
            yield {"type": "UtteranceEnd", "channel": self._channel, "last_word_end": self._last_word_s}
        self._forget_end()

    def _go_on(self, at_s: float) -> Iterator[Json]:
        """Report the end before the next utterance if that starts late enough, since a final may arrive after it."""
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
        if self._channels and not self._channels.say_farewell():
            return
        yield {
            "type": "Metadata",
            "transaction_key": "deprecated",
            "request_id": self._session.id,
            "sha256": "",
            "created": self._created.isoformat(timespec="milliseconds"),
            "duration": self._heard_ms / 1000,
            "channels": self._channel[1],
        }


def bare(text: str) -> str:
    """Return words without punctuation, in lower case; redaction markers are unchanged."""
    return " ".join(filter(None, map(_bare, text.split())))


def _bare(word: str) -> str:
    if word.startswith("[") and word.endswith("]"):
        return word
    return "".join(each for each in word.lower() if each.isalnum() or each in "'-")


def words_of(words: Iterable[TimedWord], *, punctuate: bool) -> list[Json]:
    """Return words in Deepgram's format."""
    return [
        {
            "word": _bare(word.text),
            "punctuated_word": word.text if punctuate else _bare(word.text),
            "start": word.start_ms / 1000,
            "end": word.end_ms / 1000,
            "confidence": word.confidence,
        }
        for word in words
    ]
