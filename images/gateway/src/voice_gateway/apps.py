"""The two applications: the session API, to which API Gateway forwards requests, and the public media API."""

from collections.abc import Sequence

from obstore.exceptions import BaseError
from redis.exceptions import RedisError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route, WebSocketRoute

from voice_blueprint.contract.openapi import OPENAPI_PATH, build_openapi_document
from voice_blueprint.contract.session_api import (
    AUDIO_PATH,
    CLIENT_SECRETS_PATH,
    EVENTS_PATH,
    EXPOSED_HEADERS,
    HEALTH_PATH,
    LISTEN_PATH,
    LIVENESS_PATH,
    MODEL_PATH,
    MODELS_PATH,
    PRESENCE_PATH,
    REALTIME_PATH,
    REQUEST_HEADERS,
    SESSION_PATH,
    SESSIONS_PATH,
    TRANSCRIPT_PATH,
    TRANSCRIPTIONS_PATH,
)
from voice_gateway import client_secrets, transcript_routes
from voice_gateway.audio_route import receive_audio
from voice_gateway.event_stream import stream_events
from voice_gateway.gateway import Gateway
from voice_gateway.listen import DeepgramSocket
from voice_gateway.listen_file import transcribe_upload
from voice_gateway.presence import serve_presence
from voice_gateway.realtime import RealtimeSocket
from voice_gateway.refusals import (
    handle_archive_error,
    handle_client_disconnect,
    handle_http_exception,
    handle_store_error,
)
from voice_gateway.session_routes import close_session, create_session
from voice_gateway.transcriptions import get_model, list_models, transcribe
from voice_runtime.lingering_close import LingeringCloseMiddleware
from voice_runtime.origins import OriginCheckMiddleware

CLIENT_ROUTES = (
    WebSocketRoute(REALTIME_PATH, RealtimeSocket.run),
    WebSocketRoute(LISTEN_PATH, DeepgramSocket.run),
    WebSocketRoute(PRESENCE_PATH, serve_presence),
    Route(TRANSCRIPTIONS_PATH, transcribe, methods=["POST"]),
    Route(LISTEN_PATH, transcribe_upload, methods=["POST"]),
    Route(MODELS_PATH, list_models, methods=["GET"]),
    Route(MODEL_PATH, get_model, methods=["GET"]),
    Route(CLIENT_SECRETS_PATH, client_secrets.create_client_secret, methods=["POST"]),
)
"""Routes for agents and for clients of other speech services.

Both ports serve these routes, so that clients inside the network need only one address.
"""


async def get_health(request: Request) -> Response:
    """Respond with 200 while this process can accept callers."""
    gateway: Gateway = request.app.state.gateway
    if gateway.accepts_callers:
        return PlainTextResponse("ok\n")
    reason = "draining" if gateway.draining.is_set() else "the state store does not answer"
    return PlainTextResponse(f"{reason}\n", 503)


async def get_liveness(request: Request) -> Response:
    """Respond with 200 while the event loop runs and replacing this process would not help.

    All gateways share one store, so a failover does not require a replacement. However, if a deployment's new tasks
    cannot reach the store, the deployment must fail before it replaces other tasks. If only one task has lost its
    connection to the store, that task is replaced.
    """
    gateway: Gateway = request.app.state.gateway
    failure = gateway.fleet.store_failure_reason
    return PlainTextResponse(f"{failure}\n", 503) if failure else PlainTextResponse("ok\n")


async def describe_api(_: Request) -> Response:
    """Respond with the API's OpenAPI description."""
    return JSONResponse(build_openapi_document())


def create_session_api(gateway: Gateway) -> Starlette:
    origins = gateway.settings.allowed_origins
    cross_origin = Middleware(
        CORSMiddleware,
        allow_origins=origins,
        allow_methods=["GET", "POST", "DELETE"],
        allow_headers=REQUEST_HEADERS,
        expose_headers=EXPOSED_HEADERS,
    )
    routes = [
        Route(SESSIONS_PATH, create_session, methods=["POST"]),
        Route(SESSION_PATH, close_session, methods=["DELETE"]),
        Route(EVENTS_PATH, stream_events, methods=["GET"]),
        Route(TRANSCRIPT_PATH, transcript_routes.read_transcript, methods=["GET"]),
        Route(TRANSCRIPT_PATH, transcript_routes.delete_transcript, methods=["DELETE"]),
    ]
    return _create_app(gateway, [*routes, *CLIENT_ROUTES], [cross_origin] if origins else [])


def create_media_api(gateway: Gateway) -> Starlette:
    """Return the application for the public listener. Every request requires a token or a key."""
    return _create_app(gateway, [WebSocketRoute(AUDIO_PATH, receive_audio), *CLIENT_ROUTES], [])


def _create_origin_middleware(gateway: Gateway) -> list[Middleware]:
    """Return the origin check for a gateway without authentication.

    Without this check, any web page that is opened inside the network could act as a caller.
    """
    settings = gateway.settings
    if settings.authorizer != "none":
        return []
    return [Middleware(OriginCheckMiddleware, settings.allowed_origins, same_origin=True)]


def _create_app(gateway: Gateway, routes: Sequence[BaseRoute], middleware: Sequence[Middleware]) -> Starlette:
    app = Starlette(
        routes=[
            *routes,
            Route(HEALTH_PATH, get_health, methods=["GET"]),
            Route(LIVENESS_PATH, get_liveness, methods=["GET"]),
            Route(OPENAPI_PATH, describe_api, methods=["GET"]),
        ],
        middleware=[Middleware(LingeringCloseMiddleware), *_create_origin_middleware(gateway), *middleware],
        exception_handlers={
            HTTPException: handle_http_exception,
            ClientDisconnect: handle_client_disconnect,
            RedisError: handle_store_error,
            BaseError: handle_archive_error,
        },
    )
    app.state.gateway = gateway
    return app
