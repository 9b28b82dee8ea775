"""DHCP, DNS and internet access of a simulated VPC, tested with frames on the tap device of a machine."""

import fcntl
import os
import select
import socket
import struct
from collections.abc import Iterator
from errno import ECONNREFUSED, ENETUNREACH
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

import pytest

from voice_sandbox.hosts.network import INTERNET_ADDRESS, Network, enter_isolated_namespace

pytestmark = pytest.mark.nightly

_TUNSETIFF, _TAP, _NO_HEADER, _MULTI_QUEUE = 0x400454CA, 0x0002, 0x1000, 0x0100  # linux/if_tun.h
ANSWER_S = 10


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Network]:
    with enter_isolated_namespace():
        subnets = {IPv4Network("10.40.64.0/19"): False, IPv4Network("10.40.96.0/19"): True}
        made = Network(tmp_path, IPv4Network("10.40.0.0/16"), subnets, ["logs.us-east-1.amazonaws.com"])
        yield made
        made.close()


def discover(mac: bytes) -> bytes:
    """Return a DHCPDISCOVER frame (RFC 2131); zero checksums mean none, except the header's."""
    dhcp = struct.pack(">BBBBIHH16s16s", 1, 1, 6, 0, 7, 0, 0x8000, bytes(16), mac) + bytes(192)
    dhcp += bytes((99, 130, 83, 99, 53, 1, 1, 255))
    udp = struct.pack(">HHHH", 68, 67, 8 + len(dhcp), 0) + dhcp
    ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), 0, 0, 64, 17, 0, bytes(4), b"\xff" * 4)
    total = sum(struct.unpack(">10H", ip))
    ip = ip[:10] + struct.pack(">H", ~(total + (total >> 16)) & 0xFFFF) + ip[12:]
    return b"\xff" * 6 + mac + b"\x08\x00" + ip + udp


def offered_address(tap: str, mac: str) -> IPv4Address | None:
    """Return the address that DHCP offers to a machine on a tap."""
    address = bytes.fromhex(mac.replace(":", ""))
    machine = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(machine, _TUNSETIFF, struct.pack("16sH", tap.encode(), _TAP | _NO_HEADER | _MULTI_QUEUE))
    try:
        os.write(machine, discover(address))
        while select.select([machine], [], [], ANSWER_S)[0]:
            frame = os.read(machine, 9001)
            if frame[12:14] == b"\x08\x00" and frame[23] == 17 and frame[34:38] == struct.pack(">HH", 67, 68):
                return IPv4Address(frame[58:62])
            os.write(machine, discover(address))
    finally:
        os.close(machine)
    return None


def test_a_host_gets_the_address_of_a_removed_one(network: Network) -> None:
    for mac in ("02:00:00:00:00:01", "02:00:00:00:00:02"):
        tap = network.attach(mac, "10.40.64.4")
        assert offered_address(tap, mac) == IPv4Address("10.40.64.4")
        network.detach(tap)


@pytest.mark.usefixtures("network")
@pytest.mark.parametrize(("router", "expected"), [("10.40.64.1", ENETUNREACH), ("10.40.96.1", ECONNREFUSED)])
def test_a_subnet_reaches_the_internet_if_it_has_a_route(router: str, expected: int) -> None:
    with socket.socket() as asking:
        asking.bind((router, 0))
        assert asking.connect_ex((INTERNET_ADDRESS, 80)) == expected


def resolve(server: str, name: str) -> str:
    """Return the address of a name (RFC 1035)."""
    labels = b"".join(bytes((len(label),)) + label.encode() for label in name.split("."))
    question = struct.pack(">HHHHHH", 7, 0x0100, 1, 0, 0, 0) + labels + bytes((0, 0, 1, 0, 1))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for _ in range(ANSWER_S):
            asking.sendto(question, (server, 53))
            if select.select([asking], [], [], 1)[0]:
                return socket.inet_ntoa(asking.recv(512)[-4:])
    raise TimeoutError


@pytest.mark.parametrize(
    ("name", "address"),
    [("logs.us-east-1.amazonaws.com", "10.40.0.2"), ("sts.us-east-1.amazonaws.com", INTERNET_ADDRESS)],
)
def test_a_service_without_an_endpoint_is_reached_over_the_internet(network: Network, name: str, address: str) -> None:
    network.reserve_address("02:00:00:00:00:01", "10.40.64.4", route=True)
    assert resolve(network.services_address, name) == address
