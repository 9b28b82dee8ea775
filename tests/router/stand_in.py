"""Simulates an engine for a router, in a separate process: python stand_in.py ADDRESS PORT NAME.

It behaves like vLLM: ``/health`` is always 200, and after SIGTERM new requests fail with 500 while requests in progress
complete (see tests/engines/test_one_engine.py).
"""

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

ADDRESS, PORT, NAME = sys.argv[1], int(sys.argv[2]), sys.argv[3]
stopping = asyncio.Event()
serving: set[object] = set()
"""Requests in progress."""


async def health(_: Request) -> Response:
    return PlainTextResponse("")


async def complete(request: Request) -> Response:
    """Respond after ``seconds``, completely or streamed word by word."""
    if stopping.is_set():
        return PlainTextResponse("cannot schedule new futures after shutdown", 500)
    serving.add(request)
    body = await request.body()
    asked = json.loads(body) if body.startswith(b"{") else {}
    seconds = asked.get("seconds", 0)
    answer = {"engine": NAME, "path": request.url.path, "bytes": len(body)}
    if asked.get("stream"):
        return StreamingResponse(_words(request, answer, seconds), media_type="text/event-stream")
    await asyncio.sleep(seconds)
    serving.discard(request)
    return JSONResponse(answer)


async def _words(request: Request, answer: dict[str, object], seconds: float) -> AsyncIterator[str]:
    for _ in range(5):
        yield f"data: {json.dumps(answer)}\n\n"
        await asyncio.sleep(seconds / 5)
    serving.discard(request)


async def realtime(socket: WebSocket) -> None:
    await socket.accept()
    async for text in socket.iter_text():
        await socket.send_text(f"{NAME} {text}")


async def main() -> None:
    """Serve until SIGTERM, and then until no request is in progress."""
    routes = [
        Route("/health", health),
        WebSocketRoute("/v1/realtime", realtime),
        Route("/{path:path}", complete, methods=["GET", "POST"]),
    ]
    server = uvicorn.Server(uvicorn.Config(Starlette(routes=routes), host=ADDRESS, port=PORT, log_level="warning"))
    task = asyncio.create_task(server.serve())
    await asyncio.sleep(0.2)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    await stopping.wait()
    while serving:
        await asyncio.sleep(0.05)
    server.should_exit = True
    await task


if __name__ == "__main__":
    asyncio.run(main())
