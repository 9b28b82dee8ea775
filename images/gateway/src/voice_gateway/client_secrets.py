"""``POST /v1/realtime/client_secrets``: a key for one call, for browser clients of OpenAI's API.

https://platform.openai.com/docs/api-reference/realtime-sessions/create-realtime-client-secret. A server sends its own
key, and passes the response's ``value`` to a page, which uses the value as the key of its connection.
"""

from pydantic import BaseModel, ValidationError
from redis.exceptions import RedisError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from voice_gateway.bearer import authenticate_by_key
from voice_gateway.gateway import Gateway
from voice_gateway.realtime import InputSettings, SessionUpdate, describe_session
from voice_gateway.refusals import Refusal, build_store_unavailable_refusal, to_openai_response
from voice_gateway.session_routes import SessionRequest, open_session, read_body

CONVERSATION_UNSUPPORTED_DETAIL = (
    "gateways only support 'transcription'; for a conversation, connect to /v1/realtime of an agent"
)


class ClientSecretRequest(BaseModel):
    """The body of a request for a secret.

    A secret is valid for as long as the deployment's tokens, regardless of ``expires_after``.
    """

    session: SessionUpdate = SessionUpdate(type="transcription")


async def create_client_secret(request: Request) -> Response:
    """Open a session, and respond with its token."""
    try:
        return await _create_client_secret(request.app.state.gateway, request)
    except (HTTPException, RedisError) as error:
        return to_openai_response(build_store_unavailable_refusal() if isinstance(error, RedisError) else error)


async def _create_client_secret(gateway: Gateway, request: Request) -> Response:
    caller = await authenticate_by_key(gateway, request)
    input_settings = _parse_body(await read_body(request)).session.audio.input
    turn_detection, transcription = input_settings.turn_detection, input_settings.transcription
    session_request = SessionRequest(
        transport="websocket",
        language=transcription.language if transcription else None,
        end_of_turn_ms=turn_detection.silence_duration_ms if turn_detection else None,
        prompt=transcription.hints if transcription else None,
    )
    session = await open_session(
        gateway, caller, session_request, realtime=input_settings.model_dump_json(exclude_unset=True)
    )
    await gateway.sessions.start_grace_period(session, gateway.settings.token_ttl_s)  # until its caller connects
    token, expires_at = gateway.tokens.create(session.id)
    answer = {
        "value": token,
        "expires_at": int(expires_at.timestamp()),
        "session": describe_session(session, InputSettings.from_session(session)),
    }
    return JSONResponse(answer, headers={"Cache-Control": "no-store"})


def _parse_body(body: bytes) -> ClientSecretRequest:
    try:
        return ClientSecretRequest.model_validate_json(body or b"{}")
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(map(str, problem["loc"])) or "body"
        message = CONVERSATION_UNSUPPORTED_DETAIL if field == "session.type" else problem["msg"]
        raise Refusal(400, "bad request", f"{field}: {message}") from None
