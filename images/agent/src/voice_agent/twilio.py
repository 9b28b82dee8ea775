"""Twilio's media streams: ``<Connect><Stream>``, with a ``<Parameter>`` named ``key`` if the gateway requires one.

https://www.twilio.com/docs/voice/media-streams/websocket-messages. Twilio does not reconnect. TwiML can connect the
call again after a ``<Connect>`` has ended, which resumes the call's conversation.
"""

import asyncio
import base64
import contextlib
import hmac
import json
import secrets

from pipecat.frames.frames import Frame
from pipecat.serializers.twilio import TwilioFrameSerializer
from pydantic import BaseModel, Field, ValidationError
from starlette.websockets import WebSocketDisconnect

from voice_agent.connections import CALLER_REFUSED, START_TIMEOUT_S, TRY_AGAIN_LATER, CallerConnection, CallerWebSocket
from voice_agent.messages import MalformedMessageError
from voice_agent.refusals import HTTP_SERVICE_UNAVAILABLE, RefusedError
from voice_agent.settings import AgentSettings

SIGNATURE_HEADER = "X-Twilio-Signature"
MAX_START_MESSAGES = 4
"""Maximum number of messages up to the start message. Twilio sends one message before it, ``connected``."""
SID_PATTERN = r"^[A-Za-z0-9_-]{1,64}$"


class _StreamStart(BaseModel):
    """Twilio's description of a call."""

    streamSid: str = Field(pattern=SID_PATTERN)  # noqa: N815  Twilio's spelling
    callSid: str = Field(pattern=SID_PATTERN)  # noqa: N815
    accountSid: str = ""  # noqa: N815
    customParameters: dict[str, str] = {}  # noqa: N815


class _Event(BaseModel):
    """A message from Twilio. Only messages up to the start of a stream are parsed as events."""

    event: str
    start: _StreamStart | None = None


class _Media(BaseModel):
    payload: str = ""


class _Message(BaseModel):
    """The fields in a message that Pipecat's serializer uses."""

    event: str
    media: _Media = _Media()
    dtmf: dict[str, str] = {}


class TwilioSerializer(TwilioFrameSerializer):
    """A version of Pipecat's serializer that validates messages."""

    async def deserialize(self, data: str | bytes) -> Frame | None:
        """Return the frame of a message.

        Raises:
            MalformedMessageError: The message has a different format.
        """
        try:
            _Message.model_validate_json(data)
        except ValidationError as error:
            raise MalformedMessageError(
                f"not a message of Twilio's media streams: {error.error_count()} errors"
            ) from None
        return await super().deserialize(data)


def compute_signature(auth_token: str, url: str) -> str:
    """Return Twilio's signature of a WebSocket request.

    The signature is an HMAC-SHA1 over the URL as written in TwiML:
    https://www.twilio.com/docs/usage/security#validating-requests. The algorithm is Twilio's choice, and HMAC-SHA1 is
    not broken.
    """
    return base64.b64encode(hmac.digest(auth_token.encode(), url.encode(), "sha1")).decode()


class TwilioConnection(CallerConnection):
    """A telephone call through Twilio."""

    def __init__(self, socket: CallerWebSocket, settings: AgentSettings) -> None:
        super().__init__(socket, settings)
        self._call_id = ""
        self._is_signed = False

    async def identify_caller(self) -> None:
        self._verify_signature()
        await self.socket.accept()
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                start = await self._receive_start_message()
        except (TimeoutError, WebSocketDisconnect, KeyError, ValidationError):
            raise RefusedError(400, "bad request", "no start message, as Twilio's media streams begin") from None
        account = self._settings.twilio_account
        if account and start.accountSid != account:
            raise RefusedError(403, "foreign account", "the call belongs to another account of Twilio")
        self.serializer = TwilioSerializer(
            start.streamSid, start.callSid, params=TwilioFrameSerializer.InputParams(auto_hang_up=False)
        )
        self._call_id = start.callSid
        self.conversation = f"call-{start.callSid}"
        key = start.customParameters.get("key", "")
        self.authorization = f"Bearer {key}" if key else self.authorization

    async def _receive_start_message(self) -> _StreamStart:
        for _ in range(MAX_START_MESSAGES):
            # Starlette raises KeyError for a binary message.
            message = _Event.model_validate_json(await self.socket.receive_text())
            if message.event == "start" and message.start:
                return message.start
        raise KeyError("start")

    def resolve_conversation(self, caller: str) -> str:
        """Return the conversation for a call.

        The conversation also depends on the caller, since a call's id appears in logs and webhooks. If callers are not
        distinguished, and Twilio's signature is not verified, anyone could use the call's id, so a new conversation is
        started instead.
        """
        if not caller and not self._is_signed:
            return secrets.token_hex(16)
        named = json.dumps([caller, self._call_id]).encode()
        key = self._settings.token_key.get_secret_value().encode()
        return f"call-{hmac.new(key, named, 'sha256').hexdigest()[:32]}"

    def _verify_signature(self) -> None:
        """Verify Twilio's signature of the request, if Twilio's token is configured.

        Raises:
            RefusedError: The request is not signed with the token.
        """
        token = self._settings.twilio_token.get_secret_value()
        if not token:
            return
        url = f"wss://{self.socket.headers.get('Host', '')}{self.socket.url.path}"
        signed = self.socket.headers.get(SIGNATURE_HEADER, "")
        # The URL in TwiML has a trailing slash, unlike the routes of this server.
        if not any(
            hmac.compare_digest(signed.encode(), compute_signature(token, each).encode()) for each in (url, f"{url}/")
        ):
            raise RefusedError(403, "not signed", f"{SIGNATURE_HEADER} is not the one of this account for {url}")
        self._is_signed = True

    async def accept(self, conversation: str, token: str) -> None:
        """Do nothing, since the socket had to be accepted before the caller could be identified."""

    async def refuse(self, refusal: RefusedError) -> None:
        if not self.is_open:
            await super().refuse(refusal)
            return
        self.socket.ending = TRY_AGAIN_LATER if refusal.status == HTTP_SERVICE_UNAVAILABLE else CALLER_REFUSED
        with contextlib.suppress(RuntimeError, WebSocketDisconnect):
            await self.socket.close()
