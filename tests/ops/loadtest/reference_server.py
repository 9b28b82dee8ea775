"""Implements the four APIs with the timing that each request specifies, and records its actions.

Runs as a separate process, so that it does not share an interpreter with the tested client: ``python -m
tests.ops.loadtest.reference_server [--api-key KEY] [--slower SECONDS]``. It prints its port. Its clock is the client's:
CLOCK_MONOTONIC is common to the machine.
"""

import argparse
import asyncio
import base64
import json
import socket
from collections.abc import AsyncIterator
from contextlib import suppress
from time import perf_counter
from typing import Any

import uvicorn
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

MODEL = "reference"
SAMPLE_RATE_HZ = 24_000


class Timing(BaseModel):
    """Timing and faults that a request specifies."""

    first_s: float = 0.3
    """Time from the request to the first chunk."""
    gap_s: float = 0.2
    """Interval between chunks."""
    pieces: int = 4
    audio_s: float = 0.4
    """Duration of audio in each chunk."""
    final_s: float = 0.3
    """Time from the end of a streamed upload to its final transcript."""
    slow_every: int = 0
    """Number of requests after which one uses ``slow_s`` instead of ``first_s``."""
    slow_s: float = 1.0
    starve_every: int = 0
    """Number of requests after which the third chunk of one is late by ``starve_s``."""
    starve_s: float = 1.0
    fail_every: int = 0
    """Number of requests after which one is rejected with 503."""
    break_every: int = 0
    """Number of streams after which one ends after the first chunk."""
    garbage: bool = False
    """Whether the first event is invalid JSON."""
    whole: bool = False
    """Whether a transcription is returned as one JSON document instead of a stream."""


class Reference:
    def __init__(self, api_key: str | None, slower_s: float) -> None:
        self.api_key = api_key
        self.slower_s = slower_s
        self.records: list[dict[str, Any]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.stall: dict[str, float] = {}
        self.tasks: set[asyncio.Task[None]] = set()

    def begin(self, asked: dict[str, Any], request_id: str) -> tuple[Timing, dict[str, Any], int]:
        record: dict[str, Any] = {"id": request_id, "received_s": perf_counter(), "sent_s": []}
        self.records.append(record)
        return Timing.model_validate(asked), record, len(self.records)

    def refusal(self, model: object, authorization: str | None) -> tuple[int, str] | None:
        if self.api_key and authorization != f"Bearer {self.api_key}":
            return 401, "Incorrect API key provided"
        if model != MODEL:
            return 404, f"The model `{model}` does not exist."
        return None

    async def answer(self, request: Request, asked: dict[str, Any]) -> Response:
        refusal = self.refusal(asked.get("model"), request.headers.get("authorization"))
        if refusal:
            return JSONResponse({"error": {"message": refusal[1]}}, refusal[0])
        timing, record, number = self.begin(asked, request.headers["x-request-id"])
        if timing.fail_every and number % timing.fail_every == 0:
            return JSONResponse({"error": {"message": "overloaded"}}, 503)
        if timing.whole:
            await self.pause(timing.first_s, record)
            return JSONResponse({"text": "it was so"})
        kind = request.url.path.rsplit("/", 1)[-1]
        media = "audio/pcm" if kind == "speech" and asked.get("stream_format") == "audio" else "text/event-stream"
        return StreamingResponse(self.pieces(kind, media, timing, record, number), media_type=media)

    async def pieces(
        self, kind: str, media: str, timing: Timing, record: dict[str, Any], number: int
    ) -> AsyncIterator[bytes]:
        slow = timing.slow_every and number % timing.slow_every == 0
        starved = timing.starve_every and number % timing.starve_every == 0
        for piece in range(timing.pieces):
            pause = (timing.slow_s if slow else timing.first_s) + self.slower_s if piece == 0 else timing.gap_s
            await self.pause(pause + (timing.starve_s if starved and piece == 2 else 0), record)
            if timing.garbage:
                yield b"data: {no json\n\n"
            yield pcm(timing.audio_s) if media == "audio/pcm" else event(kind, timing)
            if timing.break_every and number % timing.break_every == 0:
                raise ConnectionAbortedError
        if kind == "completions":
            yield sse({"choices": [], "usage": {"completion_tokens": 2 * timing.pieces}})
        if media != "audio/pcm":
            yield b"data: [DONE]\n\n"

    async def pause(self, seconds: float, record: dict[str, Any]) -> None:
        await asyncio.sleep(seconds)
        await self.gate.wait()
        record["sent_s"].append(perf_counter())

    async def json_api(self, request: Request) -> Response:
        return await self.answer(request, await request.json())

    async def form_api(self, request: Request) -> Response:
        async with request.form() as form:
            upload = form["file"]
            assert not isinstance(upload, str)
            assert (await upload.read())[:4] == b"RIFF"
            return await self.answer(request, dict(form))

    async def realtime(self, websocket: WebSocket) -> None:
        refusal = self.refusal(MODEL, websocket.headers.get("authorization"))
        if refusal:
            await websocket.send_denial_response(JSONResponse({"error": refusal[1]}, refusal[0]))
            return
        await websocket.accept()
        await websocket.send_json({"type": "session.created", "id": "sess-1"})
        with suppress(WebSocketDisconnect):
            await self.listen(websocket)

    async def listen(self, websocket: WebSocket) -> None:
        session = await websocket.receive_json()
        assert session["type"] == "session.update"
        if session["model"] != MODEL:
            await websocket.send_json({"type": "error", "error": "no such model", "code": "model_not_found"})
            return
        timing, record, number = self.begin(session, websocket.headers["x-request-id"])
        assert await websocket.receive_json() == {"type": "input_audio_buffer.commit"}
        record |= {"frames_s": [], "bytes": 0}
        partials = asyncio.create_task(self.partials(websocket, timing, record))
        while (message := await websocket.receive_json())["type"] == "input_audio_buffer.append":
            record["frames_s"].append(perf_counter())
            record["bytes"] += len(base64.b64decode(message["audio"]))
            if timing.break_every and number % timing.break_every == 0:
                partials.cancel()
                await websocket.close(1011)
                return
        assert message == {"type": "input_audio_buffer.commit", "final": True}
        record["final_commit_s"] = perf_counter()
        await partials
        await asyncio.sleep(max(0.0, record["final_commit_s"] + timing.final_s - perf_counter()))
        record["done_s"] = perf_counter()
        await websocket.send_json({"type": "transcription.done", "text": "so", "usage": {"completion_tokens": 9}})

    async def partials(self, websocket: WebSocket, timing: Timing, record: dict[str, Any]) -> None:
        for piece in range(timing.pieces):
            await self.pause(timing.gap_s if piece else timing.first_s, record)
            await websocket.send_json({"type": "transcription.delta", "delta": " so"})

    async def models(self, request: Request) -> Response:
        refusal = self.refusal(MODEL, request.headers.get("authorization"))
        if refusal:
            return JSONResponse({"error": {"message": refusal[1]}}, refusal[0])
        return JSONResponse({"object": "list", "data": [{"id": MODEL}]})

    async def report(self, request: Request) -> Response:
        found = {"records": self.records, "stall": self.stall}
        if request.method == "DELETE":
            self.records, self.stall = [], {}
        return JSONResponse(found)

    async def plan_stall(self, request: Request) -> Response:
        asked = await request.json()

        async def stall() -> None:
            await asyncio.sleep(asked["after_s"])
            self.gate.clear()
            self.stall["begin_s"] = perf_counter()
            await asyncio.sleep(asked["for_s"])
            self.stall["end_s"] = perf_counter()
            self.gate.set()

        task = asyncio.create_task(stall())
        self.tasks.add(task)
        return JSONResponse({})

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/v1/chat/completions", self.json_api, methods=["POST"]),
                Route("/v1/audio/speech", self.json_api, methods=["POST"]),
                Route("/v1/audio/transcriptions", self.form_api, methods=["POST"]),
                WebSocketRoute("/v1/realtime", self.realtime),
                Route("/v1/models", self.models),
                Route("/records", self.report, methods=["GET", "DELETE"]),
                Route("/stall", self.plan_stall, methods=["POST"]),
            ]
        )


def pcm(seconds: float) -> bytes:
    return bytes(2 * round(seconds * SAMPLE_RATE_HZ))


def sse(value: object) -> bytes:
    return f"data: {json.dumps(value)}\n\n".encode()


def event(kind: str, timing: Timing) -> bytes:
    if kind == "speech":
        audio = base64.b64encode(pcm(timing.audio_s)).decode()
        return b"event: speech.audio.delta\n" + sse({"type": "speech.audio.delta", "audio": audio})
    return sse({"choices": [{"index": 0, "delta": {"content": " so"}}]})


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--api-key")
    parser.add_argument("--slower", type=float, default=0.0)
    arguments = parser.parse_args()
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    app = Reference(arguments.api_key, arguments.slower).app()
    uvicorn.Server(uvicorn.Config(app, log_level="critical", ws="websockets-sansio")).run(sockets=[listener])


if __name__ == "__main__":
    main()
