"""Ways in: the protocols that callers speak over a WebSocket, each around Pipecat's serializer of it."""

import asyncio
import contextlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pipecat.frames.frames import OutputTransportMessageUrgentFrame
from pipecat.serializers.base_serializer import FrameSerializer
from pipecat.serializers.protobuf import ProtobufFrameSerializer
from pipecat.serializers.twilio import TwilioFrameSerializer
from pydantic import BaseModel, ValidationError
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from blueprint.contract.session_api import TOKEN_HEADER
from voice_agent.realtime import SUBPROTOCOL as REALTIME_SUBPROTOCOL
from voice_agent.realtime import RealtimeSerializer
from voice_agent.refusals import UNAVAILABLE, RefusedError

SUBPROTOCOL = "voice.v1"
"""Browsers cannot set headers on a WebSocket: they offer this, and behind it tokens with these names before them."""
OFFERED_TOKEN = "voice.token."  # noqa: S105  a name
OFFERED_KEYS = ("voice.key.", "openai-insecure-api-key.")
START_WITHIN_S = 5.0
"""Longest that a telephone network may take to say which call it is."""

Json = dict[str, Any]


@dataclass(frozen=True)
class Close:
    """How a socket ends, by RFC 6455, section 7.4, and IANA's registry: 1012 and 1013 mean "come back"."""

    code: int
    reason: str


ENDED = Close(1000, "the conversation has ended")
REFUSED = Close(1008, "the caller is not let in")
AGAIN = Close(1013, "no conversation can begin now; try again")


class Socket(WebSocket):
    """A WebSocket that ends as its conversation does: Pipecat closes every one with 1000."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        super().__init__(scope, receive, send)
        self.ending = ENDED

    async def close(self, code: int = 1000, reason: str | None = None) -> None:
        """Close it, and say why."""
        del code, reason
        await super().close(self.ending.code, self.ending.reason)


class Entrance:
    """One caller's way in.

    Attributes:
        conversation: The one that the caller names; empty for a new one.
        key: What the gateway lets the caller in with: an ``Authorization``.
        token: What shows that the named conversation is the caller's.
        serializer: What turns messages into Pipecat's frames.
    """

    serializer: FrameSerializer

    subprotocol = SUBPROTOCOL
    needs_token = True
    """Whether a conversation's name alone opens it to nobody."""

    def __init__(self, socket: Socket) -> None:
        self.socket = socket
        self.conversation: str = socket.path_params.get("id") or socket.query_params.get("conversation", "")
        offered = socket.scope["subprotocols"]
        keys = [each.removeprefix(name) for name in OFFERED_KEYS for each in offered if each.startswith(name)]
        tokens = [each.removeprefix(OFFERED_TOKEN) for each in offered if each.startswith(OFFERED_TOKEN)]
        self.key = socket.headers.get("Authorization") or next((f"Bearer {key}" for key in keys), "")
        self.token = socket.headers.get(TOKEN_HEADER) or next(iter(tokens), "")

    async def begin(self) -> None:
        """Find out who calls, where the request alone does not say it.

        Raises:
            RefusedError: The caller does not say it either.
        """

    async def accept(self, conversation: str, token: str) -> None:  # noqa: ARG002  of some protocols
        """Let the caller in, and tell it what opens the conversation again."""
        offered = self.subprotocol in self.socket.scope["subprotocols"]
        await self.socket.accept(self.subprotocol if offered else None)

    async def refuse(self, refusal: RefusedError) -> None:
        """Tell a caller who is not let in."""
        await self.socket.send_denial_response(refusal.response())

    def asked(self, text: str) -> Iterable[Json]:  # noqa: ARG002  of some protocols
        """Return what tells the caller's words."""
        return ()

    def answered(self, text: str) -> Iterable[Json]:  # noqa: ARG002  of some protocols
        """Return what tells the agent's words, as far as they were heard."""
        return ()

    def silent(self) -> Iterable[Json]:
        """Return what tells that the agent has finished speaking."""
        return ()


class ProtobufEntrance(Entrance):
    """Pipecat's own protocol, for its clients."""

    def __init__(self, socket: Socket) -> None:
        super().__init__(socket)
        self.serializer = ProtobufFrameSerializer()

    async def accept(self, conversation: str, token: str) -> None:
        await super().accept(conversation, token)
        greeting = {"type": "conversation", "id": conversation, "token": token}
        message = await self.serializer.serialize(OutputTransportMessageUrgentFrame(message=greeting))
        await self.socket.send_bytes(message)  # type: ignore[arg-type]  # protobuf


class RealtimeEntrance(Entrance):
    """OpenAI's realtime API, speech to speech."""

    subprotocol = REALTIME_SUBPROTOCOL

    def __init__(self, socket: Socket) -> None:
        super().__init__(socket)
        self.serializer = self._events = RealtimeSerializer(socket)

    async def accept(self, conversation: str, token: str) -> None:
        await super().accept(conversation, token)
        await self.socket.send_json(self._events.created(conversation, token))

    def asked(self, text: str) -> Iterable[Json]:
        return self._events.asked(text)

    def answered(self, text: str) -> Iterable[Json]:
        return self._events.answered(text)

    def silent(self) -> Iterable[Json]:
        return self._events.done("completed")


class _Start(BaseModel):
    """What Twilio says of a call."""

    streamSid: str  # noqa: N815  Twilio's spelling
    callSid: str  # noqa: N815
    customParameters: dict[str, str] = {}  # noqa: N815


class TwilioEntrance(Entrance):
    """Twilio's media streams: ``<Connect><Stream>``, with a ``<Parameter>`` named ``key`` where the gateway wants one.

    https://www.twilio.com/docs/voice/media-streams/websocket-messages. Twilio knows no reconnect; who leads the call
    here again, which TwiML does behind a ``<Connect>`` that has ended, goes on with its conversation.
    """

    needs_token = False

    async def begin(self) -> None:
        await self.socket.accept()
        try:
            async with asyncio.timeout(START_WITHIN_S):
                message: Json = {}
                while message.get("event") != "start":
                    message = json.loads(await self.socket.receive_text())
            start = _Start.model_validate(message["start"])
        except (TimeoutError, WebSocketDisconnect, KeyError, ValueError, ValidationError):
            raise RefusedError(400, "bad request", "no start message, as Twilio's media streams begin") from None
        self.serializer = TwilioFrameSerializer(
            start.streamSid, start.callSid, params=TwilioFrameSerializer.InputParams(auto_hang_up=False)
        )
        # Nobody else knows a call's name, and it stays the same for as long as the call.
        self.conversation = f"call-{start.callSid}"
        key = start.customParameters.get("key", "")
        self.key = f"Bearer {key}" if key else self.key

    async def accept(self, conversation: str, token: str) -> None:
        """Do nothing: it had to be open for the caller to say who it is."""

    async def refuse(self, refusal: RefusedError) -> None:
        if self.socket.application_state is WebSocketState.CONNECTING:
            await super().refuse(refusal)
            return
        self.socket.ending = AGAIN if refusal.status == UNAVAILABLE else REFUSED
        with contextlib.suppress(RuntimeError, WebSocketDisconnect):
            await self.socket.close()
