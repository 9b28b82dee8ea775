"""The simulated load balancer, with sockets as hosts: routing and source addresses of packets."""

import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from voice_sandbox.hosts.balancer import TargetGroupSettings, UdpLoadBalancer
from voice_sandbox.hosts.disk import run_command
from voice_sandbox.hosts.network import enter_isolated_namespace

pytestmark = pytest.mark.nightly

PUBLIC, ONE, TWO = "10.40.0.3", "10.40.64.4", "10.40.64.5"
RULES = TargetGroupSettings(
    port=5004, health_port=8081, interval_s=0, healthy_threshold=2, unhealthy_threshold=2, is_sticky=True
)
WITHIN_S = 20


class Machine:
    """A target of the balancer: an audio port, and a health port that can be closed."""

    def __init__(self, address: str) -> None:
        self.audio = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.audio.bind((address, RULES.port))
        self.audio.settimeout(WITHIN_S)
        self.health = socket.create_server((address, RULES.health_port))

    def close(self) -> None:
        self.audio.close()
        self.health.close()


@pytest.fixture(autouse=True)
def machines() -> Iterator[dict[str, Machine]]:
    with enter_isolated_namespace():
        for address in (PUBLIC, ONE, TWO):
            run_command("ip", "address", "add", f"{address}/32", "dev", "lo")
        made = {address: Machine(address) for address in (ONE, TWO)}
        yield made
        for machine in made.values():
            machine.close()


@pytest.fixture
def registered_addresses() -> set[str]:
    return {ONE, TWO}


@pytest.fixture(params=[True], ids=["sticky"])
def balancer(registered_addresses: set[str], request: pytest.FixtureRequest) -> Iterator[UdpLoadBalancer]:
    made = UdpLoadBalancer(PUBLIC, replace(RULES, is_sticky=request.param), lambda: set(registered_addresses))
    yield made
    made.close()


@pytest.fixture
def caller() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        made.connect((PUBLIC, RULES.port))
        yield made


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def healthy_addresses(balancer: UdpLoadBalancer) -> set[str]:
    targets = {address: balancer.find_target(address) for address in (ONE, TWO)}
    return {address for address, target in targets.items() if target and target.is_healthy}


def receiver(machines: dict[str, Machine], balancer: UdpLoadBalancer) -> str:
    """Return the machine that received a packet."""
    (found,) = [
        address for address in machines if (target := balancer.find_target(address)) and target.forwarded_packet_count
    ]
    return found


def test_a_host_is_healthy_after_the_configured_number_of_checks(balancer: UdpLoadBalancer) -> None:
    first = balancer.find_target(ONE)
    assert first is None or not first.is_healthy
    wait_until(lambda: healthy_addresses(balancer) == {ONE, TWO})
    target = balancer.find_target(ONE)
    assert target is not None
    assert target.consecutive_result_count >= RULES.healthy_threshold


def test_packets_of_a_flow_keep_their_source_and_host(
    machines: dict[str, Machine], balancer: UdpLoadBalancer, caller: socket.socket
) -> None:
    wait_until(lambda: healthy_addresses(balancer) == {ONE, TWO})
    for number in range(20):
        caller.send(b"frame %d" % number)
    wait_until(
        lambda: (
            sum(target.forwarded_packet_count for address in machines if (target := balancer.find_target(address)))
            == 20
        )
    )
    audio = machines[receiver(machines, balancer)].audio
    assert [audio.recvfrom(2000) for _ in range(20)] == [(b"frame %d" % n, caller.getsockname()) for n in range(20)]


@pytest.mark.parametrize(
    ("balancer", "hosts"), [(True, 1), (False, 2)], indirect=["balancer"], ids=["sticky", "by port"]
)
def test_a_new_source_port_keeps_the_host_of_a_sticky_group(
    machines: dict[str, Machine], balancer: UdpLoadBalancer, hosts: int
) -> None:
    wait_until(lambda: healthy_addresses(balancer) == {ONE, TWO})
    for _ in range(32):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as caller:
            caller.sendto(b"frame", (PUBLIC, RULES.port))
    targets = [target for address in machines if (target := balancer.find_target(address))]
    wait_until(lambda: sum(target.forwarded_packet_count for target in targets) == 32)
    assert sum(target.forwarded_packet_count > 0 for target in targets) == hosts


def test_a_flow_moves_when_its_host_becomes_unhealthy(
    machines: dict[str, Machine], balancer: UdpLoadBalancer, caller: socket.socket
) -> None:
    wait_until(lambda: healthy_addresses(balancer) == {ONE, TWO})
    caller.send(b"before")
    wait_until(
        lambda: any(target.forwarded_packet_count for address in machines if (target := balancer.find_target(address)))
    )
    first = receiver(machines, balancer)
    machines[first].health.close()
    (other,) = machines.keys() - {first}
    wait_until(lambda: healthy_addresses(balancer) == {other})
    caller.send(b"after")
    assert machines[other].audio.recv(2000) == b"after"


def test_without_a_registered_host_packets_are_lost(
    balancer: UdpLoadBalancer, registered_addresses: set[str], caller: socket.socket
) -> None:
    wait_until(lambda: healthy_addresses(balancer) == {ONE, TWO})
    registered_addresses.clear()
    wait_until(lambda: balancer.find_target(ONE) is None)
    caller.send(b"to nobody")
    wait_until(lambda: balancer.lost_packets == 1)
