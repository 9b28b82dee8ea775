"""Accepts audio sockets: ``wss://.../v1/sessions/{id}/audio``.

Browsers cannot set headers on a WebSocket, and proxies log URLs. Clients therefore offer the token as an additional
subprotocol: ``new WebSocket(url, ["voice.v1", token])``.
"""

import contextlib
import logging
import time

from redis.exceptions import RedisError
from starlette.websockets import WebSocket

from voice_gateway.audio_socket import AudioSocket
from voice_gateway.gateway import Gateway
from voice_gateway.refusals import (
    Refusal,
    build_no_capacity_refusal,
    build_store_unavailable_refusal,
    build_unknown_session_refusal,
)
from voice_gateway.rtp import calculate_first_frame_number, calculate_rtp_timestamp, find_source_address
from voice_gateway.slot_reservations import RESERVATION_TTL_S
from voice_gateway.socket_lease import SocketLease
from voice_runtime.sessions import Session, SessionKind

SUBPROTOCOL = "voice.v1"

log = logging.getLogger(__name__)


async def receive_audio(websocket: WebSocket) -> None:
    """Receive a session's audio until the session or the socket ends."""
    gateway: Gateway = websocket.app.state.gateway
    websocket.state.requested_at = time.monotonic()
    try:
        gateway.check_connection_capacity()
        session = await _authenticate(gateway, websocket)
        with gateway.count_connection():
            lease, address = await admit_socket(gateway, session)
            frame = calculate_first_frame_number()
            await gateway.sessions.set_gateway(session, address, calculate_rtp_timestamp(frame))
            await websocket.accept(SUBPROTOCOL)
            # The session is only resumed now, since the client may have disconnected while the socket was opening. If
            # the store is unavailable, the session is resumed when the socket renews its lease.
            with contextlib.suppress(RedisError):
                await gateway.sessions.resume(session)
            await AudioSocket(gateway, websocket, session, lease, frame).serve()
    except Refusal as refusal:
        await websocket.send_denial_response(refusal.to_response())
    except RedisError:
        await websocket.send_denial_response(build_store_unavailable_refusal().to_response())


async def _authenticate(gateway: Gateway, websocket: WebSocket) -> Session:
    subprotocols: list[str] = websocket.scope["subprotocols"]
    if SUBPROTOCOL not in subprotocols:
        raise Refusal(400, "bad request", f"offer the subprotocols {SUBPROTOCOL} and the session's token")
    token = next((each for each in subprotocols if each != SUBPROTOCOL), None)
    session = await gateway.authenticate(websocket.path_params["id"], token)
    if session.kind is not SessionKind.GATEWAY:
        raise Refusal(403, "wrong transport", "this session was opened for SRTP; open one with transport websocket")
    if session.is_over:
        raise build_unknown_session_refusal()
    return session


async def admit_socket(gateway: Gateway, session: Session) -> tuple[SocketLease, str]:
    """Reserve a slot for a socket's session, and return the socket's lease and the source address of its audio.

    Raises:
        Refusal: No host has a free slot.
    """
    host = gateway.fleet.select_vad_host()
    if host is None:
        gateway.metrics.count("SessionsRefused")
        raise build_no_capacity_refusal("no VAD host takes sessions; try again")
    if not await gateway.reservations.acquire(session.ssrc, time.time() + RESERVATION_TTL_S):
        gateway.metrics.count("SessionsRefused")
        raise build_no_capacity_refusal("every ASR host has as many sessions as it takes; try again")
    lease = SocketLease(gateway.store, session.ssrc)
    await lease.acquire()
    return lease, find_source_address(host)
