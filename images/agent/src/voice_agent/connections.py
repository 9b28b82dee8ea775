"""WebSocket protocols for callers. Each protocol wraps a Pipecat serializer."""

import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pipecat.frames.frames import OutputTransportMessageUrgentFrame
from pipecat.serializers.base_serializer import FrameSerializer
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketState

from voice_agent import tokens
from voice_agent.messages import ProtobufSerializer
from voice_agent.realtime import SUBPROTOCOL as REALTIME_SUBPROTOCOL
from voice_agent.realtime import RealtimeSerializer
from voice_agent.refusals import RefusedError
from voice_agent.settings import AgentSettings
from voice_blueprint.contract.session_api import TOKEN_HEADER
from voice_runtime.http import get_client_address

SUBPROTOCOL = "voice.v1"
"""Subprotocol that browsers offer, followed by tokens with the prefixes below, since browsers cannot set headers on a
WebSocket."""
TOKEN_PREFIX = "voice.token."  # noqa: S105  a name
KEY_PREFIXES = ("voice.key.", "openai-insecure-api-key.")
START_TIMEOUT_S = 5.0
"""Maximum time within which a telephone network must identify the call."""

JsonObject = dict[str, Any]


@dataclass(frozen=True)
class CloseReason:
    """Code and reason for closing a socket.

    Codes are defined in RFC 6455, section 7.4, and IANA's registry. Codes 1012 and 1013 ask the client to reconnect.
    """

    code: int
    reason: str


CONVERSATION_ENDED = CloseReason(1000, "the conversation has ended")
CALLER_REFUSED = CloseReason(1008, "the caller is not authorized")
MALFORMED_MESSAGE = CloseReason(1007, "a message cannot be read")
TRY_AGAIN_LATER = CloseReason(1013, "no conversation can begin now; try again")


class CallerWebSocket(WebSocket):
    """A WebSocket that closes with its conversation's close code. Pipecat would close every socket with code 1000."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        super().__init__(scope, receive, send)
        self.ending = CONVERSATION_ENDED

    async def close(self, code: int = 1000, reason: str | None = None) -> None:
        del code, reason
        await super().close(self.ending.code, self.ending.reason)


class CallerConnection:
    """A caller's connection.

    Attributes:
        conversation: Conversation to resume; empty for a new one.
        authorization: Credentials for the gateway, as the value of an ``Authorization`` header.
        token: Token of the conversation to resume.
        serializer: Converts messages to Pipecat's frames.
    """

    serializer: FrameSerializer

    subprotocol = SUBPROTOCOL

    def __init__(self, socket: CallerWebSocket, settings: AgentSettings) -> None:
        self.socket = socket
        self._settings = settings
        self.conversation: str = socket.path_params.get("id") or socket.query_params.get("conversation", "")
        offered = socket.scope["subprotocols"]
        keys = [each.removeprefix(name) for name in KEY_PREFIXES for each in offered if each.startswith(name)]
        opening = [each.removeprefix(TOKEN_PREFIX) for each in offered if each.startswith(TOKEN_PREFIX)]
        self.authorization = socket.headers.get("Authorization") or next((f"Bearer {key}" for key in keys), "")
        self.token = socket.headers.get(TOKEN_HEADER) or next(iter(opening), "")

    @property
    def source(self) -> str:
        """Address of the client."""
        return get_client_address(self.socket, forwarded=self._settings.forwarded)

    @property
    def is_open(self) -> bool:
        """Whether the socket has been accepted. If so, an HTTP response is no longer possible."""
        return self.socket.application_state is not WebSocketState.CONNECTING

    async def identify_caller(self) -> None:
        """Identify the caller if the request alone is not sufficient, and verify the token of a conversation.

        Raises:
            RefusedError: The caller cannot be identified, or the token belongs to another conversation.
        """
        if self.conversation and self._find_token_owner() is None:
            raise RefusedError(401, "invalid token", "the token does not open this conversation; begin a new one")

    def resolve_conversation(self, caller: str) -> str:
        """Return the conversation of an authenticated caller.

        Args:
            caller: Name of the caller; empty if the gateway does not distinguish callers.

        Raises:
            RefusedError: The conversation belongs to another caller.
        """
        if self.conversation and self._find_token_owner() != caller:
            raise RefusedError(403, "foreign conversation", "another caller has opened this conversation")
        return self.conversation or secrets.token_hex(16)

    def _find_token_owner(self) -> str | None:
        return tokens.verify_conversation_token(
            self._settings.token_key.get_secret_value(), self.token, self.conversation
        )

    async def accept(self, conversation: str, token: str) -> None:  # noqa: ARG002  used by some protocols
        """Accept the connection, and send the token for resuming the conversation."""
        offered = self.subprotocol in self.socket.scope["subprotocols"]
        await self.socket.accept(self.subprotocol if offered else None)

    async def refuse(self, refusal: RefusedError) -> None:
        """Send a refusal to the caller."""
        await self.socket.send_denial_response(refusal.to_response())

    def build_question_messages(self, text: str) -> Iterable[JsonObject]:  # noqa: ARG002  used by some protocols
        """Return the messages with the caller's words."""
        return ()

    def build_answer_messages(self, text: str) -> Iterable[JsonObject]:  # noqa: ARG002  used by some protocols
        """Return the messages with the part of the answer that was played."""
        return ()

    def build_speech_end_messages(self) -> Iterable[JsonObject]:
        """Return the messages for the end of the agent's speech."""
        return ()


class ProtobufConnection(CallerConnection):
    """Pipecat's own protocol, for Pipecat's clients."""

    def __init__(self, socket: CallerWebSocket, settings: AgentSettings) -> None:
        super().__init__(socket, settings)
        self.serializer = ProtobufSerializer()

    async def accept(self, conversation: str, token: str) -> None:
        await super().accept(conversation, token)
        greeting = {"type": "conversation", "id": conversation, "token": token}
        message = await self.serializer.serialize(OutputTransportMessageUrgentFrame(message=greeting))
        await self.socket.send_bytes(message)  # type: ignore[arg-type]  # protobuf


class RealtimeConnection(CallerConnection):
    """OpenAI's realtime API for speech to speech."""

    subprotocol = REALTIME_SUBPROTOCOL

    def __init__(self, socket: CallerWebSocket, settings: AgentSettings) -> None:
        super().__init__(socket, settings)
        self.serializer = self._events = RealtimeSerializer(socket)

    async def accept(self, conversation: str, token: str) -> None:
        await super().accept(conversation, token)
        await self.socket.send_json(self._events.build_session_created_event(conversation, token))

    def build_question_messages(self, text: str) -> Iterable[JsonObject]:
        return self._events.build_question_events(text)

    def build_answer_messages(self, text: str) -> Iterable[JsonObject]:
        return self._events.build_answer_events(text)

    def build_speech_end_messages(self) -> Iterable[JsonObject]:
        return self._events.build_response_done_events("completed")
