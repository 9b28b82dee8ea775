"""Simulated network elements: a network that drops packets, and a load balancer."""

import asyncio
import contextlib
import random
import socket
import struct
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import cast

from voice_ops.demo.services import LOOPBACK

LOSS_SHARE = 0.05
REORDER_SHARE = 0.05
REORDER_DELAY_S = 0.05
"""Delay of reordered packets, which two others overtake."""
_PIECE_BYTES = 65536


class LossyNetwork(asyncio.DatagramProtocol):
    """Forwards packets with losses and reordering, drawn from a fixed seed.

    It runs as a separate process, because some kernels lack netem.

    Attributes:
        passed: Packets forwarded in order.
        lost: Dropped packets.
        late: Overtaken packets.
    """

    def __init__(self, port: int) -> None:
        self.passed = self.lost = self.late = 0
        self._to = (LOOPBACK, port)
        self._random = random.Random(7)  # noqa: S311  no secret
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:  # noqa: ARG002  of the protocol
        """Forward a packet, or drop it."""
        assert self._transport
        fate = self._random.random()
        if fate < LOSS_SHARE:
            self.lost += 1
        elif fate < LOSS_SHARE + REORDER_SHARE:
            self.late += 1
            asyncio.get_running_loop().call_later(REORDER_DELAY_S, self._transport.sendto, data, self._to)
        else:
            self.passed += 1
            self._transport.sendto(data, self._to)


@asynccontextmanager
async def lossy_network(from_port: int, to_port: int) -> AsyncIterator[LossyNetwork]:
    """Receive packets on one port, and forward most of them to another."""
    loop = asyncio.get_running_loop()
    transport, network = await loop.create_datagram_endpoint(
        lambda: LossyNetwork(to_port), local_addr=(LOOPBACK, from_port)
    )
    try:
        yield network
    finally:
        transport.close()


@dataclass
class TcpRelay:
    """Forwarded connections.

    Attributes:
        was_reset: Number of reset connections.
    """

    callers: set[asyncio.StreamWriter] = field(default_factory=set)
    was_reset: int = 0

    def reset(self) -> None:
        """Reset all connections, like a middlebox that has lost its state."""
        for writer in self.callers:
            raw: socket.socket = writer.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
            self.was_reset += 1


@asynccontextmanager
async def load_balancer(port: int, backends: Sequence[int]) -> AsyncIterator[TcpRelay]:
    """Forward every connection to the first backend that accepts it."""
    passing = TcpRelay()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        passing.callers.add(writer)
        with contextlib.suppress(OSError):
            behind = await _first(backends)
            await asyncio.gather(_copy(reader, behind[1]), _copy(behind[0], writer))
        passing.callers.discard(writer)

    server = await asyncio.start_server(serve, LOOPBACK, port)
    try:
        yield passing
    finally:
        server.close()


async def _first(backends: Sequence[int]) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    for port in backends:
        with contextlib.suppress(ConnectionRefusedError):
            return await asyncio.open_connection(LOOPBACK, port)
    raise ConnectionRefusedError


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while piece := await reader.read(_PIECE_BYTES):
            writer.write(piece)
            await writer.drain()
    finally:
        writer.close()
