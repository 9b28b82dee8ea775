"""Stand-ins for the engines: a gateway, a language model and a voice, whose responses and times are scripted."""

import asyncio
import base64
import contextlib
import hashlib
import hmac
import json
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from itertools import takewhile
from typing import Any

import numpy as np
from starlette.applications import Starlette
from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from voice_blueprint.contract.session_api import CALLER_HEADER, PRESENCE_PATH, ROUTING_HEADER

TOLERANCE_S = 300
TRANSCRIBED = "conversation.item.input_audio_transcription"
SPEECH_RATE = 22050
"""A rate that no engine of OpenAI has."""


class Engines:
    """Attributes:
    finals: What the gateway hears in each session: text, and the place in the audio in ms that it reaches to.
    commits: Where in the audio they came, in ms.
    keys: What sessions were opened with.
    names: Callers by their keys, as the gateway names them; it tells no other ones apart.
    tools_key: Key of requests to the tools; without one they need no signature.
    present: Callers in a session that the language model hears.
    engine_keys: What each engine was asked with.
    content_types: Types of the bodies that the tools received.
    may_call: Cleared to delay a tool.
    may_answer: Cleared to delay the language model's response.
    speech_status: Status of the speech engine's responses.
    unspoken: Text that the speech engine rejects.
    refuses: Status that sessions are refused with.
    may_enter: Cleared to delay the gateway's acceptance of sessions.
    hears: Whether the language model wants to be asked aloud.
    heard: The audio that it was given, WAV.
    cache: The words of its last request: what the next one begins with is in its cache.
    may_tell: Cleared to keep back what was heard.
    answers: What the language model says, one after the other, and the same to the same prompt. At a word ``|`` it
        waits until something is spoken.
    answered: What it has said, by prompt.
    spoken_s: Audio of each sentence.
    """

    def __init__(self) -> None:
        self.port = 0
        self.finals: list[tuple[int, str]] = []
        self.answers: list[str] = []
        self.answered: dict[str, str] = {}
        self.spoken_s = 1.0
        self.speaks_after_s = 0.0
        self.asked: list[dict[str, Any]] = []
        self.sessions: list[str] = []
        self.spoken: list[dict[str, Any]] = []
        self.traces: defaultdict[str, list[str]] = defaultdict(list)
        self.taken_ms = 0.0
        self.told = 0
        self.told_of: dict[WebSocket, int] = {}
        self.commits: list[float] = []
        self.keys: list[str] = []
        self.names: dict[str, str] = {}
        self.tools_key = b""
        self.present = 0
        self.engine_keys: dict[str, str | None] = {}
        self.updates: list[dict[str, Any]] = []
        self.sockets: list[WebSocket] = []
        self.refuses = 0
        self.may_enter = asyncio.Event()
        self.may_enter.set()
        self.hears = False
        self.heard: list[bytes] = []
        self.cache: list[str] = []
        self.calls: list[dict[str, Any]] = []
        self.content_types: list[str | None] = []
        self.tool_result: Any = {"sky": "clear"}
        self.may_call = asyncio.Event()
        self.may_call.set()
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.speech_status = 200
        self.unspoken = ""
        self.moved = asyncio.Condition()
        self.may_tell = asyncio.Event()
        self.may_tell.set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                WebSocketRoute("/v1/realtime", self._hear),
                WebSocketRoute(PRESENCE_PATH, self._be_there),
                Route("/tools", self._tools, methods=["GET", "POST"]),
                Route("/v1/chat/completions", self._chat, methods=["POST"]),
                Route("/v1/audio/speech", self._speech, methods=["POST"]),
            ]
        )

    async def _hear(self, socket: WebSocket) -> None:
        """Handle the gateway's part of OpenAI's realtime transcription, with one item between two commits."""
        if not await self._lets_in(socket):
            return
        self.taken_ms = 0.0
        await self._say(socket, "session.created", session={})
        try:
            async for text in socket.iter_text():
                event = json.loads(text)
                match event["type"]:
                    case "session.update":
                        self.updates.append(event["session"])
                        await self._say(socket, "session.updated", session={})
                    case "input_audio_buffer.append":
                        async with self.moved:
                            self.taken_ms += len(base64.b64decode(event["audio"])) / 32
                            self.moved.notify_all()
                    case "input_audio_buffer.commit":
                        self.commits.append(self.taken_ms)
                        await self._complete(socket)
        except WebSocketDisconnect:
            pass

    async def _be_there(self, socket: WebSocket) -> None:
        """Handle the gateway's part of a session without audio."""
        if not await self._lets_in(socket):
            return
        self.present += 1
        with contextlib.suppress(WebSocketDisconnect):
            await socket.receive()
        self.present -= 1

    async def _lets_in(self, socket: WebSocket) -> bool:
        self._trace("gateway", socket)
        self.keys.append(socket.headers.get("Authorization", ""))
        await self.may_enter.wait()
        if self.refuses:
            await socket.send_denial_response(JSONResponse({"error": "busy", "detail": "full"}, self.refuses))
            return False
        name = self.names.get(self.keys[-1])
        await socket.accept(headers=[(CALLER_HEADER.encode(), name.encode())] if name else None)
        self.sockets.append(socket)
        return True

    async def _complete(self, socket: WebSocket) -> None:
        told = self.told_of.get(socket, 0)
        due = [text for end_ms, text in self.finals[told:] if end_ms <= self.taken_ms]
        self.told = self.told_of[socket] = told + len(due)
        if due:
            await self._say(socket, f"{TRANSCRIBED}.delta", item_id="i", content_index=0, delta=" ".join(due))
        await self._say(socket, f"{TRANSCRIBED}.completed", item_id="i", content_index=0, transcript=" ".join(due))

    async def _say(self, socket: WebSocket, kind: str, **fields: Any) -> None:
        await self.may_tell.wait()
        await socket.send_text(json.dumps({"type": kind, "event_id": "e", **fields}))

    async def taken(self, ms: float) -> None:
        """Wait until this amount of audio has arrived."""
        async with self.moved:
            await self.moved.wait_for(lambda: self.taken_ms >= ms)

    async def _chat(self, request: Request) -> Response:
        self._trace("chat", request)
        self.asked.append(await request.json())
        self.sessions.append(request.headers.get(ROUTING_HEADER, ""))
        newest = self.asked[-1]["messages"][-1]["content"]
        if _is_refused_by_voxtral(self.asked[-1]["messages"]):
            return JSONResponse(
                {"error": {"message": "System messages are not yet allowed when audio is present"}}, 400
            )
        if self.hears and isinstance(newest, list):
            [audio] = [part["input_audio"] for part in newest if part["type"] == "input_audio"]
            assert audio["format"] == "wav"
            self.heard.append(base64.b64decode(audio["data"]))
        prompt = json.dumps(self.asked[-1]["messages"])
        await self.may_answer.wait()
        if prompt not in self.answered:
            self.answered[prompt] = self.answers.pop(0)
        answer = self.answered[prompt]
        # A call is NAME(ARGUMENTS), after any text.
        begin, _, arguments = answer.partition("(") if answer.endswith("})") else (answer + " ", "", "")
        text, _, name = begin.rpartition(" ")
        function = {"index": 0, "id": "c", "function": {"name": name, "arguments": arguments.removesuffix(")")}}
        deltas: list[dict[str, Any]] = [{"content": f"{word} "} for word in text.split(" ")] if text else []
        deltas += [{"tool_calls": [function]}] if name else []
        spoken = len(self.spoken)
        words = json.dumps(self.asked[-1]["messages"]).split()
        tokens, cached = (
            len(words),
            sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(self.cache, words, strict=False))),
        )
        usage: dict[str, Any] = {"prompt_tokens": tokens, "completion_tokens": 1, "total_tokens": tokens + 1}
        usage |= {"prompt_tokens_details": {"cached_tokens": cached}}
        self.cache = words

        def chunk(**fields: Any) -> str:
            whole = {"id": "x", "object": "chat.completion.chunk", "created": 0, "model": "m", **fields}
            return f"data: {json.dumps(whole)}\n\n"

        async def chunks() -> AsyncIterator[str]:
            for each in deltas:
                if each.get("content") == "| ":
                    while len(self.spoken) == spoken:
                        await asyncio.sleep(0.001)
                    continue
                yield chunk(choices=[{"index": 0, "delta": each}])
            yield chunk(choices=[], usage=usage)
            yield "data: [DONE]\n\n"

        return StreamingResponse(chunks(), media_type="text/event-stream")

    async def _speech(self, request: Request) -> Response:
        self._trace("speech", request)
        self.spoken.append(await request.json())
        await asyncio.sleep(self.speaks_after_s)
        tone = np.sin(np.arange(int(self.spoken_s * SPEECH_RATE)) * 0.1) * 8000
        status = 503 if self.spoken[-1]["input"] == self.unspoken else self.speech_status
        return Response(tone.astype("<i2").tobytes(), status, media_type="audio/pcm")

    async def _tools(self, request: Request) -> Response:
        if self.tools_key and not await self._is_signed(request):
            return Response(status_code=401)
        self.content_types.append(request.headers.get("Content-Type"))
        if request.method == "GET":
            properties = {"city": {"type": "string"}}
            parameters = {"type": "object", "properties": properties, "required": ["city"]}
            return JSONResponse([{"name": "weather", "description": "Of a city.", "parameters": parameters}])
        self.calls.append(await request.json())
        await self.may_call.wait()
        return JSONResponse(self.tool_result)

    async def _is_signed(self, request: Request) -> bool:
        """Verify a request according to the specification of Standard Webhooks."""
        message, timestamp = (request.headers.get(f"webhook-{name}", "") for name in ("id", "timestamp"))
        if not timestamp.isdigit() or abs(int(timestamp) - time.time()) > TOLERANCE_S:
            return False
        signed = b".".join([message.encode(), timestamp.encode(), await request.body()])
        version, _, signature = request.headers.get("webhook-signature", "").partition(",")
        expected = hmac.new(self.tools_key, signed, hashlib.sha256).digest()
        return version == "v1" and hmac.compare_digest(base64.b64decode(signature), expected)

    def _trace(self, engine: str, request: HTTPConnection) -> None:
        self.traces[engine].append(request.headers["traceparent"])
        self.engine_keys[engine] = request.headers.get("Authorization")


def _is_refused_by_voxtral(messages: list[dict[str, Any]]) -> bool:
    contents = (message.get("content") for message in messages)
    parts = [part for content in contents if isinstance(content, list) for part in content]
    return any(part["type"] == "input_audio" for part in parts) and messages[0]["role"] == "system"
