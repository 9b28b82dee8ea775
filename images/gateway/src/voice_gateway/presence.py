"""``WS /v1/presence``: a caller's session whose audio is processed elsewhere.

An agent uses this socket if its language model accepts audio. The session counts as one of the caller's sessions, lasts
as long as its socket, and occupies no slot of the ASR hosts.
"""

import asyncio
import contextlib
import time

from redis.exceptions import RedisError
from starlette.websockets import WebSocket, WebSocketDisconnect

from voice_gateway.audio_socket import (
    LEASE_LOST,
    NORMAL_END,
    SERVICE_RESTART,
    SESSION_CHECK_INTERVAL_S,
    SESSION_CLOSED,
    CloseReason,
)
from voice_gateway.bearer import build_caller_headers, open_or_resume_session
from voice_gateway.gateway import Gateway
from voice_gateway.refusals import Refusal, build_store_unavailable_refusal
from voice_gateway.socket_lease import SocketLease
from voice_runtime import tasks
from voice_runtime.sessions import Session


async def serve_presence(websocket: WebSocket) -> None:
    """Keep a session open until the caller or the gateway ends the session."""
    gateway: Gateway = websocket.app.state.gateway
    try:
        gateway.check_connection_capacity()
        session, session_outlives_socket = await open_or_resume_session(gateway, websocket, {}, decoded_here=False)
        with contextlib.ExitStack() as resources:
            try:
                resources.enter_context(gateway.count_connection())
            except Refusal:
                if not session_outlives_socket:
                    await gateway.sessions.close(session)
                raise
            lease = SocketLease(gateway.store, session.ssrc)
            await lease.acquire()
            await _extend_expiry(gateway, session)
            await websocket.accept(headers=build_caller_headers(gateway, session))
            close = await _wait_for_close(gateway, websocket, session, lease)
            with contextlib.suppress(RedisError):
                if not session_outlives_socket:
                    await gateway.sessions.close(session)
                elif await lease.is_held():
                    await _extend_expiry(gateway, session)
            with contextlib.suppress(WebSocketDisconnect, RuntimeError):  # the caller may have disconnected first
                await websocket.close(close.code, close.reason)
    except Refusal as refusal:
        await websocket.send_denial_response(refusal.to_response())
    except RedisError:
        await websocket.send_denial_response(build_store_unavailable_refusal().to_response())


async def _extend_expiry(gateway: Gateway, session: Session) -> None:
    # The session always has an expiry, which is extended periodically, since a killed gateway cannot close the session.
    await gateway.sessions.start_grace_period(session, gateway.settings.reconnect_grace_s)


async def _wait_for_close(gateway: Gateway, websocket: WebSocket, session: Session, lease: SocketLease) -> CloseReason:
    async def wait_for_disconnect() -> CloseReason:
        with contextlib.suppress(WebSocketDisconnect, KeyError):
            while True:
                await websocket.receive_text()
        return NORMAL_END

    async def watch() -> CloseReason:
        while time.time() < session.expires_at:
            await asyncio.sleep(SESSION_CHECK_INTERVAL_S)
            with contextlib.suppress(RedisError):
                if not await lease.renew():
                    return LEASE_LOST
                if not await gateway.sessions.extend_grace_period(session, gateway.settings.reconnect_grace_s):
                    return SESSION_CLOSED
        return SERVICE_RESTART  # another session may follow

    async def wait_for_shutdown() -> CloseReason:
        await gateway.shutting_down.wait()
        return SERVICE_RESTART

    closing_tasks = [asyncio.create_task(each) for each in (wait_for_disconnect(), watch(), wait_for_shutdown())]
    try:
        done, _ = await asyncio.wait(closing_tasks, return_when=asyncio.FIRST_COMPLETED)
        return done.pop().result()
    finally:
        await tasks.cancel_tasks(closing_tasks)
