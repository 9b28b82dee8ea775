"""Authenticates clients of other speech services by their keys.

These clients only send ``Authorization: Bearer KEY`` (Deepgram's clients send ``Token KEY``). The key is a session's
token, or credentials for the deployment file's authorizer that this process can verify. These credentials are a token
of the issuer, or any value if the deployment has no authentication. API Gateway verifies AWS credentials and API keys,
but does not support WebSockets. A caller with such credentials opens a session through API Gateway, and uses the
session's token as the key.
"""

from collections.abc import Mapping

from pydantic import ValidationError
from starlette.requests import HTTPConnection

from voice_blueprint.contract.session_api import CALLER_HEADER
from voice_gateway.callers import ANONYMOUS_CALLER, JwtCallerIdentifier, build_unauthorized_refusal
from voice_gateway.gateway import Gateway
from voice_gateway.refusals import Refusal, build_unknown_session_refusal
from voice_gateway.session_routes import SessionRequest, check_language, check_rate_limit, open_session
from voice_runtime.http import get_client_address
from voice_runtime.sessions import Session, SessionKind

AUTHORIZATION_SCHEMES = ("bearer", "token")
REALTIME_SUBPROTOCOL = "realtime"
REALTIME_KEY_PREFIX = "openai-insecure-api-key."
"""Prefix of a key that is offered as a subprotocol, since browsers cannot set headers on a WebSocket.

Deepgram's clients offer the subprotocols ``token`` or ``bearer`` and the key. OpenAI's clients offer ``realtime`` and
the key after this prefix.
"""


async def open_or_resume_session(
    gateway: Gateway,
    connection: HTTPConnection,
    settings: Mapping[str, object],
    *,
    decoded_here: bool = True,
) -> tuple[Session, bool]:
    """Open a session for a caller, or resume the session whose token is the caller's key.

    Return the session, and True if the session outlives the socket. It does if the caller has the session's token, and
    can therefore reconnect.

    Args:
        settings: Settings of the client, as fields of a session request.
        decoded_here: Whether hosts of this deployment process the audio, and therefore need capacity.

    Raises:
        Refusal: The key is invalid, or no session is available for the caller.
    """
    try:
        session_request = SessionRequest.model_validate({"transport": "websocket", **settings})
    except ValidationError as error:
        first = error.errors()[0]
        raise Refusal(400, "bad request", f"{first['loc'][0]}: {first['msg']}") from None
    key = _extract_key(connection)
    session_id = gateway.tokens.parse_unverified_session_id(key)
    if session_id is None:
        caller = await authenticate_by_key(gateway, connection)
        return await open_session(gateway, caller, session_request, decoded_here=decoded_here), False
    session = await gateway.authenticate(session_id, key)
    if session.kind is not SessionKind.GATEWAY:
        raise Refusal(403, "wrong transport", "this session was opened for SRTP; open one with transport websocket")
    if session.is_over:
        raise build_unknown_session_refusal()
    check_language(gateway, session_request.language)
    if fields := _build_settings_fields(session_request):
        await gateway.sessions.update(session, **fields)
    return session, True


def _build_settings_fields(session_request: SessionRequest) -> dict[str, str]:
    """Return the fields of a session's record that the request sets."""
    fields = {
        "language": session_request.language,
        "end_of_turn_ms": None if session_request.end_of_turn_ms is None else str(session_request.end_of_turn_ms),
        "prompt": session_request.prompt,
        "redact": ",".join(sorted(session_request.redact)) or None,
    }
    return {name: value for name, value in fields.items() if value is not None}


async def authenticate_by_key(gateway: Gateway, connection: HTTPConnection) -> str:
    """Authenticate a caller by its own key, count the request, and return the caller's name.

    Raises:
        Refusal: The key is a session's token or invalid, or the rate limit is exceeded.
    """
    key = _extract_key(connection)
    if gateway.tokens.parse_unverified_session_id(key) is not None:
        raise Refusal(403, "foreign token", "a session's token opens no other session; send the caller's own key")
    caller = await _identify_caller(gateway, connection, key)
    await check_rate_limit(gateway, caller)
    return caller


async def authenticate_request(gateway: Gateway, connection: HTTPConnection) -> str:
    """Return the caller of a request that opens no session, and count the request.

    Raises:
        Refusal: The key is invalid, or the rate limit is exceeded.
    """
    key = _extract_key(connection)
    session_id = gateway.tokens.parse_unverified_session_id(key)
    if session_id is None:
        return await authenticate_by_key(gateway, connection)
    caller = (await gateway.authenticate(session_id, key)).caller
    await check_rate_limit(gateway, caller)
    return caller


def build_caller_headers(gateway: Gateway, session: Session) -> list[tuple[bytes, bytes]]:
    """Return the header that names a session's caller to an agent, or no header if callers are not distinguished."""
    if gateway.settings.authorizer == "none" or session.caller == ANONYMOUS_CALLER:
        return []
    return [(CALLER_HEADER.encode(), session.caller.encode())]


def select_subprotocol(connection: HTTPConnection) -> str | None:
    """Return the subprotocol of the response.

    A browser fails the connection if the server selects none of the offered subprotocols.
    """
    supported = (*AUTHORIZATION_SCHEMES, REALTIME_SUBPROTOCOL)
    return next((each for each in _list_offered_subprotocols(connection) if each.lower() in supported), None)


def _list_offered_subprotocols(connection: HTTPConnection) -> list[str]:
    subprotocols: list[str] = connection.scope.get("subprotocols", [])
    return subprotocols


def _extract_key(connection: HTTPConnection) -> str:
    scheme, _, key = connection.headers.get("Authorization", "").partition(" ")
    if scheme.lower() in AUTHORIZATION_SCHEMES:
        return key.strip()
    subprotocols = _list_offered_subprotocols(connection)
    if len(subprotocols) > 1 and subprotocols[0].lower() in AUTHORIZATION_SCHEMES:
        return subprotocols[1]
    return next(
        (each.removeprefix(REALTIME_KEY_PREFIX) for each in subprotocols if each.startswith(REALTIME_KEY_PREFIX)), ""
    )


async def _identify_caller(gateway: Gateway, connection: HTTPConnection, key: str) -> str:
    address = get_client_address(connection, forwarded=gateway.settings.forwarded)
    if isinstance(gateway.callers, JwtCallerIdentifier) and key:
        return await gateway.callers.verify_token(key, address)
    if gateway.settings.authorizer == "none":
        return address or "unknown"
    raise build_unauthorized_refusal(
        "send `Authorization: Bearer` and a key: "
        + ("a token of the issuer" if gateway.settings.jwt_issuer else "the token of a session that POST opened")
    )
