"""Every parser of the gateway and the engines that meets bytes from outside, and the errors that it says it raises."""

import asyncio
import contextlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import jwt
from pydantic import ValidationError

from voice_gateway.audio import AudioError, AudioFormat, Encoding, Framer
from voice_gateway.callers import JwtCallers
from voice_gateway.listen import Listening, ListenSocket
from voice_gateway.realtime import RealtimeSocket
from voice_gateway.refusals import Refusal
from voice_gateway.session_routes import SessionRequest
from voice_gateway.tokens import SessionTokens, TokenError
from voice_runtime.chunk import AudioChunk, MalformedChunkError
from voice_runtime.transcripts import EventId

CORPUS = Path(__file__).parent / "corpus"
"""A folder of inputs for each parser; what is found goes in there, and is read at every change."""


@dataclass(frozen=True)
class Parser:
    """One of them.

    Attributes:
        read: Reads one input.
        raises: What its callers expect of an input that is none.
    """

    read: Callable[[bytes], object]
    raises: tuple[type[Exception], ...]

    def try_on(self, content: bytes) -> None:
        """Read an input; whatever escapes that nobody expects would end a caller's socket, or a task."""
        with contextlib.suppress(*self.raises):
            self.read(content)


def _text(content: bytes) -> str:
    """Return text as a socket or a header brings it."""
    return content.decode("utf-8", "replace")


def _session_token(content: bytes) -> None:
    tokens = SessionTokens("only-for-tests-only-for-tests-only-for-tests", 300)
    tokens.session_in(_text(content))
    tokens.check(_text(content), "a-session")


def _issuer_token(content: bytes) -> None:
    callers = JwtCallers("https://issuer.test", "voice")
    callers._keys = {"": jwt.PyJWK({"kty": "oct", "k": "AAAA", "alg": "HS256"})}
    callers._ask_from = float("inf")  # its issuer is not asked
    asyncio.run(callers.subject(_text(content)))


def _realtime(content: bytes) -> None:
    socket = RealtimeSocket.__new__(RealtimeSocket)
    vars(socket).update(dict.fromkeys(BEHIND, lambda *_: None))
    socket._control(_text(content))


BEHIND = ("_refuse", "_add", "_update", "_commit", "_clear")
"""What a message leads to, once it is read."""


def _listen(content: bytes) -> None:
    socket = ListenSocket.__new__(ListenSocket)
    vars(socket).update(_mark=lambda *_: None)
    socket._control(_text(content))


def _address(content: bytes) -> None:
    try:
        asked = json.loads(content)
    except ValueError:
        return
    _ = Listening.model_validate(asked).audio


def _framer(encoding: Encoding) -> Callable[[bytes], object]:
    def read(content: bytes) -> None:
        framer = Framer(AudioFormat(encoding=encoding))
        framer.take(content)
        framer.end()

    return read


PARSERS: Mapping[str, Parser] = {
    "session-token": Parser(_session_token, (TokenError,)),
    "issuer-token": Parser(_issuer_token, (Refusal,)),
    "session-request": Parser(SessionRequest.model_validate_json, (ValidationError,)),
    "listen-address": Parser(_address, (ValidationError,)),
    "listen-message": Parser(_listen, ()),
    "realtime-message": Parser(_realtime, ()),
    "event-id": Parser(lambda content: EventId.of(_text(content)), (ValueError,)),
    "opus": Parser(_framer(Encoding.OPUS), (AudioError,)),
    "pcm": Parser(_framer(Encoding.PCM16), (AudioError,)),
    "chunk": Parser(AudioChunk.parse, (MalformedChunkError,)),
}
