"""Lets audio sockets in: ``wss://.../v1/sessions/{id}/audio``.

Browsers cannot set headers on a WebSocket, and an address is written to logs on its way; so the token is offered as a
subprotocol beside the one that is spoken: ``new WebSocket(url, ["voice.v1", token])``.
"""

import logging
import time

from redis.exceptions import RedisError
from starlette.websockets import WebSocket

from voice_gateway.audio_socket import AudioSocket
from voice_gateway.gateway import Gateway
from voice_gateway.places import HELD_S
from voice_gateway.refusals import Refusal, no_capacity, store_away, unknown_session
from voice_gateway.rtp import address_towards, first_frame, timestamp_of
from voice_gateway.socket_lease import SocketLease
from voice_runtime.sessions import Session, SessionKind

SUBPROTOCOL = "voice.v1"

log = logging.getLogger(__name__)


async def audio(websocket: WebSocket) -> None:
    """Take a session's audio until it ends."""
    gateway: Gateway = websocket.app.state.gateway
    websocket.state.asked_at = time.monotonic()
    try:
        with gateway.connection():
            session, lease, address = await _admit(gateway, websocket)
            frame = first_frame()
            await gateway.sessions.take_audio_from(session, address, timestamp_of(frame))
            await gateway.sessions.resume(session)
            await websocket.accept(SUBPROTOCOL)
            await AudioSocket(gateway, websocket, session, lease, frame).serve()
    except Refusal as refusal:
        await websocket.send_denial_response(refusal.response())
    except RedisError:
        await websocket.send_denial_response(store_away().response())


async def _admit(gateway: Gateway, websocket: WebSocket) -> tuple[Session, SocketLease, str]:
    offered: list[str] = websocket.scope["subprotocols"]
    if SUBPROTOCOL not in offered:
        raise Refusal(400, "bad request", f"offer the subprotocols {SUBPROTOCOL} and the session's token")
    token = next((each for each in offered if each != SUBPROTOCOL), None)
    session = await gateway.session_of(websocket.path_params["id"], token)
    if session.kind is not SessionKind.GATEWAY:
        raise Refusal(403, "wrong transport", "this session was opened for SRTP; open one with transport websocket")
    if session.is_over:
        raise unknown_session()
    lease, address = await let_in(gateway, session)
    return session, lease, address


async def let_in(gateway: Gateway, session: Session) -> tuple[SocketLease, str]:
    """Return a socket's right to a session, which has a place from then on, and the address that its audio comes from.

    Raises:
        Refusal: No host has room.
    """
    host = gateway.fleet.vad_host()
    if host is None:
        gateway.metrics.count("SessionsRefused")
        raise no_capacity("no VAD host takes sessions; try again")
    if not await gateway.places.take(session.ssrc, time.time() + HELD_S):
        gateway.metrics.count("SessionsRefused")
        raise no_capacity("every ASR host has as many sessions as it takes; try again")
    lease = SocketLease(gateway.store, session.ssrc)
    await lease.take()
    return lease, address_towards(host)
