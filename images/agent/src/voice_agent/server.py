"""The process: a port, a bounded number of conversations, and an orderly end."""

import asyncio
import contextlib
import logging
import secrets
import signal
from collections.abc import AsyncIterator, Iterator

import httpx2
import uvicorn
from prometheus_client import start_http_server
from redis.asyncio import Redis
from redis.exceptions import RedisError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocketDisconnect

from blueprint.contract.metrics import STORAGE_RESOLUTION_S
from blueprint.contract.session_api import HEALTH_PATH, REALTIME_PATH
from voice_agent import tokens
from voice_agent.conversation import LAST_TURN_S, Conversation, Engines
from voice_agent.entrances import Entrance, ProtobufEntrance, RealtimeEntrance, Socket, TwilioEntrance
from voice_agent.hearing import Hearing, Line
from voice_agent.memory import Memory
from voice_agent.metrics import Metrics
from voice_agent.models import Models
from voice_agent.refusals import RefusedError
from voice_agent.settings import AgentSettings
from voice_agent.speaking import SPEECH_TIMEOUT_S
from voice_agent.tools import Tools
from voice_agent.trace import Trace
from voice_runtime import metrics, tasks
from voice_runtime.store import StoreSettings, connect

NEW_PATH = "/v1/conversations"
PATH = "/v1/conversations/{id}"
TWILIO_PATH = "/v1/twilio"
MESSAGE_BYTES = 64 * 1024
STOP_TIMEOUT_S = 5
DRAIN_LOOK_S = 0.1

log = logging.getLogger(__name__)


class Agent:
    """State of the process.

    Attributes:
        draining: Nobody new is taken.
        leaving: Who is still here is told to come back elsewhere.
    """

    def __init__(self, settings: AgentSettings, store: Redis) -> None:
        self.settings = settings
        self.store = store
        self.metrics = Metrics(settings.conversations, metrics.Metrics(settings.deployment, settings.fleet))
        self.models = Models(settings.incomplete_within_s)
        self.client = httpx2.AsyncClient(timeout=SPEECH_TIMEOUT_S)
        self.draining = asyncio.Event()
        self.leaving = asyncio.Event()
        self.held = 0

    @contextlib.contextmanager
    def slot(self) -> Iterator[None]:
        """Hold a slot for a conversation.

        Raises:
            RefusedError: There is none.
        """
        if self.draining.is_set():
            raise RefusedError(503, "draining", "this agent is stopping; try again, and another answers")
        if self.held >= self.settings.conversations:
            raise RefusedError(
                503, "busy", f"this agent holds {self.held} conversations, as many as it takes; try again"
            )
        self.held += 1
        self.metrics.conversations.set(self.held)
        try:
            yield
        finally:
            self.held -= 1
            self.metrics.conversations.set(self.held)

    async def talk(self, entrance: Entrance) -> None:
        """Let a caller in, and hold a conversation. Who is refused has an HTTP answer, and never an open socket."""
        try:
            with self.slot():
                await entrance.begin()
                conversation = self._conversation(entrance)
                trace = Trace(conversation)
                await self._is_there()
                tools = Tools(self.settings.tools_url, self.client, trace, conversation)
                known = await tools.read()
                line = Line(self.settings, entrance.key, trace)
                async with self._heard(line) as hearing:
                    engines = Engines(self.client, trace, hearing, tools, known)
                    await self._hold(entrance, conversation, engines)
        except RefusedError as refusal:
            self.metrics.refused(refusal.error)
            await entrance.refuse(refusal)

    @contextlib.asynccontextmanager
    async def _heard(self, line: Line) -> AsyncIterator[Hearing | None]:
        """Let the gateway judge the caller, and hear it unless the language model does."""
        if self.settings.listening == "audio":
            await line.ask(self.client)
            yield None
        else:
            async with await line.open() as opened:
                yield Hearing(line, opened, self.settings)

    async def _hold(self, entrance: Entrance, conversation: str, engines: Engines) -> None:
        settings = self.settings
        token = tokens.make(settings.token_key.get_secret_value(), conversation, settings.token_ttl_s)
        with contextlib.suppress(WebSocketDisconnect):  # it is gone before it is in
            await entrance.accept(conversation, token)
            memory = Memory(self.store, conversation, settings.token_ttl_s)
            await Conversation(settings, self.models, self.metrics, memory, engines).hold(entrance, self.leaving)

    def _conversation(self, entrance: Entrance) -> str:
        key, named = self.settings.token_key.get_secret_value(), entrance.conversation
        if named and entrance.needs_token and not tokens.opens(key, entrance.token, named):
            raise RefusedError(401, "invalid token", "the token does not open this conversation; begin a new one")
        return named or secrets.token_hex(16)

    async def _is_there(self) -> None:
        try:
            await self.store.ping()
        except RedisError:
            raise RefusedError(503, "state store away", "the state store does not answer; try again") from None


class _Talk:
    """A way in as an ASGI application: a function would be handed a socket of Starlette's own."""

    def __init__(self, agent: Agent, entrance: type[Entrance]) -> None:
        self._agent = agent
        self._entrance = entrance

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._agent.talk(self._entrance(Socket(scope, receive, send)))


def application(agent: Agent) -> Starlette:
    """Return the agent's port."""

    async def health(_: Request) -> Response:
        return PlainTextResponse("draining\n", 503) if agent.draining.is_set() else PlainTextResponse("ok\n")

    return Starlette(
        routes=[
            WebSocketRoute(NEW_PATH, _Talk(agent, ProtobufEntrance)),
            WebSocketRoute(PATH, _Talk(agent, ProtobufEntrance)),
            WebSocketRoute(REALTIME_PATH, _Talk(agent, RealtimeEntrance)),
            WebSocketRoute(TWILIO_PATH, _Talk(agent, TwilioEntrance)),
            Route(HEALTH_PATH, health),
        ]
    )


class _Server(uvicorn.Server):
    """A server that leaves signals to the process, which lets conversations end first."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve(settings: AgentSettings, store_settings: StoreSettings) -> None:
    """Run until a signal asks for the end and every conversation is over, or its time is up.

    Raises:
        OSError: A port is taken, or the file of a password cannot be read.
    """
    agent = Agent(settings, connect(store_settings))
    if settings.prometheus_port is not None:
        start_http_server(settings.prometheus_port, addr=settings.bind_address, registry=agent.metrics.registry)
    server = _Server(
        uvicorn.Config(
            application(agent),
            host=settings.bind_address,
            port=settings.http_port,
            ws="websockets-sansio",
            ws_max_size=MESSAGE_BYTES,
            ws_per_message_deflate=False,
            timeout_graceful_shutdown=STOP_TIMEOUT_S,
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
        )
    )
    for each in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(each, agent.draining.set)
    serving = asyncio.create_task(server.serve())
    draining, telling = asyncio.create_task(drain(agent)), asyncio.create_task(tell(agent))
    await asyncio.wait((serving, draining), return_when=asyncio.FIRST_COMPLETED)
    server.should_exit = True
    await serving
    await tasks.end((draining, telling, *tasks.others()))
    agent.metrics.flush(agent.held)
    await agent.client.aclose()
    await agent.store.aclose()
    log.info("stopped")


async def tell(agent: Agent) -> None:
    """Publish what is measured, once a second."""
    while True:
        agent.metrics.flush(agent.held)
        await asyncio.sleep(STORAGE_RESOLUTION_S)


async def drain(agent: Agent) -> None:
    """Wait for the signal, then until conversations have ended; whoever is left is told to come back elsewhere.

    It is told so between two turns, for the last of which the end of the time is kept.
    """
    await agent.draining.wait()
    log.info("draining", extra={"fields": {"conversations": agent.held}})
    last_s = min(LAST_TURN_S, agent.settings.drain_timeout_s)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(_all_gone(agent), agent.settings.drain_timeout_s - last_s)
    agent.leaving.set()
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(_all_gone(agent), last_s + STOP_TIMEOUT_S)


async def _all_gone(agent: Agent) -> None:
    while agent.held:
        await asyncio.sleep(DRAIN_LOOK_S)
