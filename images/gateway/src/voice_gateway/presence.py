"""``WS /v1/presence``: a caller's session whose audio is processed elsewhere.

An agent whose language model accepts audio uses it.

It counts as one of the caller's sessions, lasts as long as its socket, and occupies no slot of the ASR hosts.
"""

import asyncio
import contextlib
import time

from redis.exceptions import RedisError
from starlette.websockets import WebSocket, WebSocketDisconnect

from voice_gateway.audio_socket import CLOSED_ELSEWHERE, ENDED, LOST_LEASE, RESTART, WATCH_EVERY_S, Close
from voice_gateway.bearer import caller_headers, session_of
from voice_gateway.gateway import Gateway
from voice_gateway.refusals import Refusal, store_unavailable
from voice_gateway.socket_lease import SocketLease
from voice_runtime.sessions import Session, SessionState


async def presence(websocket: WebSocket) -> None:
    """Keep a session open until either side ends it."""
    gateway: Gateway = websocket.app.state.gateway
    try:
        gateway.check_connections()
        session, outlives = await session_of(gateway, websocket, {}, decoded_here=False)
        with contextlib.ExitStack() as counted:
            try:
                counted.enter_context(gateway.connection())
            except Refusal:
                if not outlives:
                    await gateway.sessions.close(session)
                raise
            lease = SocketLease(gateway.store, session.ssrc)
            await lease.take()
            await _stay(gateway, session)
            await websocket.accept(headers=caller_headers(gateway, session))
            close = await _ending(gateway, websocket, session, lease)
            with contextlib.suppress(RedisError):
                if not outlives:
                    await gateway.sessions.close(session)
                elif await lease.is_held():
                    await _stay(gateway, session)
            with contextlib.suppress(WebSocketDisconnect, RuntimeError):  # the caller may have disconnected first
                await websocket.close(close.code, close.reason)
    except Refusal as refusal:
        await websocket.send_denial_response(refusal.response())
    except RedisError:
        await websocket.send_denial_response(store_unavailable().response())


async def _stay(gateway: Gateway, session: Session) -> None:
    # It has an expiry from the start, which is extended, since a gateway that is killed cannot close it.
    await gateway.sessions.lapse(session, gateway.settings.reconnect_grace_s)


async def _ending(gateway: Gateway, websocket: WebSocket, session: Session, lease: SocketLease) -> Close:
    async def gone() -> Close:
        with contextlib.suppress(WebSocketDisconnect, KeyError):
            while True:
                await websocket.receive_text()
        return ENDED

    async def watch() -> Close:
        while time.time() < session.expires_at:
            await asyncio.sleep(WATCH_EVERY_S)
            with contextlib.suppress(RedisError):
                if not await lease.renew():
                    return LOST_LEASE
                found = await gateway.sessions.read(session.ssrc)
                if found is None or found.state is SessionState.CLOSED:
                    return CLOSED_ELSEWHERE
                await _stay(gateway, session)
        return RESTART  # another session may follow

    async def leave() -> Close:
        await gateway.leaving.wait()
        return RESTART

    endings = [asyncio.create_task(each) for each in (gone(), watch(), leave())]
    try:
        done, _ = await asyncio.wait(endings, return_when=asyncio.FIRST_COMPLETED)
        return done.pop().result()
    finally:
        for task in endings:
            task.cancel()
