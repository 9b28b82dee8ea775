"""Every parser of the gateway and the engines that reads external bytes, and its declared errors."""

import asyncio
import contextlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from unittest.mock import create_autospec

import jwt
from pydantic import ValidationError
from starlette.datastructures import QueryParams

from voice_agent.messages import GuardedSerializer, MalformedMessageError, ProtobufSerializer
from voice_agent.tokens import verify_conversation_token
from voice_agent.twilio import TwilioSerializer
from voice_gateway import client_secrets
from voice_gateway.audio import AudioFormat, Encoding, Framer, InvalidAudioError
from voice_gateway.callers import JwtCallerIdentifier
from voice_gateway.listen import DeepgramQuery, DeepgramSocket, parse_session_settings
from voice_gateway.pacer import Pacer
from voice_gateway.realtime import RealtimeSocket
from voice_gateway.refusals import Refusal
from voice_gateway.session_routes import SessionRequest
from voice_gateway.tokens import SessionTokenManager, TokenError
from voice_runtime.chunk import AudioChunk, MalformedChunkError
from voice_runtime.openai_events import parse_event_id
from voice_runtime.redaction import Redaction, redact_text
from voice_runtime.transcripts import EventId

CORPUS = Path(__file__).parent / "corpus"
"""Folder of inputs for each parser, including all inputs that revealed defects; tests parse them on every change."""


@dataclass(frozen=True)
class Parser:
    """A parser under test.

    Attributes:
        read: Reads one input.
        raises: The errors that its callers expect for invalid input.
    """

    read: Callable[[bytes], object]
    raises: tuple[type[Exception], ...]

    def parse_with(self, content: bytes) -> None:
        """Parse an input. An unexpected error would end a caller's socket or a task."""
        with contextlib.suppress(*self.raises):
            self.read(content)


def _text(content: bytes) -> str:
    """Return text as a socket or a header delivers it."""
    return content.decode("utf-8", "replace")


def _session_token(content: bytes) -> None:
    tokens = SessionTokenManager("only-for-tests-only-for-tests-only-for-tests", 300)
    tokens.parse_unverified_session_id(_text(content))
    tokens.verify(_text(content), "a-session")


def _issuer_token(content: bytes) -> None:
    callers = JwtCallerIdentifier("https://issuer.test", "voice")
    callers._keys = {"": jwt.PyJWK({"kty": "oct", "k": "AAAA", "alg": "HS256"})}
    callers._next_reload_at = float("inf")  # its issuer is not queried
    asyncio.run(callers.verify_token(_text(content), "192.0.2.1"))


def _realtime(content: bytes) -> None:
    socket = create_autospec(RealtimeSocket, instance=True, _pacer=create_autospec(Pacer, instance=True))
    socket._append_audio = partial(RealtimeSocket._append_audio, socket)  # decodes audio, which is part of the parser
    asyncio.run(RealtimeSocket._handle_control_message(socket, _text(content)))


def _twilio(content: bytes) -> None:
    params = TwilioSerializer.InputParams(auto_hang_up=False, sample_rate=8000)
    serializer = TwilioSerializer("MZ1", "CA1", params=params)
    asyncio.run(GuardedSerializer(serializer, lambda: None).deserialize(_text(content)))


def _agent_audio(content: bytes) -> None:
    asyncio.run(GuardedSerializer(ProtobufSerializer(), lambda: None).deserialize(content))


def _listen(content: bytes) -> None:
    socket = create_autospec(DeepgramSocket, instance=True)
    asyncio.run(DeepgramSocket._handle_control_message(socket, _text(content)))


def _address(content: bytes) -> None:
    try:
        asked = json.loads(content)
    except ValueError:
        return
    _ = DeepgramQuery.model_validate(asked).audio_format


def _framer(encoding: Encoding) -> Callable[[bytes], object]:
    def read(content: bytes) -> None:
        framer = Framer(AudioFormat(encoding=encoding))
        framer.push(content)
        framer.flush()

    return read


PARSERS: Mapping[str, Parser] = {
    "session-token": Parser(_session_token, (TokenError,)),
    "conversation-token": Parser(lambda content: verify_conversation_token("k" * 32, _text(content), "c"), ()),
    "twilio-message": Parser(_twilio, (MalformedMessageError,)),
    "agent-audio": Parser(_agent_audio, (MalformedMessageError,)),
    "issuer-token": Parser(_issuer_token, (Refusal,)),
    "session-request": Parser(SessionRequest.model_validate_json, (ValidationError,)),
    "listen-address": Parser(_address, (ValidationError,)),
    "listen-message": Parser(_listen, ()),
    "realtime-message": Parser(_realtime, ()),
    "client-event": Parser(parse_event_id, ()),
    "client-secret": Parser(client_secrets._parse_body, (Refusal,)),
    "listen-query": Parser(lambda content: parse_session_settings(QueryParams(content)), (Refusal,)),
    "redaction": Parser(lambda content: redact_text(_text(content), frozenset(Redaction)), ()),
    "event-id": Parser(lambda content: EventId.parse(_text(content)), (ValueError,)),
    "opus": Parser(_framer(Encoding.OPUS), (InvalidAudioError,)),
    "pcm": Parser(_framer(Encoding.PCM16), (InvalidAudioError,)),
    "chunk": Parser(AudioChunk.parse, (MalformedChunkError,)),
}
