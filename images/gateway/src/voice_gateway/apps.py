"""The two applications: the session API, for those that API Gateway lets in, and the audio socket, for everybody."""

from collections.abc import Sequence

from redis.exceptions import RedisError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route, WebSocketRoute

from blueprint.contract.openapi import OPENAPI_PATH, document
from blueprint.contract.session_api import (
    AUDIO_PATH,
    EVENTS_PATH,
    EXPOSED_HEADERS,
    HEALTH_PATH,
    LISTEN_PATH,
    MODELS_PATH,
    PRESENCE_PATH,
    REALTIME_PATH,
    REQUEST_HEADERS,
    SESSION_PATH,
    SESSIONS_PATH,
    TRANSCRIPTIONS_PATH,
)
from voice_gateway.audio_route import audio
from voice_gateway.event_stream import events
from voice_gateway.gateway import Gateway
from voice_gateway.listen import ListenSocket
from voice_gateway.presence import presence
from voice_gateway.realtime import RealtimeSocket
from voice_gateway.refusals import answer_http_exception, answer_store_error
from voice_gateway.session_routes import close, create
from voice_gateway.transcriptions import models, transcribe

FOR_CLIENTS = (
    WebSocketRoute(REALTIME_PATH, RealtimeSocket.run),
    WebSocketRoute(LISTEN_PATH, ListenSocket.run),
    WebSocketRoute(PRESENCE_PATH, presence),
    Route(TRANSCRIPTIONS_PATH, transcribe, methods=["POST"]),
    Route(MODELS_PATH, models, methods=["GET"]),
)
"""What other services' clients and agents know; on both ports, so that a program of this network has one address."""


async def health(request: Request) -> Response:
    """Answer 200 while this process can take callers."""
    gateway: Gateway = request.app.state.gateway
    if gateway.takes_callers:
        return PlainTextResponse("ok\n")
    reason = "draining" if gateway.draining.is_set() else "the state store does not answer"
    return PlainTextResponse(f"{reason}\n", 503)


async def describe(_: Request) -> Response:
    """Answer with the API's own description."""
    return JSONResponse(document())


def session_api(gateway: Gateway) -> Starlette:
    origins = gateway.settings.allowed_origins
    cross_origin = Middleware(
        CORSMiddleware,
        allow_origins=origins,
        allow_methods=["GET", "POST", "DELETE"],
        allow_headers=REQUEST_HEADERS,
        expose_headers=EXPOSED_HEADERS,
    )
    routes = [
        Route(SESSIONS_PATH, create, methods=["POST"]),
        Route(SESSION_PATH, close, methods=["DELETE"]),
        Route(EVENTS_PATH, events, methods=["GET"]),
    ]
    return _app(gateway, [*routes, *FOR_CLIENTS], [cross_origin] if origins else [])


def media_api(gateway: Gateway) -> Starlette:
    """Return what the public listener leads to: each of it asks for a token or a key."""
    return _app(gateway, [WebSocketRoute(AUDIO_PATH, audio), *FOR_CLIENTS], [])


def _app(gateway: Gateway, routes: Sequence[BaseRoute], middleware: Sequence[Middleware]) -> Starlette:
    app = Starlette(
        routes=[
            *routes,
            Route(HEALTH_PATH, health, methods=["GET"]),
            Route(OPENAPI_PATH, describe, methods=["GET"]),
        ],
        middleware=middleware,
        exception_handlers={HTTPException: answer_http_exception, RedisError: answer_store_error},
    )
    app.state.gateway = gateway
    return app
