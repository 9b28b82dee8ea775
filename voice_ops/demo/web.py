"""Web server for the pages of the demo."""

import threading
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from voice_ops.demo.services import LOOPBACK
from voice_sandbox.loopback import find_free_port

PAGE_FOLDER = Path(__file__).parent / "page"


class PageServer:
    """A web server that runs in a thread.

    Attributes:
        url: URL of the page.
    """

    def __init__(self) -> None:
        self._port = find_free_port()
        self.url = f"http://{LOOPBACK}:{self._port}"

    def start(self, **urls: str) -> None:
        """Serve the pages, which connect to the URL of a ``gateway`` or an ``agent``."""

        async def configuration(_: Request) -> JSONResponse:
            return JSONResponse(urls)

        routes = [Route("/config.json", configuration), Mount("/", StaticFiles(directory=PAGE_FOLDER, html=True))]
        config = uvicorn.Config(Starlette(routes=routes), host=LOOPBACK, port=self._port, log_level="warning")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join()
