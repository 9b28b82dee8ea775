"""The load balancer's part, against hosts that are sockets: who gets a caller's packets, and whose they seem to be."""

import socket
import time
from collections.abc import Callable, Iterator

import pytest

from sandbox.hosts.balancer import Balancer, Rules
from sandbox.hosts.disk import run
from sandbox.hosts.network import namespace

pytestmark = pytest.mark.nightly

PUBLIC, ONE, TWO = "10.40.0.3", "10.40.64.4", "10.40.64.5"
RULES = Rules(port=5004, health_port=8081, interval_s=0, healthy_after=2, unhealthy_after=2)
WITHIN_S = 20


class Machine:
    """A host as the balancer sees it: audio in, and a health port that may close."""

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
    with namespace():
        for address in (PUBLIC, ONE, TWO):
            run("ip", "address", "add", f"{address}/32", "dev", "lo")
        made = {address: Machine(address) for address in (ONE, TWO)}
        yield made
        for machine in made.values():
            machine.close()


@pytest.fixture
def registered() -> set[str]:
    return {ONE, TWO}


@pytest.fixture
def balancer(registered: set[str]) -> Iterator[Balancer]:
    made = Balancer(PUBLIC, RULES, lambda: set(registered))
    yield made
    made.close()


@pytest.fixture
def caller() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        made.connect((PUBLIC, RULES.port))
        yield made


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def healthy(balancer: Balancer) -> set[str]:
    targets = {address: balancer.target(address) for address in (ONE, TWO)}
    return {address for address, target in targets.items() if target and target.is_healthy}


def receiver(machines: dict[str, Machine], balancer: Balancer) -> str:
    """Return who has had a packet passed on."""
    (found,) = [address for address in machines if (target := balancer.target(address)) and target.passed_on]
    return found


def test_a_host_is_healthy_after_as_many_answers_as_its_group_says(balancer: Balancer) -> None:
    first = balancer.target(ONE)
    assert first is None or not first.is_healthy
    until(lambda: healthy(balancer) == {ONE, TWO})
    target = balancer.target(ONE)
    assert target is not None
    assert target.in_a_row >= RULES.healthy_after


def test_packets_keep_their_source_and_their_host(
    machines: dict[str, Machine], balancer: Balancer, caller: socket.socket
) -> None:
    until(lambda: healthy(balancer) == {ONE, TWO})
    for number in range(20):
        caller.send(b"frame %d" % number)
    until(lambda: sum(target.passed_on for address in machines if (target := balancer.target(address))) == 20)
    audio = machines[receiver(machines, balancer)].audio
    assert [audio.recvfrom(2000) for _ in range(20)] == [(b"frame %d" % n, caller.getsockname()) for n in range(20)]


def test_a_flow_moves_when_its_host_answers_no_more(
    machines: dict[str, Machine], balancer: Balancer, caller: socket.socket
) -> None:
    until(lambda: healthy(balancer) == {ONE, TWO})
    caller.send(b"before")
    until(lambda: any(target.passed_on for address in machines if (target := balancer.target(address))))
    first = receiver(machines, balancer)
    machines[first].health.close()
    (other,) = machines.keys() - {first}
    until(lambda: healthy(balancer) == {other})
    caller.send(b"after")
    assert machines[other].audio.recv(2000) == b"after"


def test_without_a_registered_host_packets_are_lost(
    balancer: Balancer, registered: set[str], caller: socket.socket
) -> None:
    until(lambda: healthy(balancer) == {ONE, TWO})
    registered.clear()
    until(lambda: balancer.target(ONE) is None)
    caller.send(b"to nobody")
    until(lambda: balancer.lost == 1)
