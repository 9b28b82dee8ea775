"""Forwards a caller's connection from a full agent to a sibling with a free slot, before any response.

The registry lists the candidates, but only the sibling decides whether it has a free slot, so that no slot is assigned
twice. The agent forwards bytes: the request with an additional header, and then all data in both directions. The
sibling verifies the key and the token, and owns the lease and the history.
"""

import asyncio
import contextlib
import random
from typing import cast
from urllib.parse import urlsplit

from redis.asyncio import Redis
from redis.exceptions import RedisError
from websockets.http11 import Request

from voice_agent import tokens
from voice_agent.settings import ALL_INTERFACES, AgentSettings
from voice_blueprint.contract.network import Tier
from voice_runtime import tasks
from voice_runtime.fair_admission import FairAdmissionController
from voice_runtime.hosts import Host, HostKind, HostRegistry
from voice_runtime.websocket import CLIENT_READ_TIMEOUT_S, PacedWebSocket

FORWARDER_HEADER = "X-Voice-Handed-Over"
"""Header with the address of the forwarding agent, and a token for this address. Without a valid token, the header is
ignored."""
NO_FREE_SLOT_STATUS = 421
"""Status with which a sibling without a free slot responds to an agent (RFC 9110, "misdirected"). Callers never receive
this status."""
CONNECT_TIMEOUT_S = 1.0
RESPONSE_TIMEOUT_S = 15.0
"""Maximum time until a sibling responds. It exceeds the gateway's timeout, since a sibling first queries the
gateway."""
DISCOVERY_TIMEOUT_S = 20.0
"""Maximum time for finding a sibling. The timeout of a client is often shorter."""
MAX_FORWARDED_CONNECTIONS_PER_SLOT = 4
"""Maximum number of forwarded connections per conversation slot of a process. All of them together use a tenth of the
resources of the process's own conversations (docs/decisions/18-agents-as-one-tier.md)."""
MAX_UNAUTHENTICATED_CONNECTIONS = 256
"""Maximum number of forwarded connections whose callers the sibling may not have authenticated yet."""
AUTHENTICATION_TIMEOUT_S = 20.0
"""Time within which a sibling closes unauthenticated connections."""
TOKEN_TTL_S = 60
RETRY_INTERVAL_S = 1.0

_random = random.SystemRandom()


class ForwardableConnection(PacedWebSocket):
    """A caller's connection, which can be forwarded before any response."""

    request_bytes = b""
    is_forwarded = False
    """Whether a sibling responds to the request."""

    def data_received(self, data: bytes) -> None:
        """Store the bytes of the request, and pass all data to uvicorn."""
        self.request_bytes = self.request_bytes or data
        super().data_received(data)

    def handle_connect(self, event: Request) -> None:
        """Pass the connection to the application."""
        super().handle_connect(event)
        if not self.handshake_complete:
            self.scope["state"]["connection"] = self

    def forward_to(self, endpoint: "_ForwardedEndpoint") -> None:
        """Forward all further bytes to the sibling. From then on, uvicorn does not respond."""
        self.connections.discard(self)
        self.handshake_complete = True
        self.is_forwarded = True
        self.stop_unread_timeout()
        self.transport.set_protocol(endpoint)


class _ForwardedEndpoint(asyncio.Protocol):
    """An endpoint of a forwarded connection. Received data is sent to the other endpoint."""

    def __init__(self) -> None:
        self.response: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.ended = asyncio.Event()
        self.other_transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self.other_transport:
            self.other_transport.write(data)
        else:
            self.transport.pause_reading()
            self.response.set_result(data)

    def pause_writing(self) -> None:
        if self.other_transport:
            self.other_transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other_transport:
            self.other_transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended.set()
        if self.other_transport:
            self.other_transport.close()
        elif not self.response.done():
            self.response.set_exception(exc or ConnectionResetError())


class SiblingRouter:
    """The other agents in the deployment, and the connections that this agent forwards to them.

    Attributes:
        forwarded_count: Number of connections that a sibling serves through this process.
    """

    def __init__(self, settings: AgentSettings, store: Redis) -> None:
        self._settings = settings
        self._registry = HostRegistry(store, Tier.AGENT)
        self._key = settings.token_key.get_secret_value()
        self._address = "" if settings.bind_address == ALL_INTERFACES else settings.bind_address
        self._unauthenticated = FairAdmissionController(
            MAX_UNAUTHENTICATED_CONNECTIONS, DISCOVERY_TIMEOUT_S + 2 * AUTHENTICATION_TIMEOUT_S
        )
        self.forwarded_count = self._authenticated_count = 0

    async def send_heartbeat(self, conversations: int, *, draining: bool) -> None:
        """Announce the number of free slots to the other agents.

        Raises:
            OSError: The gateway's name cannot be resolved, so this process's own address is unknown.
            RedisError: The store does not respond.
        """
        slots, address = self._settings.conversations, await self._find_own_address()
        await self._registry.send_heartbeat(
            Host(address, HostKind.AGENT, address, slots - conversations, draining, slots)
        )

    async def deregister(self) -> None:
        """Announce the shutdown of this process, which ends the connections that it forwards."""
        await self._registry.remove(self._address)

    def parse_forwarder_address(self, header: str | None) -> str:
        """Return the forwarding agent's address from a request's header, or an empty string for a caller's request."""
        address, _, token = (header or "").partition(" ")
        return (
            address
            if tokens.verify_conversation_token(self._key, token, _build_token_subject(address)) is not None
            else ""
        )

    async def has_forwarder_stopped(self, forwarder: str) -> bool:
        """Return True if a forwarding agent has announced its shutdown. Return False while the store is unavailable."""
        try:
            return not await self._registry.is_registered(forwarder)
        except RedisError:
            return False

    async def forward(self, connection: ForwardableConnection, source: str) -> bool:
        """Forward a connection to a sibling with a free slot until the connection ends.

        Return True if a sibling has accepted the connection.

        Args:
            source: Address of the client. Until the sibling has authenticated the caller, sources compete for capacity.
        """
        if (
            self._authenticated_count >= MAX_FORWARDED_CONNECTIONS_PER_SLOT * self._settings.conversations
            or not self._address
        ):
            return False
        self.forwarded_count += 1
        connection.transport.pause_reading()
        try:
            async with self._unauthenticated.admit(source):
                sibling, answer = await asyncio.wait_for(
                    self._find_sibling(connection.request_bytes), DISCOVERY_TIMEOUT_S
                )
                forwarding = asyncio.create_task(_forward_bytes(connection, sibling, answer))
                try:
                    await asyncio.wait({forwarding}, timeout=AUTHENTICATION_TIMEOUT_S)
                except BaseException:
                    await tasks.cancel_tasks([forwarding])
                    raise
        except (LookupError, TimeoutError, RedisError):
            connection.transport.resume_reading()
            return connection.is_forwarded
        else:
            self._authenticated_count += 1
            try:
                await forwarding
            finally:
                self._authenticated_count -= 1
            return True
        finally:
            self.forwarded_count -= 1

    async def _find_sibling(self, request: bytes) -> tuple[_ForwardedEndpoint, bytes]:
        """Return the first sibling that accepts a request, and the sibling's response.

        Raises:
            LookupError: No sibling accepts the request.
        """
        line, rest = request.split(b"\r\n", 1)
        token = tokens.create_token(self._key, _build_token_subject(self._address), TOKEN_TTL_S)
        signed = b"\r\n".join([line, f"{FORWARDER_HEADER}: {self._address} {token}".encode(), rest])
        for host in await self._list_free_siblings():
            with contextlib.suppress(OSError, TimeoutError):
                side = await self._connect(host)
                side.transport.write(signed)
                try:
                    async with asyncio.timeout(RESPONSE_TIMEOUT_S):
                        answer = await side.response
                    if not answer.startswith(f"HTTP/1.1 {NO_FREE_SLOT_STATUS} ".encode()):
                        return side, answer
                except BaseException:
                    side.transport.close()
                    raise
                side.transport.close()
        raise LookupError

    async def _connect(self, host: Host) -> _ForwardedEndpoint:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            loop = asyncio.get_running_loop()
            _, side = await loop.create_connection(_ForwardedEndpoint, host.address, self._settings.http_port)
        return side

    async def _list_free_siblings(self) -> list[Host]:
        """Return the siblings with free slots in random order, weighted by the number of slots."""
        hosts = [
            host
            for host in await self._registry.read_live_hosts()
            if host.accepts_sessions and host.id != self._address
        ]
        return sorted(hosts, key=lambda host: _random.random() ** (1 / host.free_slots), reverse=True)

    async def _find_own_address(self) -> str:
        """Return the address at which the gateway and other hosts reach this process."""
        if not self._address:
            gateway = urlsplit(self._settings.gateway_url)
            transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
                asyncio.DatagramProtocol, remote_addr=(gateway.hostname or "", gateway.port or 80)
            )  # sends nothing
            self._address = transport.get_extra_info("sockname")[0]
            transport.close()
        return self._address


def _build_token_subject(address: str) -> str:
    """Return the subject of an agent's token, which differs from the id of any conversation."""
    return f"agent {address}"


async def _forward_bytes(connection: ForwardableConnection, sibling: _ForwardedEndpoint, answer: bytes) -> None:
    """Forward bytes in both directions until one side disconnects."""
    if connection.transport.is_closing():
        sibling.transport.close()
        return
    caller = _ForwardedEndpoint()
    caller.connection_made(connection.transport)
    caller.other_transport, sibling.other_transport = sibling.transport, connection.transport
    connection.forward_to(caller)
    connection.transport.write(answer)
    try:
        for each in (connection.transport, sibling.transport):
            each.resume_reading()
        await asyncio.wait(
            [asyncio.create_task(each.ended.wait()) for each in (caller, sibling)], return_when=asyncio.FIRST_COMPLETED
        )
    finally:
        for each in (connection.transport, sibling.transport):
            each.close()
            asyncio.get_running_loop().call_later(
                CLIENT_READ_TIMEOUT_S, each.abort
            )  # with any data that is still unread
