"""The port that says whether the engine can take load, and what it has counted."""

import contextlib
import socket
from collections.abc import Callable, Iterator
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from blueprint.contract.metrics import ENGINE_METRICS_PATH
from blueprint.contract.session_api import HEALTH_PATH


class HealthServer(uvicorn.Server):
    """Leaves signals to the process."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Do nothing."""
        yield


def listen(address: str, port: int) -> socket.socket:
    """Open the port.

    Raises:
        OSError: It is taken.
    """
    return socket.create_server((address, port))


def server(is_draining: Callable[[], bool], metrics: Callable[[], dict[str, Any]]) -> HealthServer:
    """Return a server that is to be given a listening socket."""

    async def health(_: Request) -> Response:
        return PlainTextResponse("draining", 503) if is_draining() else PlainTextResponse("ok")

    async def show(_: Request) -> Response:
        return JSONResponse(metrics())

    app = Starlette(routes=[Route(HEALTH_PATH, health), Route(ENGINE_METRICS_PATH, show)])
    return HealthServer(uvicorn.Config(app, log_config=None, access_log=False, lifespan="off"))
