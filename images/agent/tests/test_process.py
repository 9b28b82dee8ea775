"""The agent as a process that is killed or stopped during a turn; the caller speaks in real time."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
import websockets
from pipecat.frames.protobufs import frames_pb2
from redis.asyncio import Redis
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from images.agent.tests.conftest import serving, settings_of, speech
from images.agent.tests.engines import Engines
from images.conftest import BUSY_TIMEOUT_S, INHERITED_ENVIRONMENT, StoreServer, until
from voice_agent.conversation import LAST_TURN_TIMEOUT_S
from voice_blueprint.aws.edge import AGENT_DRAIN_TIMEOUT_S, FARGATE_STOP_TIMEOUT_S
from voice_constructs.azure.kubernetes.pods import PRE_STOP_S, STOP_MARGIN_S
from voice_ops.demo.agent.caller import Caller
from voice_sandbox.loopback import find_free_port

SPOKEN_S = 2.0
SAYS = """
from loguru import logger
from voice_agent import __main__ as program

async def serve(*_):
    for level in ("DEBUG", "INFO", "WARNING", "ERROR"):
        logger.patch(lambda record: record.update(name="voice_agent.__main__")).log(level, "my name is")

program.serve = serve
program.main()
"""


def environment_of(engines: Engines, store: StoreServer, port: int, **more: Any) -> dict[str, str]:
    usual = {"drain_timeout_s": 10, "unheard_within_s": 10, "final_within_s": 10}
    settings = settings_of(engines, port, **{**usual, **more})
    values: dict[str, Any] = settings.model_dump() | {"token_key": settings.token_key.get_secret_value()}
    of_store = {"host": "127.0.0.1", "port": store.port, "user": "default", "tls": "off"}
    own = {f"VOICE_{name}".upper(): str(value) for name, value in values.items() if value is not None}
    shared = {f"VOICE_VALKEY_{name}".upper(): str(value) for name, value in of_store.items()}
    quiet = {"ORT_DISABLE_TELEMETRY": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    return {**INHERITED_ENVIRONMENT, **quiet, **own, **shared}


@contextlib.asynccontextmanager
async def running(
    engines: Engines, store: StoreServer, port: int = 0, **more: Any
) -> AsyncIterator[tuple[str, subprocess.Popen[bytes]]]:
    port = port or find_free_port()
    environment = environment_of(engines, store, port, **more)
    address = environment["VOICE_BIND_ADDRESS"]
    process = subprocess.Popen([sys.executable, "-m", "voice_agent"], env=environment)
    try:
        async with httpx2.AsyncClient() as client:

            async def is_healthy() -> bool:
                with contextlib.suppress(httpx2.HTTPError):
                    return (await client.get(f"http://{address}:{port}/healthz")).is_success
                return False

            while not await is_healthy():
                assert process.poll() is None
        yield f"ws://{address}:{port}/v1/conversations", process
    finally:
        process.kill()
        process.wait()


async def said(store: Redis, conversation: str) -> list[str]:
    return [json.loads(each)["content"] for each in await store.lrange(f"conversation:{conversation}", 0, -1)]


@pytest.mark.nightly  # test_conversation.py covers the same within one process
async def test_a_call_continues_at_another_agent_after_a_kill(
    engines: Engines, store: Redis, store_server: StoreServer
) -> None:
    engines.finals, engines.spoken_s = [(0, "First?")], 1.0
    engines.answers = ["One.", second := "The second agent plays this answer again."]
    async with running(engines, store_server) as (url, process), Caller(url) as caller:
        await caller.ask_question(speech(SPOKEN_S), lambda: has(store, caller.conversation, 2))
        engines.finals.append((0, "Second?"))
        engines.spoken_s = 30.0
        caller.queue_speech(speech(SPOKEN_S))
        await caller.wait_for_audio(0.5)
        process.kill()
        assert await caller.wait_closed() == 1006
    engines.spoken_s = 1.0
    async with running(engines, store_server) as (url, _):
        token = {"X-Voice-Token": caller.token}
        async with Caller(f"{url}/{caller.conversation}", token) as again:
            await again.wait_for_audio(engines.spoken_s)
            await until_said(store, caller.conversation, ["First?", "One.", "Second?", second])
    told = [each["content"] for each in engines.asked[-1]["messages"][1:]]
    assert told == ["First?", "One.", "Second?"], "the question without an answer was asked again"


@pytest.mark.nightly
async def test_a_stopping_agent_finishes_its_turn(engines: Engines, store: Redis, store_server: StoreServer) -> None:
    engines.finals, engines.answers, engines.spoken_s = [(0, "First?")], ["The answer to its end."], 2.0
    async with running(engines, store_server) as (url, process), Caller(url) as caller:
        caller.queue_speech(speech(SPOKEN_S))
        await caller.wait_for_audio(0.1)
        process.send_signal(signal.SIGTERM)
        await caller.wait_for_audio(engines.spoken_s - 0.1)
        with pytest.raises((websockets.InvalidStatus, ConnectionError)):
            await websockets.connect(url)
        assert await caller.wait_closed() == 1012
        assert process.wait(BUSY_TIMEOUT_S) == 0
    assert await said(store, caller.conversation) == ["First?", "The answer to its end."]


@dataclass(frozen=True)
class Stop:
    """How the platform stops an agent, seconds.

    Attributes:
        pre_stop_s: Time before SIGTERM, in which callers may still be routed to it.
        drain_s: Its configured drain timeout.
        kill_after_s: Time from SIGTERM to SIGKILL.
    """

    pre_stop_s: float
    drain_s: float
    kill_after_s: float

    async def carry_out(self, process: subprocess.Popen[bytes]) -> int:
        await asyncio.sleep(self.pre_stop_s)
        process.terminate()
        try:
            return await asyncio.to_thread(process.wait, self.kill_after_s)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()


ECS = Stop(0, AGENT_DRAIN_TIMEOUT_S, FARGATE_STOP_TIMEOUT_S)
KUBERNETES = Stop(PRE_STOP_S, LAST_TURN_TIMEOUT_S, LAST_TURN_TIMEOUT_S + STOP_MARGIN_S)
"""With a drain timeout that only leaves time for a last turn."""


@pytest.mark.nightly
@pytest.mark.parametrize("stop", [ECS, KUBERNETES], ids=["ecs", "kubernetes"])
async def test_stopping_the_agent_completes_its_turns(
    stop: Stop, engines: Engines, store: Redis, store_server: StoreServer
) -> None:
    """A conversation continues as long as permitted, and a question at the last moment is answered completely."""
    engines.finals, engines.spoken_s = [(0, "Late?")], 8.0
    engines.answers = ["Not too late.", "The answer to its end."]
    more: dict[str, Any] = {"drain_timeout_s": stop.drain_s, "conversations": 2}
    async with running(engines, store_server, **more) as (url, process), Caller(url) as caller:
        until_told_s = stop.pre_stop_s + stop.drain_s - LAST_TURN_TIMEOUT_S
        begin = asyncio.get_running_loop().time()
        stopping = asyncio.create_task(stop.carry_out(process))
        if stop.pre_stop_s:
            async with Caller(url) as late:
                late.queue_speech(speech(SPOKEN_S))
                await late.wait_for_audio(engines.spoken_s - 0.1)
                await until_said(store, late.conversation, ["Late?", "Not too late."])
        else:
            engines.answers.pop(0)
        engines.finals.append((0, "First?"))
        await asyncio.sleep(until_told_s - 2 * SPOKEN_S - (asyncio.get_running_loop().time() - begin))
        caller.queue_speech(speech(SPOKEN_S))
        await caller.wait_for_audio(engines.spoken_s - 0.1)
        assert await caller.wait_closed() == 1012
        assert await stopping == 0, "it was killed"
    assert (await said(store, caller.conversation))[-1] == "The answer to its end."


async def test_an_interrupted_process_ends_its_calls_and_reveals_nothing(
    engines: Engines, store_server: StoreServer, tmp_path: Path
) -> None:
    """Ctrl-C stops it as SIGTERM does."""
    protected: list[dict[str, Any]] = []

    async def task(_: Request) -> JSONResponse:
        return JSONResponse({"Revision": "1"})

    async def protection(request: Request) -> JSONResponse:
        protected.append(await request.json())
        return JSONResponse({"protection": {}})

    port, log = find_free_port(), tmp_path / "log"
    ecs = Starlette(routes=[Route("/task", task), Route("/task-protection/v1/state", protection, methods=["PUT"])])
    ecs_port = find_free_port()
    uris = dict.fromkeys(("ECS_AGENT_URI", "ECS_CONTAINER_METADATA_URI_V4"), f"http://127.0.0.1:{ecs_port}")
    async with serving(ecs, ecs_port):
        with log.open("w") as output:
            environment = environment_of(engines, store_server, port, drain_timeout_s=0, conversations=3) | uris
            process = subprocess.Popen(
                [sys.executable, "-m", "voice_agent"], env=environment, stdout=output, stderr=subprocess.STDOUT
            )
        url = f"ws://127.0.0.1:{port}/v1/conversations"
        try:
            async with httpx2.AsyncClient() as client, asyncio.timeout(BUSY_TIMEOUT_S):
                while True:
                    with contextlib.suppress(httpx2.HTTPError):
                        answer = await client.get(f"http://127.0.0.1:{port}/healthz")
                        break
                    assert process.poll() is None
            assert "server" not in answer.headers
            for size, code in ((64 * 1024, 1007), (64 * 1024 + 1, 1009)):
                async with websockets.connect(url) as socket, asyncio.timeout(BUSY_TIMEOUT_S):
                    await socket.recv()
                    await socket.send(bytes(size))
                    await socket.wait_closed()
                    assert socket.close_code == code
            async with websockets.connect(url) as socket, asyncio.timeout(BUSY_TIMEOUT_S):
                assert socket.response
                assert "Sec-WebSocket-Extensions" not in socket.response.headers
                conversation = frames_pb2.Frame.FromString(await socket.recv()).message.data  # type: ignore[attr-defined]
                while not protected or '"Conversations": 1' not in log.read_text():
                    await asyncio.sleep(0.1)
                process.send_signal(signal.SIGINT)
                await socket.wait_closed()
                assert socket.close_code == 1012
            assert await asyncio.to_thread(process.wait, BUSY_TIMEOUT_S) == 0
        finally:
            process.kill()
            process.wait()
    assert protected[0]["ProtectionEnabled"] is True
    said = log.read_text()
    assert json.loads(conversation)["token"] not in said
    assert "/healthz" not in said


def test_a_port_in_use_ends_the_process(engines: Engines, store_server: StoreServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        environment = environment_of(engines, store_server, find_free_port(), prometheus_port=other.getsockname()[1])
        ran = subprocess.run(
            [sys.executable, "-m", "voice_agent"], env=environment, stderr=subprocess.PIPE, check=False, text=True
        )
    assert ran.returncode == 1
    assert "the agent cannot start: " in ran.stderr


def test_pipecats_conversation_logs_are_suppressed(engines: Engines, store_server: StoreServer) -> None:
    """Its lines contain callers' speech and whole prompts."""
    ran = subprocess.run(
        [sys.executable, "-c", SAYS],
        env=environment_of(engines, store_server, find_free_port()),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=True,
        text=True,
    )
    assert '"where": "voice_agent.__main__' in ran.stdout
    assert "my name is" not in ran.stdout


async def has(store: Redis, conversation: str, count: int) -> bool:
    return len(await said(store, conversation)) == count


async def until_said(store: Redis, conversation: str, words: list[str]) -> None:
    found: list[str] = []
    while found != words:
        found = await said(store, conversation)
        await until(lambda: True)
