"""Opens and closes sessions."""

import asyncio
import base64
import logging
import secrets
import time
from dataclasses import asdict
from http import HTTPStatus
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response

from voice_blueprint.contract.media import CODECS, Codec
from voice_blueprint.contract.network import Tier
from voice_blueprint.contract.session_api import (
    EVENTS_PATH,
    FULL_CELLS_PARAMETER,
    MAX_CALL_NAME_CHARACTERS,
    MAX_END_OF_TURN_MS,
    MAX_PROMPT_CHARACTERS,
    SESSIONS_PATH,
    SRTP_KEY_BYTES_BY_SUITE,
    TOKEN_HEADER,
)
from voice_gateway.gateway import Gateway
from voice_gateway.refusals import Refusal, build_draining_refusal, build_no_capacity_refusal, build_retry_after_header
from voice_runtime import state
from voice_runtime.media import DEFAULT_MEDIA_FORMAT, MediaFormat
from voice_runtime.redaction import Redaction
from voice_runtime.sessions import Session, SessionKind, SessionState, TooManySessionsError, get_primary_language

MAX_BODY_BYTES = 4096
"""Maximum size of a request, which has a few short fields."""
BODY_TIMEOUT_S = 10.0
MAX_SSRC_ATTEMPTS = 8

log = logging.getLogger(__name__)


Language = Annotated[str, Field(pattern="^[a-z]{2,3}(-[A-Za-z0-9]{2,8})*$", max_length=35)]


class MediaRequest(BaseModel):
    """Requested packet format. Omitted fields have the codec's defaults."""

    model_config = ConfigDict(extra="forbid", strict=True)

    codec: Codec = Codec.L16
    rate: int | None = None
    channels: int | None = None
    packet_ms: int = 20
    payload_type: int | None = None
    telephone_events: list[int] | None = None

    def to_media_format(self) -> MediaFormat:
        spec = CODECS[self.codec]
        return MediaFormat(
            self.codec,
            spec.rates[0] if self.rate is None else self.rate,
            spec.channels[0] if self.channels is None else self.channels,
            self.packet_ms,
            spec.payload_type if self.payload_type is None else self.payload_type,
            DEFAULT_MEDIA_FORMAT.telephone_events if self.telephone_events is None else tuple(self.telephone_events),
        )


class SessionRequest(BaseModel):
    """The body of a request for a session, which ``voice_blueprint.contract.session_api`` describes for API Gateway."""

    model_config = ConfigDict(extra="forbid", strict=True)

    transport: Literal["websocket", "srtp"]
    language: Language | None = None
    suite: Literal["AES_CM_128_HMAC_SHA1_80", "AEAD_AES_128_GCM"] | None = None
    end_of_turn_ms: int | None = Field(default=None, ge=0, le=MAX_END_OF_TURN_MS)
    prompt: str | None = Field(default=None, max_length=MAX_PROMPT_CHARACTERS)
    redact: list[Annotated[Redaction, Field(strict=False)]] = []
    media: MediaRequest | None = None
    archive: bool = False
    call: str | None = Field(default=None, max_length=MAX_CALL_NAME_CHARACTERS)


async def create_session(request: Request) -> Response:
    gateway: Gateway = request.app.state.gateway
    caller = await gateway.callers.identify(request)
    await check_rate_limit(gateway, caller)
    session_request = await _parse_request(request)
    if location := await _find_redirect_url(
        gateway, session_request, session_request.call or caller, request.query_params.get(FULL_CELLS_PARAMETER, "")
    ):
        return RedirectResponse(location, HTTPStatus.TEMPORARY_REDIRECT, {"Cache-Control": "no-store"})
    session = await open_session(gateway, caller, session_request)
    return JSONResponse(_build_session_body(gateway, session), status_code=201, headers={"Cache-Control": "no-store"})


async def close_session(request: Request) -> Response:
    """Close a session. Its remaining speech is still transcribed."""
    gateway: Gateway = request.app.state.gateway
    session = await gateway.authenticate(request.path_params["id"], request.headers.get(TOKEN_HEADER))
    await gateway.sessions.close(session)
    await gateway.reservations.release(session.ssrc)
    gateway.usage.schedule_report(session, 0.0)
    log.info("session closed", extra={"fields": {"ssrc": session.ssrc}})
    return Response(status_code=204)


async def open_session(
    gateway: Gateway,
    caller: str,
    session_request: SessionRequest,
    *,
    decoded_here: bool = True,
    realtime: str | None = None,
) -> Session:
    """Open a session for a caller, and check the capacity unless the session's audio is processed elsewhere.

    Args:
        realtime: Settings with which a client of OpenAI's API connects, as JSON.

    Raises:
        Refusal: The caller has the maximum number of sessions, or no host has a free slot or supports the language.
    """
    check_language(gateway, session_request.language)
    _check_media(session_request)
    if session_request.archive and gateway.archive is None:
        raise Refusal(400, "no archive", "this deployment archives no transcripts; leave archive out")
    if decoded_here:
        _check_capacity(gateway, session_request)
    session = await _open_session_with_free_ssrc(gateway, caller, session_request, realtime)
    gateway.metrics.count("SessionsCreated")
    log.info("session opened", extra={"fields": {"ssrc": session.ssrc, "kind": session.kind}})
    return session


async def check_rate_limit(gateway: Gateway, caller: str) -> None:
    """Count a caller's request for a session.

    Raises:
        Refusal: The caller exceeds the rate limit or the daily minutes, or this process is stopping.
    """
    if gateway.draining.is_set():
        raise build_draining_refusal()
    key = state.build_caller_creations_key(caller)
    async with gateway.store.pipeline(transaction=True) as pipe:
        pipe.incr(key)
        pipe.expire(key, 1, nx=True)
        created, _ = await pipe.execute()
    limit = gateway.settings.caller_creations_per_s
    if created > limit:
        raise Refusal(
            429, "too many requests", f"a caller may open {limit} sessions a second", build_retry_after_header(1)
        )
    await gateway.usage.check_quota(caller)


def check_language(gateway: Gateway, language: str | None) -> None:
    supported = gateway.fleet.languages
    if language and supported and get_primary_language(language) not in supported:
        raise Refusal(
            400,
            "unsupported language",
            f"language {language!r} is understood by no engine here; they have {', '.join(sorted(supported))}; "
            "without a language it is found out from the audio",
        )


def _check_media(session_request: SessionRequest) -> None:
    if session_request.suite and session_request.transport == "websocket":
        raise Refusal(400, "unsupported suite", "a WebSocket is encrypted by TLS; leave suite out, or take SRTP")
    if session_request.media is None:
        return
    problem = session_request.media.to_media_format().unsupported_reason
    if session_request.transport == "websocket":
        problem = "a WebSocket takes L16 at 16000 Hz, one channel, and no media; leave it out, or take SRTP"
    if problem:
        raise Refusal(400, "unsupported media", problem)


async def _find_redirect_url(
    gateway: Gateway, session_request: SessionRequest, call: str, full_cells: str
) -> str | None:
    """Return the URL of another cell that serves the call, or ``None`` if this cell serves the call.

    Args:
        full_cells: Names of the cells without capacity for the call.
    """
    if gateway.cells is None:
        return None
    names = gateway.cells.parse_cell_names(full_cells)
    if find_full_tier(gateway, session_request):
        names.add(gateway.cells.own_name)
    cell = await gateway.cells.select_cell(call, names)
    if cell is None or cell == gateway.cells.own_name:
        return None
    query = f"?{FULL_CELLS_PARAMETER}={','.join(sorted(names))}" if names else ""
    return f"{gateway.cells.get_api_url(cell)}{SESSIONS_PATH}{query}"


def find_full_tier(gateway: Gateway, session_request: SessionRequest) -> Tier | None:
    """Return the tier without capacity for a session, or ``None`` if there is capacity."""
    if gateway.fleet.free_slot_count == 0:
        return Tier.ASR
    if session_request.transport == "websocket" and gateway.fleet.select_vad_host() is None:
        return Tier.VAD
    return None


def _check_capacity(gateway: Gateway, session_request: SessionRequest) -> None:
    missing = find_full_tier(gateway, session_request)
    if missing is None:
        return
    gateway.metrics.count("SessionsRefused")
    raise build_no_capacity_refusal(
        f"every {missing.upper()} host is full, draining or gone; try again", gateway.settings.other_regions
    )


async def _parse_request(request: Request) -> SessionRequest:
    try:
        return SessionRequest.model_validate_json(await read_body(request))
    except ValidationError as error:
        problem = error.errors(include_url=False, include_context=False, include_input=False)[0]
        field = ".".join(map(str, problem["loc"]))
        raise Refusal(400, "bad request", f"{field}: {problem['msg']}" if field else problem["msg"]) from None


async def read_body(request: Request) -> bytes:
    """Return the body of a small request.

    Raises:
        Refusal: The body is too large, or arrives too slowly.
    """
    headers = {"Connection": "close"}
    too_large = Refusal(413, "body too large", f"a request has at most {MAX_BODY_BYTES} bytes", headers)
    length = request.headers.get("Content-Length", "")
    if length.isdigit() and int(length) > MAX_BODY_BYTES:
        raise too_large
    body = b""
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            async for chunk in request.stream():
                body += chunk
                if len(body) > MAX_BODY_BYTES:
                    raise too_large
    except TimeoutError:
        detail = f"the body did not come within {BODY_TIMEOUT_S:.0f} s"
        raise Refusal(408, "body too slow", detail, headers) from None
    return body


async def _open_session_with_free_ssrc(
    gateway: Gateway, caller: str, session_request: SessionRequest, realtime: str | None
) -> Session:
    external = session_request.transport == "srtp"
    settings, limit = gateway.settings, gateway.settings.caller_sessions
    suite: str = session_request.suite or next(iter(SRTP_KEY_BYTES_BY_SUITE))
    for _ in range(MAX_SSRC_ATTEMPTS):
        ssrc = secrets.randbits(32)
        session = Session(
            ssrc=ssrc,
            id=gateway.tokens.create_session_id(ssrc),
            state=SessionState.OPEN,
            kind=SessionKind.EXTERNAL if external else SessionKind.GATEWAY,
            caller=caller,
            expires_at=int(time.time()) + gateway.settings.session_max_s,
            srtp_key=base64.b64encode(secrets.token_bytes(SRTP_KEY_BYTES_BY_SUITE[suite])).decode()
            if external
            else None,
            media=session_request.media.to_media_format() if session_request.media else DEFAULT_MEDIA_FORMAT,
            language=session_request.language,
            end_of_turn_ms=settings.end_of_turn_ms
            if session_request.end_of_turn_ms is None
            else session_request.end_of_turn_ms,
            prompt=session_request.prompt or "",
            redact=frozenset(session_request.redact),
            realtime=realtime,
            archived_from=int(time.time()) if session_request.archive else 0,
        )
        try:
            if await gateway.sessions.create(session, max_sessions=limit):
                if external:  # a WebSocket reserves its slot when it is accepted
                    await _reserve_slot(gateway, session)
                return session
        except TooManySessionsError as error:
            raise Refusal(429, "too many sessions", str(error), build_retry_after_header(5)) from None
    raise build_no_capacity_refusal("no free synchronization source was found; try again")


async def _reserve_slot(gateway: Gateway, session: Session) -> None:
    if not await gateway.reservations.acquire(session.ssrc, session.expires_at):
        await gateway.sessions.close(session)
        gateway.metrics.count("SessionsRefused")
        raise build_no_capacity_refusal(
            "every ASR host has as many sessions as it takes; try again", gateway.settings.other_regions
        )


def _build_session_body(gateway: Gateway, session: Session) -> dict[str, object]:
    token, expires_at = gateway.tokens.create(session.id)
    api = gateway.settings.api_url
    media: dict[str, object] = {"websocket": gateway.settings.build_audio_url(session.id)}
    if session.srtp_key and (suite := session.srtp_suite):
        host, port = gateway.settings.rtp_host or gateway.settings.media_host, gateway.settings.rtp_port
        srtp = {"ssrc": session.ssrc, "suite": suite, "key": session.srtp_key}
        sdp = session.media.to_sdp(host, port, ssrc=session.ssrc, suite=suite, key=session.srtp_key)
        media = {"srtp": {"host": host, "port": port, **srtp, **asdict(session.media), "sdp": sdp}}
    return {
        "id": session.id,
        "token": token,
        "expires_at": expires_at.isoformat(timespec="seconds"),
        "media": media,
        # Route 53 may route the caller's next request to another region, which does not have the session.
        "events": f"{api}{EVENTS_PATH.format(id=session.id)}" if api else f"sessions/{session.id}/events",
    }
