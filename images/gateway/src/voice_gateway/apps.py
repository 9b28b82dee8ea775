"""The two applications: the session API, for those that API Gateway lets in, and the audio socket, for everybody."""

from collections.abc import Sequence

from redis.exceptions import RedisError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route, WebSocketRoute

from blueprint.contract.session_api import (
    AUDIO_PATH,
    EVENTS_PATH,
    EXPOSED_HEADERS,
    HEALTH_PATH,
    REQUEST_HEADERS,
    SESSION_PATH,
    SESSIONS_PATH,
)
from voice_gateway.audio_route import audio
from voice_gateway.event_stream import events
from voice_gateway.gateway import Gateway
from voice_gateway.refusals import answer_http_exception, answer_store_error
from voice_gateway.session_routes import close, create


async def health(request: Request) -> Response:
    """Answer 200 while this process can take callers."""
    gateway: Gateway = request.app.state.gateway
    if gateway.takes_callers:
        return PlainTextResponse("ok\n")
    reason = "draining" if gateway.draining.is_set() else "the state store does not answer"
    return PlainTextResponse(f"{reason}\n", 503)


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
    return _app(gateway, routes, [cross_origin] if origins else [])


def media_api(gateway: Gateway) -> Starlette:
    """Return the audio socket."""
    return _app(gateway, [WebSocketRoute(AUDIO_PATH, audio)], [])


def _app(gateway: Gateway, routes: Sequence[BaseRoute], middleware: Sequence[Middleware]) -> Starlette:
    app = Starlette(
        routes=[*routes, Route(HEALTH_PATH, health, methods=["GET"])],
        middleware=middleware,
        exception_handlers={HTTPException: answer_http_exception, RedisError: answer_store_error},
    )
    app.state.gateway = gateway
    return app
