"""The health port, which also serves the counters."""

import contextlib
import socket
from collections.abc import Callable, Iterator
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from voice_blueprint.contract.metrics import ENGINE_METRICS_PATH
from voice_blueprint.contract.session_api import HEALTH_PATH


class HealthServer(uvicorn.Server):
    """A server that leaves signal handling to the process."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signal handlers unchanged."""
        yield


def open_health_port(address: str, port: int) -> socket.socket:
    """Open the health port.

    Raises:
        OSError: The port is in use.
    """
    return socket.create_server((address, port))


def create_server(unready_reason: Callable[[], str], metrics: Callable[[], dict[str, Any]]) -> HealthServer:
    """Return a server for a listening socket.

    Args:
        unready_reason: Function that returns the reason why the engine is not ready, or an empty string.
        metrics: Function that returns the metrics.
    """

    async def get_health(_: Request) -> Response:
        problem = unready_reason()
        return PlainTextResponse(problem, 503) if problem else PlainTextResponse("ok")

    async def get_metrics(_: Request) -> Response:
        return JSONResponse(metrics())

    app = Starlette(routes=[Route(HEALTH_PATH, get_health), Route(ENGINE_METRICS_PATH, get_metrics)])
    return HealthServer(uvicorn.Config(app, log_config=None, access_log=False, lifespan="off"))
