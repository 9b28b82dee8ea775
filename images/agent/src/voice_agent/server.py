"""Runs the agent, which serves a limited number of conversations on a port, and shuts down gracefully."""

import asyncio
import contextlib
import logging
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Self

import httpx2
import uvicorn
from prometheus_client import start_http_server
from redis.asyncio import Redis
from redis.exceptions import RedisError
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocketDisconnect
from websockets.asyncio.client import ClientConnection

from voice_agent import tokens
from voice_agent.connections import (
    START_TIMEOUT_S,
    CallerConnection,
    CallerWebSocket,
    ProtobufConnection,
    RealtimeConnection,
)
from voice_agent.conversation import LAST_TURN_TIMEOUT_S, Conversation, Engines
from voice_agent.memory import ConversationHistory
from voice_agent.metrics import Metrics
from voice_agent.models import TurnModels
from voice_agent.refusals import NoFreeSlotError, RefusedError
from voice_agent.settings import AgentSettings
from voice_agent.siblings import (
    FORWARDER_HEADER,
    NO_FREE_SLOT_STATUS,
    RETRY_INTERVAL_S,
    ForwardableConnection,
    SiblingRouter,
)
from voice_agent.speech_synthesis import SPEECH_TIMEOUT_S
from voice_agent.speech_to_text import (
    CONNECT_TIMEOUT_S,
    GatewayClient,
    GatewaySTTService,
    PresenceConnection,
    read_caller_name,
)
from voice_agent.tools import CallerIdentity, Toolset
from voice_agent.trace import ConversationTracer, Trace
from voice_agent.twilio import TwilioConnection
from voice_agent.usage import Usage
from voice_blueprint.contract.metrics import STORAGE_RESOLUTION_S
from voice_blueprint.contract.network import Tier
from voice_blueprint.contract.session_api import HEALTH_PATH, LIVENESS_PATH, REALTIME_PATH
from voice_blueprint.contract.state import HOST_HEARTBEAT_INTERVAL_S
from voice_runtime import metrics, tasks
from voice_runtime.fair_admission import FairAdmissionController
from voice_runtime.http import KEEP_ALIVE_TIMEOUT_S, MAX_REQUEST_HEAD_BYTES, RequestHeadTimeoutProtocol
from voice_runtime.origins import OriginCheckMiddleware
from voice_runtime.protection import TaskProtection
from voice_runtime.store import StoreSettings, connect

CONVERSATIONS_PATH = "/v1/conversations"
CONVERSATION_PATH = "/v1/conversations/{id}"
TWILIO_PATH = "/v1/twilio"
MAX_MESSAGE_BYTES = 64 * 1024
STOP_TIMEOUT_S = 5
DRAIN_POLL_INTERVAL_S = 0.1
MAX_UNAUTHENTICATED_SOCKETS = 256
"""Maximum number of connections that the gateway has not authenticated yet. Each connection uses a few kilobytes."""
AUTHENTICATION_TIMEOUT_S = START_TIMEOUT_S + CONNECT_TIMEOUT_S
"""Maximum time for a telephone network's start message and the gateway's response."""

log = logging.getLogger(__name__)


class Agent:
    """State of an agent process.

    Attributes:
        draining: Whether new callers are refused.
        shutting_down: Whether remaining callers are asked to reconnect to another agent.
        unauthenticated: Connections of unauthenticated callers, which use no slots.
        conversation_count: Number of active conversations of this process.
        count_changed: Event that is set when ``conversation_count`` changes.
    """

    def __init__(self, settings: AgentSettings, store: Redis) -> None:
        self.settings = settings
        self.store = store
        self.metrics = Metrics(settings.conversations, metrics.Metrics(settings.deployment, settings.fleet))
        self.models = TurnModels(settings.incomplete_within_s)
        self.client = httpx2.AsyncClient(timeout=SPEECH_TIMEOUT_S)
        self.draining = asyncio.Event()
        self.shutting_down = asyncio.Event()
        self.siblings = SiblingRouter(settings, store)
        self.traces = ConversationTracer(settings.trace_collector, settings.traced_share, settings.deployment)
        self.unauthenticated = FairAdmissionController(MAX_UNAUTHENTICATED_SOCKETS, AUTHENTICATION_TIMEOUT_S)
        self.count_changed = asyncio.Event()
        self.conversation_count = 0

    @contextlib.contextmanager
    def reserve_slot(self) -> Iterator[None]:
        """Reserve a slot for a conversation.

        Raises:
            NoFreeSlotError: There is no free slot.
        """
        self.require_free_slot()
        self._add_conversations(1)
        try:
            yield
        finally:
            self._add_conversations(-1)

    def require_free_slot(self) -> None:
        """Raise an error if there is no free slot.

        Raises:
            NoFreeSlotError: There is no free slot.
        """
        if self.draining.is_set():
            raise NoFreeSlotError("draining", "this agent is stopping, and no other has a free slot; try again")
        if self.conversation_count >= self.settings.conversations:
            count = self.conversation_count
            detail = f"this agent holds {count} conversations, its maximum, and no other has a free slot; try again"
            raise NoFreeSlotError("busy", detail)

    def _add_conversations(self, count: int) -> None:
        self.conversation_count += count
        self.metrics.conversations.set(self.conversation_count)
        self.count_changed.set()

    async def serve_caller(self, caller_connection: CallerConnection) -> None:
        """Authenticate a caller and run a conversation, or forward the connection to a sibling.

        A refused caller gets an HTTP response instead of an open socket.
        """
        forwarder = self.siblings.parse_forwarder_address(caller_connection.socket.headers.get(FORWARDER_HEADER))
        try:
            # An agent without a free slot forwards the connection before any response.
            self.require_free_slot()
            async with await self._authenticate(caller_connection) as caller:
                with self.reserve_slot():
                    await self._run_conversation(caller_connection, caller, forwarder)
        except NoFreeSlotError as full:
            if forwarder and not caller_connection.is_open:
                await caller_connection.refuse(RefusedError(NO_FREE_SLOT_STATUS, full.error, str(full)))
            elif caller_connection.is_open or not await self._forward_to_sibling(caller_connection):
                await self._refuse(caller_connection, full)
        except RefusedError as refusal:
            await self._refuse(caller_connection, refusal)

    async def _authenticate(self, caller_connection: CallerConnection) -> "_Caller":
        """Authenticate a caller by opening a session at the gateway, and return the caller.

        Raises:
            RefusedError: The gateway grants no session, or the caller took too long.
        """
        try:
            async with self.unauthenticated.admit(caller_connection.source):
                await caller_connection.identify_caller()
                trace = self.traces.begin()
                await self._check_store()
                line = GatewayClient(self.settings, caller_connection.authorization, trace)
                opened = await line.open_session()
                try:
                    name = read_caller_name(opened)
                    conversation = caller_connection.resolve_conversation(name)
                    trace.set_conversation(conversation)
                    return _Caller(name, conversation, trace, line, opened)
                except RefusedError:
                    await opened.close()
                    raise
        except TimeoutError:
            raise RefusedError(503, "not authenticated", "the caller was not authenticated in time") from None

    async def _forward_to_sibling(self, caller_connection: CallerConnection) -> bool:
        connection: ForwardableConnection = caller_connection.socket.state.connection
        return await self.siblings.forward(connection, caller_connection.source)

    async def _refuse(self, caller_connection: CallerConnection, refusal: RefusedError) -> None:
        self.metrics.count_refusal(refusal.error)
        await caller_connection.refuse(refusal)

    def _create_transcription_source(
        self, gateway_client: GatewayClient, connection: ClientConnection
    ) -> GatewaySTTService | PresenceConnection:
        if self.settings.listening == "audio":
            return PresenceConnection(gateway_client, connection)
        return GatewaySTTService(gateway_client, connection, self.settings)

    async def _run_conversation(self, caller_connection: CallerConnection, caller: "_Caller", forwarder: str) -> None:
        settings, conversation = self.settings, caller.conversation
        tools = Toolset(settings, self.client, caller.trace, CallerIdentity(conversation, caller.name))
        known_tools = await tools.fetch_schema()
        usage = Usage()
        engines = Engines(
            self.client,
            caller.trace,
            self._create_transcription_source(caller.gateway_client, caller.connection),
            tools,
            known_tools,
            usage,
        )
        token = tokens.create_token(
            settings.token_key.get_secret_value(), conversation, settings.token_ttl_s, caller.name
        )
        with contextlib.suppress(WebSocketDisconnect):  # the caller disconnected before the socket was accepted
            await caller_connection.accept(conversation, token)
            memory = ConversationHistory(self.store, conversation, settings.token_ttl_s)
            holding = Conversation(settings, self.models, self.metrics, memory, engines)
            try:
                await holding.run(caller_connection, partial(self._wait_for_stop, forwarder))
            finally:
                usage.log_usage(caller.name, conversation)
                with contextlib.suppress(RedisError):  # the error has been logged
                    await usage.add_to_daily_usage(self.store, caller.name)

    async def _wait_for_stop(self, forwarder: str) -> None:
        """Wait until this process or the forwarding agent stops."""
        while not self.shutting_down.is_set() and not (
            forwarder and await self.siblings.has_forwarder_stopped(forwarder)
        ):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.shutting_down.wait(), RETRY_INTERVAL_S if forwarder else None)

    async def _check_store(self) -> None:
        try:
            await self.store.ping()
        except RedisError:
            raise RefusedError(503, "state store away", "the state store does not answer; try again") from None


@dataclass(frozen=True)
class _Caller:
    """An authenticated caller.

    Attributes:
        name: Name of the caller; empty if the gateway does not distinguish callers.
        connection: Gateway connection of the caller's session. The connection is closed when this context exits.
    """

    name: str
    conversation: str
    trace: Trace
    gateway_client: GatewayClient
    connection: ClientConnection

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.connection.close()


class _ConversationApp:
    """An ASGI application that serves a protocol. Starlette would pass its own WebSocket class to a plain function."""

    def __init__(self, agent: Agent, connection_type: type[CallerConnection]) -> None:
        self._agent = agent
        self._connection_type = connection_type

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._agent.serve_caller(
            self._connection_type(CallerWebSocket(scope, receive, send), self._agent.settings)
        )


def create_application(agent: Agent) -> Starlette:
    """Return the application for the agent's port."""

    async def health(_: Request) -> Response:
        return PlainTextResponse("draining\n", 503) if agent.draining.is_set() else PlainTextResponse("ok\n")

    async def liveness(_: Request) -> Response:
        return PlainTextResponse("ok\n")

    return Starlette(
        routes=[
            WebSocketRoute(CONVERSATIONS_PATH, _ConversationApp(agent, ProtobufConnection)),
            WebSocketRoute(CONVERSATION_PATH, _ConversationApp(agent, ProtobufConnection)),
            WebSocketRoute(REALTIME_PATH, _ConversationApp(agent, RealtimeConnection)),
            WebSocketRoute(TWILIO_PATH, _ConversationApp(agent, TwilioConnection)),
            Route(HEALTH_PATH, health),
            Route(LIVENESS_PATH, liveness),
        ],
        middleware=[Middleware(OriginCheckMiddleware)],
    )


class _Server(uvicorn.Server):
    """A server that does not handle signals, so that the process can let conversations end first."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve(settings: AgentSettings, store_settings: StoreSettings) -> None:
    """Run until a signal requests the shutdown, and then until all conversations are over or the timeout has expired.

    Raises:
        OSError: A port is in use, or a password file cannot be read.
    """
    agent = Agent(settings, connect(store_settings))
    if settings.prometheus_port is not None:
        start_http_server(settings.prometheus_port, addr=settings.bind_address, registry=agent.metrics.registry)
    server = _Server(
        uvicorn.Config(
            create_application(agent),
            host=settings.bind_address,
            port=settings.http_port,
            http=RequestHeadTimeoutProtocol.with_connection_limit(),
            h11_max_incomplete_event_size=MAX_REQUEST_HEAD_BYTES,
            timeout_keep_alive=KEEP_ALIVE_TIMEOUT_S,
            ws=ForwardableConnection,
            ws_max_size=MAX_MESSAGE_BYTES,
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
    draining, telling, announcing = (
        asyncio.create_task(each(agent)) for each in (drain, publish_metrics, announce_slots)
    )
    # Connections that a sibling serves through this process count as well.
    protection = TaskProtection(
        agent.store, Tier.AGENT, lambda: bool(agent.conversation_count or agent.siblings.forwarded_count)
    )
    protecting = asyncio.create_task(protection.run())
    await asyncio.wait((serving, draining), return_when=asyncio.FIRST_COMPLETED)
    server.should_exit = True
    await serving
    agent.shutting_down.set()
    agent.count_changed.set()
    await announcing
    await tasks.cancel_tasks((draining, telling, protecting, *tasks.list_other_tasks()))
    agent.metrics.flush(agent.conversation_count)
    await agent.client.aclose()
    await agent.store.aclose()
    await asyncio.to_thread(agent.traces.close)
    log.info("stopped")


async def publish_metrics(agent: Agent) -> None:
    """Publish the metrics once per second."""
    while True:
        agent.metrics.flush(agent.conversation_count)
        await asyncio.sleep(STORAGE_RESOLUTION_S)


async def announce_slots(agent: Agent) -> None:
    """Announce free slots to the other agents once per second and after each change.

    Announce the shutdown at the end.
    """
    while not agent.shutting_down.is_set():
        agent.count_changed.clear()
        with contextlib.suppress(RedisError, OSError):  # in the meantime, the other agents forward nothing to this one
            await agent.siblings.send_heartbeat(agent.conversation_count, draining=agent.draining.is_set())
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(agent.count_changed.wait(), HOST_HEARTBEAT_INTERVAL_S)
    with contextlib.suppress(RedisError):
        await agent.siblings.deregister()


async def drain(agent: Agent) -> None:
    """Wait for the stop signal, and then for conversations to end.

    Between two turns, the remaining callers are asked to reconnect to another agent. The end of the drain time is
    reserved for the last turn. Conversations that a sibling serves through this process count as well, and the sibling
    informs their callers.
    """
    await agent.draining.wait()
    log.info(
        "draining",
        extra={"fields": {"conversations": agent.conversation_count, "handed": agent.siblings.forwarded_count}},
    )
    last_s = min(LAST_TURN_TIMEOUT_S, agent.settings.drain_timeout_s)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(_wait_until_closed(agent), agent.settings.drain_timeout_s - last_s)
    agent.shutting_down.set()
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(_wait_until_closed(agent), last_s + STOP_TIMEOUT_S)


async def _wait_until_closed(agent: Agent) -> None:
    while agent.conversation_count or agent.siblings.forwarded_count:
        await asyncio.sleep(DRAIN_POLL_INTERVAL_S)
