"""The process: a port, a bounded number of conversations, and an orderly end."""

import asyncio
import contextlib
import logging
import secrets
import signal
from collections.abc import Iterator
from functools import partial

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
from websockets.asyncio.client import ClientConnection

from blueprint.contract.metrics import STORAGE_RESOLUTION_S
from blueprint.contract.session_api import HEALTH_PATH, REALTIME_PATH
from blueprint.contract.state import HOST_HEARTBEAT_S
from voice_agent import tokens
from voice_agent.conversation import LAST_TURN_S, Conversation, Engines
from voice_agent.entrances import Entrance, ProtobufEntrance, RealtimeEntrance, Socket, TwilioEntrance
from voice_agent.hearing import Hearing, Line, Presence
from voice_agent.memory import Memory
from voice_agent.metrics import Metrics
from voice_agent.models import Models
from voice_agent.refusals import FullError, RefusedError
from voice_agent.settings import AgentSettings
from voice_agent.siblings import HEADER, LOOK_S, NO_ROOM, Connection, Siblings
from voice_agent.speaking import SPEECH_TIMEOUT_S
from voice_agent.tools import Tools
from voice_agent.trace import Traces
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
        held: Conversations that this process holds.
        changed: Set when ``held`` is another number.
    """

    def __init__(self, settings: AgentSettings, store: Redis) -> None:
        self.settings = settings
        self.store = store
        self.metrics = Metrics(settings.conversations, metrics.Metrics(settings.deployment, settings.fleet))
        self.models = Models(settings.incomplete_within_s)
        self.client = httpx2.AsyncClient(timeout=SPEECH_TIMEOUT_S)
        self.draining = asyncio.Event()
        self.leaving = asyncio.Event()
        self.siblings = Siblings(settings, store)
        self.traces = Traces(settings.trace_collector, settings.traced_share, settings.deployment)
        self.changed = asyncio.Event()
        self.held = 0

    @contextlib.contextmanager
    def slot(self) -> Iterator[None]:
        """Hold a slot for a conversation.

        Raises:
            FullError: There is none.
        """
        if self.draining.is_set():
            raise FullError("draining", "this agent is stopping, and no other has room; try again")
        if self.held >= self.settings.conversations:
            detail = (
                f"this agent holds {self.held} conversations, as many as it takes, and no other has room; try again"
            )
            raise FullError("busy", detail)
        self._hold_more(1)
        try:
            yield
        finally:
            self._hold_more(-1)

    def _hold_more(self, count: int) -> None:
        self.held += count
        self.metrics.conversations.set(self.held)
        self.changed.set()

    async def talk(self, entrance: Entrance) -> None:
        """Let a caller in, and hold a conversation, or have a sibling hold it.

        Who is refused has an HTTP answer, and never an open socket.
        """
        giver = self.siblings.giver(entrance.socket.headers.get(HEADER))
        try:
            with self.slot():
                await entrance.begin()
                conversation = self._conversation(entrance)
                trace = self.traces.begin(conversation)
                await self._is_there()
                tools = Tools(self.settings.tools_url, self.client, trace, conversation)
                known = await tools.read()
                line = Line(self.settings, entrance.key, trace)
                async with await line.open() as opened:
                    hearing = self._heard(line, opened)
                    engines = Engines(self.client, trace, hearing, tools, known)
                    await self._hold(entrance, conversation, engines, giver)
        except FullError as full:
            if giver:
                await entrance.refuse(RefusedError(NO_ROOM, full.error, str(full)))
            elif not await self._hand_over(entrance):
                await self._refuse(entrance, full)
        except RefusedError as refusal:
            await self._refuse(entrance, refusal)

    async def _hand_over(self, entrance: Entrance) -> bool:
        connection: Connection = entrance.socket.state.connection
        return await self.siblings.take(connection)

    async def _refuse(self, entrance: Entrance, refusal: RefusedError) -> None:
        self.metrics.refused(refusal.error)
        await entrance.refuse(refusal)

    def _heard(self, line: Line, opened: ClientConnection) -> Hearing | Presence:
        if self.settings.listening == "audio":
            return Presence(line, opened)
        return Hearing(line, opened, self.settings)

    async def _hold(self, entrance: Entrance, conversation: str, engines: Engines, giver: str) -> None:
        settings = self.settings
        token = tokens.make(settings.token_key.get_secret_value(), conversation, settings.token_ttl_s)
        with contextlib.suppress(WebSocketDisconnect):  # it is gone before it is in
            await entrance.accept(conversation, token)
            memory = Memory(self.store, conversation, settings.token_ttl_s)
            holding = Conversation(settings, self.models, self.metrics, memory, engines)
            await holding.hold(entrance, partial(self._has_to_end, giver))

    async def _has_to_end(self, giver: str) -> None:
        """Wait until this process goes, or the one that a caller's bytes come through."""
        while not self.leaving.is_set() and not (giver and await self.siblings.has_left(giver)):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.leaving.wait(), LOOK_S if giver else None)

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
            ws=Connection,
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
    draining, telling, announcing = (asyncio.create_task(each(agent)) for each in (drain, tell, announce))
    await asyncio.wait((serving, draining), return_when=asyncio.FIRST_COMPLETED)
    server.should_exit = True
    await serving
    agent.leaving.set()
    agent.changed.set()
    await announcing
    await tasks.end((draining, telling, *tasks.others()))
    agent.metrics.flush(agent.held)
    await agent.client.aclose()
    await agent.store.aclose()
    await asyncio.to_thread(agent.traces.close)
    log.info("stopped")


async def tell(agent: Agent) -> None:
    """Publish what is measured, once a second."""
    while True:
        agent.metrics.flush(agent.held)
        await asyncio.sleep(STORAGE_RESOLUTION_S)


async def announce(agent: Agent) -> None:
    """Tell the other agents what room there is, once a second and whenever it is another, and the end of this one."""
    while not agent.leaving.is_set():
        agent.changed.clear()
        with contextlib.suppress(RedisError, OSError):  # they hand over nothing to this one meanwhile
            await agent.siblings.tell(agent.held, draining=agent.draining.is_set())
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(agent.changed.wait(), HOST_HEARTBEAT_S)
    with contextlib.suppress(RedisError):
        await agent.siblings.leave()


async def drain(agent: Agent) -> None:
    """Wait for the signal, then until conversations have ended; whoever is left is told to come back elsewhere.

    It is told so between two turns, for the last of which the end of the time is kept. Conversations that a sibling
    holds through this process count, and the sibling tells them.
    """
    await agent.draining.wait()
    log.info("draining", extra={"fields": {"conversations": agent.held, "handed": agent.siblings.handed}})
    last_s = min(LAST_TURN_S, agent.settings.drain_timeout_s)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(_all_gone(agent), agent.settings.drain_timeout_s - last_s)
    agent.leaving.set()
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(_all_gone(agent), last_s + STOP_TIMEOUT_S)


async def _all_gone(agent: Agent) -> None:
    while agent.held or agent.siblings.handed:
        await asyncio.sleep(DRAIN_LOOK_S)
