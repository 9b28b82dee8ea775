"""The Network Load Balancer's part for UDP: looks which targets are healthy, and passes packets on to one of them.

It does what the deployed target group says: whom Auto Scaling has registered, which port is tried, how often, and how
many answers in a row change its mind. A caller's packets keep their source and go to one target as long as that one is
healthy; where none is, they are lost. Not played: TLS listeners, zones, access logs, flows that time out.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from zlib import crc32

_LOOK_S = 0.5
_TIMEOUT_S = 5
_LARGEST = 65535
Place = tuple[str, int]


@dataclass(frozen=True)
class Rules:
    """What a target group says.

    Attributes:
        port: Of the targets; packets come in at the same.
        health_port: Where a TCP connection must come about.
    """

    port: int
    health_port: int
    interval_s: float
    healthy_after: int
    unhealthy_after: int


@dataclass
class Target:
    """A registered host.

    Attributes:
        in_a_row: Answers of the last kind, and whether they were good.
        passed_on: Packets.
    """

    is_healthy: bool = False
    in_a_row: int = 0
    answered: bool = False
    looked_at: float = float("-inf")
    passed_on: int = 0


class Balancer:
    """Serves at an address of the calling thread's namespace until ``close``.

    Args:
        registered: Asked all the time: the addresses of the group's targets.

    Attributes:
        lost: Packets for which there was no healthy target.
    """

    def __init__(self, address: str, rules: Rules, registered: Callable[[], set[str]]) -> None:
        self._rules = rules
        self._registered = registered
        self._targets: dict[str, Target] = {}
        self._flows: dict[Place, str] = {}
        self.lost = 0
        self._public = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._public.settimeout(_LOOK_S)
        self._public.bind((address, rules.port))
        # Ours are the IP headers, so that a packet's source stays its caller.
        self._private = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
        self._closing = threading.Event()
        self._threads = [threading.Thread(target=each, daemon=True) for each in (self._forward, self._look)]
        for thread in self._threads:
            thread.start()

    def target(self, address: str) -> Target | None:
        """Return what is known of a host, as long as it is registered."""
        return self._targets.get(address)

    def _forward(self) -> None:
        while not self._closing.is_set():
            try:
                payload, caller = self._public.recvfrom(_LARGEST)
            except TimeoutError:
                continue
            targets = self._targets
            address = self._choose(caller, targets)
            if address is None:
                self.lost += 1
            else:
                self._private.sendto(_packet(caller, (address, self._rules.port), payload), (address, 0))
                targets[address].passed_on += 1

    def _choose(self, caller: Place, targets: dict[str, Target]) -> str | None:
        healthy = sorted(address for address, target in targets.items() if target.is_healthy)
        if not healthy:
            return None
        if self._flows.get(caller) not in healthy:
            self._flows[caller] = healthy[crc32(repr(caller).encode()) % len(healthy)]
        return self._flows[caller]

    def _look(self) -> None:
        while not self._closing.wait(_LOOK_S):
            # A dictionary of its own: the other thread may be reading the last one.
            self._targets = {address: self._targets.get(address) or Target() for address in self._registered()}
            for address, target in self._targets.items():
                if time.monotonic() >= target.looked_at + self._rules.interval_s:
                    target.looked_at = time.monotonic()
                    self._note(target, answered=_answers(address, self._rules.health_port))

    def _note(self, target: Target, *, answered: bool) -> None:
        target.in_a_row = target.in_a_row + 1 if answered == target.answered else 1
        target.answered = answered
        if target.in_a_row >= (self._rules.healthy_after if answered else self._rules.unhealthy_after):
            target.is_healthy = answered

    def close(self) -> None:
        self._closing.set()
        for thread in self._threads:
            thread.join()
        self._public.close()
        self._private.close()


def _answers(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), _TIMEOUT_S).close()
    except OSError:
        return False
    return True


def _packet(source: Place, destination: Place, payload: bytes) -> bytes:
    """Return a UDP packet over IPv4; the kernel fills in length, number and checksum of its header."""
    ip = struct.pack(
        ">BBHHHBBH4s4s", 0x45, 0, 0, 0, 0, 64, socket.IPPROTO_UDP, 0,
        socket.inet_aton(source[0]), socket.inet_aton(destination[0]),
    )  # fmt: skip
    return ip + struct.pack(">HHHH", source[1], destination[1], 8 + len(payload), 0) + payload
