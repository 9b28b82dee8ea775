"""The UDP part of a Network Load Balancer, which checks the health of its targets and forwards packets to them.

It uses the deployed target group: the hosts registered by Auto Scaling, and the port, interval and thresholds of the
health check. A caller's packets keep their source address and go to the same target while that target is healthy; if no
target is healthy, they are lost. The hash of a flow includes the source port, unless the group is sticky: then all
flows of a source address go to one target. Not simulated: TLS listeners, zones, access logs, flow timeouts.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from zlib import crc32

_POLL_INTERVAL_S = 0.5
_CHECK_TIMEOUT_S = 5
_MAX_PACKET_BYTES = 65535
Endpoint = tuple[str, int]


@dataclass(frozen=True)
class TargetGroupSettings:
    """Settings of a target group.

    Attributes:
        port: Port of the targets, which is also the listening port.
        health_port: Port of the TCP health check.
        is_sticky: Whether all flows of a source IP address go to one target.
    """

    port: int
    health_port: int
    interval_s: float
    healthy_threshold: int
    unhealthy_threshold: int
    is_sticky: bool


@dataclass
class Target:
    """A registered host.

    Attributes:
        consecutive_result_count: Number of consecutive checks with the same result.
        passed_last_check: Whether the target passed the last check.
        forwarded_packet_count: Number of forwarded packets.
    """

    is_healthy: bool = False
    consecutive_result_count: int = 0
    passed_last_check: bool = False
    checked_at: float = float("-inf")
    forwarded_packet_count: int = 0


class UdpLoadBalancer:
    """Balances the packets to an address in the calling thread's network namespace until ``close``.

    Args:
        registered: Function that returns the addresses of the group's targets.

    Attributes:
        lost_packets: Number of packets that arrived without a healthy target.
    """

    def __init__(self, address: str, rules: TargetGroupSettings, registered: Callable[[], set[str]]) -> None:
        self._rules = rules
        self._registered = registered
        self._targets: dict[str, Target] = {}
        self._flows: dict[Endpoint | str, str] = {}
        self.lost_packets = 0
        self._public = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._public.settimeout(_POLL_INTERVAL_S)
        self._public.bind((address, rules.port))
        # This process writes the IP headers, so that packets keep the caller's source address.
        self._private = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
        self._closing = threading.Event()
        self._threads = [threading.Thread(target=each, daemon=True) for each in (self._forward, self._check_targets)]
        for thread in self._threads:
            thread.start()

    def find_target(self, address: str) -> Target | None:
        """Return the state of a registered host."""
        return self._targets.get(address)

    def _forward(self) -> None:
        while not self._closing.is_set():
            try:
                payload, caller = self._public.recvfrom(_MAX_PACKET_BYTES)
            except TimeoutError:
                continue
            address = self.choose_target(caller)
            target = self._targets.get(address) if address else None
            if address is None or target is None:
                self.lost_packets += 1
            else:
                self._private.sendto(_build_packet(caller, (address, self._rules.port), payload), (address, 0))
                target.forwarded_packet_count += 1

    def choose_target(self, caller: Endpoint) -> str | None:
        """Return the address of the target for a caller's packets, or None if no target is healthy."""
        healthy = sorted(address for address, target in self._targets.items() if target.is_healthy)
        if not healthy:
            return None
        flow = caller[0] if self._rules.is_sticky else caller
        if self._flows.get(flow) not in healthy:
            self._flows[flow] = healthy[crc32(repr(flow).encode()) % len(healthy)]
        return self._flows[flow]

    def _check_targets(self) -> None:
        while not self._closing.wait(_POLL_INTERVAL_S):
            # Create a new dictionary, since the other thread may still be reading the previous one.
            self._targets = {address: self._targets.get(address) or Target() for address in self._registered()}
            for address, target in self._targets.items():
                if time.monotonic() >= target.checked_at + self._rules.interval_s:
                    target.checked_at = time.monotonic()
                    self._record_result(target, passed=_accepts_connection(address, self._rules.health_port))

    def _record_result(self, target: Target, *, passed: bool) -> None:
        target.consecutive_result_count = (
            target.consecutive_result_count + 1 if passed == target.passed_last_check else 1
        )
        target.passed_last_check = passed
        if target.consecutive_result_count >= (
            self._rules.healthy_threshold if passed else self._rules.unhealthy_threshold
        ):
            target.is_healthy = passed

    def close(self) -> None:
        self._closing.set()
        for thread in self._threads:
            thread.join()
        self._public.close()
        self._private.close()


def _accepts_connection(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), _CHECK_TIMEOUT_S).close()
    except OSError:
        return False
    return True


def _build_packet(source: Endpoint, destination: Endpoint, payload: bytes) -> bytes:
    """Return a UDP packet over IPv4. The kernel adds the length, the id and the checksum of the IP header."""
    ip = struct.pack(
        ">BBHHHBBH4s4s", 0x45, 0, 0, 0, 0, 64, socket.IPPROTO_UDP, 0,
        socket.inet_aton(source[0]), socket.inet_aton(destination[0]),
    )  # fmt: skip
    return ip + struct.pack(">HHHH", source[1], destination[1], 8 + len(payload), 0) + payload
