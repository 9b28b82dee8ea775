"""Agents as one tier: a full one hands a caller's connection to a sibling with room, before anything is answered.

The sibling alone decides whether it has room, so that no place is given twice; the registry says whom to ask. What is
handed over are bytes: the request with one header more, then whatever either side sends. The sibling checks key and
token, and holds lease and memory.
"""

import asyncio
import contextlib
import random
from typing import cast
from urllib.parse import urlsplit

from redis.asyncio import Redis
from redis.exceptions import RedisError
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.http11 import Request

from blueprint.contract.network import Tier
from voice_agent import tokens
from voice_agent.settings import ANYWHERE, AgentSettings
from voice_runtime.hosts import Host, HostKind, HostRegistry

HEADER = "X-Voice-Handed-Over"
"""The address of the agent that hands a connection over, and a token for it: from anybody else it means nothing."""
NO_ROOM = 421
"""What a sibling without room answers an agent (RFC 9110, "misdirected"); callers never see it."""
CONNECT_WITHIN_S = 1.0
ANSWERED_WITHIN_S = 15.0
"""Longer than the gateway, which a sibling asks before it answers, may take."""
FOUND_WITHIN_S = 20.0
"""Longest that a caller waits for a sibling; a client's own limit is often shorter."""
PER_PLACE = 4
"""Connections that a process hands over at a time, for each conversation that it holds: together they take a tenth of
what its own take (docs/decisions/18-agents-as-one-tier.md)."""
TOKEN_TTL_S = 60
LOOK_S = 1.0

_chance = random.SystemRandom()


class Connection(WebSocketsSansIOProtocol):
    """A caller's connection, which can be given away until something is answered."""

    request_bytes = b""

    def data_received(self, data: bytes) -> None:
        """Keep the request, which uvicorn gives at once."""
        self.request_bytes = self.request_bytes or data
        super().data_received(data)

    def handle_connect(self, event: Request) -> None:
        """Show the connection to the application."""
        super().handle_connect(event)
        if not self.handshake_complete:
            self.scope["state"]["connection"] = self

    def give_to(self, side: "_Side") -> None:
        """Let bytes go to somebody else from now on; uvicorn answers no more."""
        self.connections.discard(self)
        self.handshake_complete = True
        self.transport.set_protocol(side)


class _Side(asyncio.Protocol):
    """One end of a connection that is handed over: what comes from there goes to the other end."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.over = asyncio.Event()
        self.other: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self.other:
            self.other.write(data)
        else:
            self.transport.pause_reading()
            self.answer.set_result(data)

    def pause_writing(self) -> None:
        if self.other:
            self.other.pause_reading()

    def resume_writing(self) -> None:
        if self.other:
            self.other.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self.over.set()
        if self.other:
            self.other.close()
        elif not self.answer.done():
            self.answer.set_exception(exc or ConnectionResetError())


class Siblings:
    """What one agent knows of the others, and what it hands to them.

    Attributes:
        handed: Connections that a sibling serves through this process.
    """

    def __init__(self, settings: AgentSettings, store: Redis) -> None:
        self._settings = settings
        self._registry = HostRegistry(store, Tier.AGENT)
        self._key = settings.token_key.get_secret_value()
        self._address = "" if settings.bind_address == ANYWHERE else settings.bind_address
        self.handed = 0

    async def tell(self, held: int, *, draining: bool) -> None:
        """Tell the others how much room there is.

        Raises:
            OSError: The gateway's name is not known, and so neither is the address that this process has.
            RedisError: The store does not answer.
        """
        slots, address = self._settings.conversations, await self._own_address()
        await self._registry.beat(Host(address, HostKind.AGENT, address, slots - held, draining, slots))

    async def leave(self) -> None:
        """Tell the others that this process goes, and so does what they serve through it."""
        await self._registry.leave(self._address)

    def giver(self, header: str | None) -> str:
        """Return the address of the agent that a request's header says it comes from; empty: from a caller."""
        address, _, token = (header or "").partition(" ")
        return address if tokens.opens(self._key, token, _subject(address)) else ""

    async def has_left(self, giver: str) -> bool:
        """Return whether an agent has said that it goes; while the store is away, no."""
        try:
            return not await self._registry.knows(giver)
        except RedisError:
            return False

    async def take(self, connection: Connection) -> bool:
        """Hand a connection to a sibling with room, until it is over; return whether one has taken it."""
        if self.handed >= PER_PLACE * self._settings.conversations or not self._address:
            return False
        self.handed += 1
        connection.transport.pause_reading()
        try:
            with contextlib.suppress(TimeoutError, RedisError):
                sibling, answer = await asyncio.wait_for(self._find(connection.request_bytes), FOUND_WITHIN_S)
                await _join(connection, sibling, answer)
                return True
        except LookupError:
            pass
        finally:
            self.handed -= 1
        connection.transport.resume_reading()
        return False

    async def _find(self, request: bytes) -> tuple[_Side, bytes]:
        """Return the first sibling that takes a request, and what it answers.

        Raises:
            LookupError: None does.
        """
        line, rest = request.split(b"\r\n", 1)
        token = tokens.make(self._key, _subject(self._address), TOKEN_TTL_S)
        signed = b"\r\n".join([line, f"{HEADER}: {self._address} {token}".encode(), rest])
        for host in await self._with_room():
            with contextlib.suppress(OSError, TimeoutError):
                side = await self._connect(host)
                side.transport.write(signed)
                try:
                    async with asyncio.timeout(ANSWERED_WITHIN_S):
                        answer = await side.answer
                    if not answer.startswith(f"HTTP/1.1 {NO_ROOM} ".encode()):
                        return side, answer
                except BaseException:
                    side.transport.close()
                    raise
                side.transport.close()
        raise LookupError

    async def _connect(self, host: Host) -> _Side:
        async with asyncio.timeout(CONNECT_WITHIN_S):
            loop = asyncio.get_running_loop()
            _, side = await loop.create_connection(_Side, host.address, self._settings.http_port)
        return side

    async def _with_room(self) -> list[Host]:
        """Return who says to have room, by chance, and those with more of it rather first: not all go to the same."""
        hosts = [host for host in await self._registry.alive() if host.takes_sessions and host.id != self._address]
        return sorted(hosts, key=lambda host: _chance.random() ** (1 / host.free_slots), reverse=True)

    async def _own_address(self) -> str:
        """Return the address that the gateway, and so everybody inside, sees this process at."""
        if not self._address:
            gateway = urlsplit(self._settings.gateway_url)
            transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
                asyncio.DatagramProtocol, remote_addr=(gateway.hostname or "", gateway.port or 80)
            )  # sends nothing
            self._address = transport.get_extra_info("sockname")[0]
            transport.close()
        return self._address


def _subject(address: str) -> str:
    """Return what a token of an agent opens; no conversation is called so."""
    return f"agent {address}"


async def _join(connection: Connection, sibling: _Side, answer: bytes) -> None:
    """Carry bytes both ways until one side is gone."""
    if connection.transport.is_closing():
        sibling.transport.close()
        return
    caller = _Side()
    caller.connection_made(connection.transport)
    caller.other, sibling.other = sibling.transport, connection.transport
    connection.give_to(caller)
    connection.transport.write(answer)
    try:
        for each in (connection.transport, sibling.transport):
            each.resume_reading()
        await asyncio.wait(
            [asyncio.create_task(each.over.wait()) for each in (caller, sibling)], return_when=asyncio.FIRST_COMPLETED
        )
    finally:
        for each in (connection.transport, sibling.transport):
            each.close()
