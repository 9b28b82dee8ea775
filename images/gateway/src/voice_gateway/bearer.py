"""Who comes with a key of their own: how clients of other speech services show who they are.

They send one header for everything, ``Authorization: Bearer KEY`` (Deepgram's say ``Token``). The key is a session's
token, or what the deployment file's authorizer asks for where this process can check that: a token of the issuer, or
anything where callers need none. AWS credentials and API keys are checked by API Gateway, through which no WebSocket
comes: such a caller opens a session there and gives its token as key.
"""

from pydantic import ValidationError
from starlette.requests import HTTPConnection

from voice_gateway.callers import JwtCallers, unauthorized
from voice_gateway.gateway import Gateway
from voice_gateway.refusals import Refusal, unknown_session
from voice_gateway.session_routes import SessionRequest, check_language, check_rate, open_session
from voice_runtime.sessions import Session, SessionKind

SCHEMES = ("bearer", "token")


async def session_of(
    gateway: Gateway,
    connection: HTTPConnection,
    language: str | None,
    end_of_turn_ms: int | None = None,
    *,
    heard_here: bool = True,
) -> tuple[Session, bool]:
    """Return the session of a caller, and whether it outlives its socket: a caller with its token can come back.

    Args:
        heard_here: Whether hosts of this deployment need room for it.

    Raises:
        Refusal: The key opens nothing, or there is no session for it.
    """
    try:
        wanted = SessionRequest(transport="websocket", language=language, end_of_turn_ms=end_of_turn_ms)
    except ValidationError as error:
        first = error.errors()[0]
        raise Refusal(400, "bad request", f"{first['loc'][0]}: {first['msg']}") from None
    key = _key(connection)
    named = gateway.tokens.session_in(key)
    if named is None:
        caller = await _caller(gateway, connection, key)
        await check_rate(gateway, caller)
        return await open_session(gateway, caller, wanted, heard_here=heard_here), False
    session = await gateway.session_of(named, key)
    if session.kind is not SessionKind.GATEWAY:
        raise Refusal(403, "wrong transport", "this session was opened for SRTP; open one with transport websocket")
    if session.is_over:
        raise unknown_session()
    if language:
        check_language(gateway, language)
        await gateway.sessions.note(session, language=language)
    if end_of_turn_ms is not None:
        await gateway.sessions.note(session, end_of_turn_ms=str(end_of_turn_ms))
    return session, True


async def caller_of(gateway: Gateway, connection: HTTPConnection) -> str:
    """Return who a caller is that opens no session, and count its request.

    Raises:
        Refusal: The key opens nothing, or the caller asks too often.
    """
    key = _key(connection)
    named = gateway.tokens.session_in(key)
    if named is None:
        caller = await _caller(gateway, connection, key)
    else:
        caller = (await gateway.session_of(named, key)).caller
    await check_rate(gateway, caller)
    return caller


def _key(connection: HTTPConnection) -> str:
    scheme, _, key = connection.headers.get("Authorization", "").partition(" ")
    return key.strip() if scheme.lower() in SCHEMES else ""


async def _caller(gateway: Gateway, connection: HTTPConnection, key: str) -> str:
    if isinstance(gateway.callers, JwtCallers) and key:
        return await gateway.callers.subject(key)
    if gateway.settings.authorizer == "none":
        return connection.client.host if connection.client else "unknown"
    raise unauthorized(
        "send `Authorization: Bearer` and a key: "
        + ("a token of the issuer" if gateway.settings.jwt_issuer else "the token of a session that POST opened")
    )
