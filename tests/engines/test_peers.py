"""Replicas that share KV cache: cache hits of a returning user at each replica.

Three replicas of the audio model, each an engine with its LMCache server, and the coordinator, with the rendered flags
of ``deployments/hearing.yaml``.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx2
import psutil
import pytest

from tests.engines.conftest import Bench
from tests.engines.test_cache import Conversation
from tests.nonempty import nonempty
from voice_blueprint.azure.contract import (
    ENGINE_HTTP,
    LMCACHE,
    LMCACHE_COORDINATOR,
    LMCACHE_DATA,
    LMCACHE_HTTP,
    LMCACHE_PEERS,
)
from voice_blueprint.engines.launch.base import Launcher
from voice_blueprint.engines.launch.services import (
    POD_ADDRESS_VARIABLE,
    AggregatedProcesses,
    create_aggregated_processes,
    create_coordinator_launcher,
)
from voice_blueprint.engines.sizing.fit import LMCACHE_CHUNK_TOKENS
from voice_blueprint.file.loading import load
from voice_blueprint.file.model.azure import AggregatedService
from voice_sandbox.engines.processes import LOOPBACK, ROOT, EngineProcess, run_processes
from voice_sandbox.engines.substitutions import LMCACHE as LMCACHE_PROGRAM
from voice_sandbox.engines.substitutions import CommandRenderer, Substitution
from voice_sandbox.loopback import find_free_port

REPLICAS = 3
PATIENCE_S = 120.0
HEARTBEAT_S = 1
MIN_CACHED_SHARE = 0.5
"""Maximum cached fraction if conversations only share the recording at their start."""
STORED_WITHIN_S = 2.0
"""An engine passes chunks to its LMCache server after it has answered."""


def _local_address(rendered: str) -> str:
    """Replace a cluster address with a local one."""
    host, _, port = rendered.rpartition(":")
    return (
        f"http://{LOOPBACK}:{port}"
        if host.startswith("http")
        else rendered.replace(f"$({POD_ADDRESS_VARIABLE})", LOOPBACK)
    )


PEER_SUBSTITUTIONS = (
    Substitution(LMCACHE_PROGRAM, "--coordinator-url", _local_address, "there is no cluster DNS"),
    Substitution(
        LMCACHE_PROGRAM, "--coordinator-advertise-ip", _local_address, "Kubernetes fills in the pod's address"
    ),
    Substitution(LMCACHE_PROGRAM, "--p2p-advertise-url", _local_address, "Kubernetes fills in the pod's address"),
    Substitution(LMCACHE_PROGRAM, "--coordinator-heartbeat-interval", str(HEARTBEAT_S), "tests wait for peers", True),
)


class Replica:
    """An engine and its LMCache server."""

    def __init__(self, bench: Bench, launch: AggregatedProcesses, number: int, coordinator_port: int) -> None:
        assert launch.lmcache
        rendered = (ENGINE_HTTP, LMCACHE, LMCACHE_HTTP, LMCACHE_PEERS)
        self._ports = {port.number: find_free_port() for port in rendered}
        self._ports[LMCACHE_COORDINATOR.number] = coordinator_port
        self._bench, self._folder = bench, bench.folder / f"replica-{number}"
        (self._folder / "nvme").mkdir(parents=True)
        self.cache = self._process(f"lmcache-{number}", launch.lmcache, LMCACHE_HTTP.number, "/healthcheck")
        self.engine = self._process(f"engine-{number}", launch.engine, ENGINE_HTTP.number, "/health")

    def _process(self, name: str, launcher: Launcher, port: int, health: str) -> EngineProcess:
        substitutes = CommandRenderer(
            self._folder, self._bench.models, self._ports, extra_substitutions=PEER_SUBSTITUTIONS
        )
        url = f"http://{LOOPBACK}:{self._ports[port]}"
        return EngineProcess(name, substitutes.render_process(launcher), self._bench.folder, url, health)

    @property
    def ports(self) -> set[int]:
        """Return the local ports."""
        return set(self._ports.values())

    def peers(self) -> int:
        """Return the number of peers of its LMCache server."""
        status = httpx2.get(f"{self.cache.url}/status").json()
        (modules,) = (each for each in _dictionaries(status) if "p2p_peer_count" in each)
        return int(modules["p2p_peer_count"])


def _dictionaries(value: Any) -> Iterator[dict[str, Any]]:  # noqa: ANN401  JSON
    if isinstance(value, dict):
        yield value
        for each in value.values():
            yield from _dictionaries(each)
    elif isinstance(value, list):
        for each in value:
            yield from _dictionaries(each)


def wait_until(condition: Callable[[], bool]) -> None:
    limit = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.2)


@dataclass
class User:
    """A conversation that moves between replicas.

    Attributes:
        home: Number of the replica that serves its first turn.
    """

    home: int
    talk: Conversation

    def visit(self, replica: Replica) -> float:
        """Send the next question, and return the cached share of the preceding complete chunks."""
        turn = self.talk.turn(replica.engine, f"user {self.home} {self.talk.tokens} ")
        return turn.share_of(LMCACHE_CHUNK_TOKENS)


@pytest.fixture(scope="module")
def launch() -> AggregatedProcesses:
    azure = load(ROOT / "deployments/hearing.yaml").azure_section
    assert azure
    return create_aggregated_processes(
        azure, next(each for each in azure.services if isinstance(each, AggregatedService))
    )


@pytest.fixture(scope="module")
def coordinator(bench: Bench) -> Iterator[EngineProcess]:
    """Return the coordinator without starting it."""
    port = find_free_port()
    process = CommandRenderer(bench.folder, bench.models, {LMCACHE_COORDINATOR.number: port}).render_process(
        create_coordinator_launcher()
    )
    made = EngineProcess("coordinator", process, bench.folder, f"http://{LOOPBACK}:{port}", "/instances")
    yield made
    made.kill()


@pytest.fixture(scope="module")
def replicas(bench: Bench, launch: AggregatedProcesses, coordinator: EngineProcess) -> Iterator[list[Replica]]:
    port = int(coordinator.url.rpartition(":")[2])
    made = [Replica(bench, launch, number, port) for number in range(REPLICAS)]
    with run_processes(*(each.cache for each in made)), run_processes(*(each.engine for each in made)):
        yield made


def newcomers(replicas: list[Replica], launch: AggregatedProcesses) -> list[User]:
    """Return users who have sent their first questions, each to its home replica."""
    users = [User(home, Conversation(launch.engine.model.name)) for home in range(REPLICAS)]
    for user in users:
        user.talk.turn(replicas[user.home].engine, f"user {user.home} {time.monotonic_ns()} ")
    time.sleep(STORED_WITHIN_S)
    return users


def mean_cached_share(users: list[User], replicas: list[Replica], step: int) -> float:
    """Send each user's question to the replica ``step`` after its home, and return the mean cached share."""
    return sum(user.visit(replicas[(user.home + step) % REPLICAS]) for user in users) / len(users)


def test_a_conversation_is_a_cache_hit_on_any_replica(
    replicas: list[Replica], launch: AggregatedProcesses, coordinator: EngineProcess
) -> None:
    rows = {}
    users = newcomers(replicas, launch)
    rows["session: the same replica; no peers"] = mean_cached_share(users, replicas, 0)
    rows["round robin: another replica; no peers"] = mean_cached_share(users, replicas, 1)
    coordinator.start().wait_until_ready()
    wait_until(lambda: all(each.peers() == REPLICAS - 1 for each in replicas))
    users = newcomers(replicas, launch)
    rows["session: the same replica; peers"] = mean_cached_share(users, replicas, 0)
    time.sleep(STORED_WITHIN_S)
    rows["round robin: another replica; peers"] = mean_cached_share(users, replicas, 1)
    coordinator.kill()
    users = newcomers(replicas, launch)
    wait_until(lambda: all(each.peers() == 0 for each in replicas))
    rows["round robin: another replica; the coordinator is down"] = mean_cached_share(users, replicas, 1)
    print("\n| Replica on which a returning user continues | Cached share of the conversation |\n|---|---|")
    print("\n".join(f"| {name} | {share:.0%} |" for name, share in rows.items()))
    same, other, same_with_peers, other_with_peers, alone = rows.values()
    # An engine's blocks are smaller than chunks, so its own replica has more than the complete chunks.
    assert min(same, same_with_peers, other_with_peers) >= 1
    # Only the prefix shared by all conversations.
    assert max(other, alone) < MIN_CACHED_SHARE


def test_peers_use_the_ports_of_the_network_policies(replicas: list[Replica]) -> None:
    data = {port.number for port in LMCACHE_DATA}
    for each in nonempty(replicas):
        connections = psutil.Process(each.cache.pid).net_connections("tcp")
        listens = {found.laddr.port for found in connections if found.status == psutil.CONN_LISTEN}
        print(f"{each.cache.name} listens on {sorted(listens)}")
        assert listens - each.ports <= data


def test_a_hanging_peer_delays_a_turn_by_at_most_its_timeout(
    replicas: list[Replica], launch: AggregatedProcesses, coordinator: EngineProcess
) -> None:
    coordinator.start().wait_until_ready()
    wait_until(lambda: all(each.peers() == REPLICAS - 1 for each in replicas))
    users = newcomers(replicas, launch)
    replicas[0].cache.suspend_processes()
    try:
        since = time.monotonic()
        shares = [user.visit(replicas[1]) for user in users[1:]]
        print(f"with a peer that hangs: found {shares}, {time.monotonic() - since:.1f} s for {len(shares)} turns")
    finally:
        replicas[0].cache.resume_processes()
    assert shares[0] >= 1
    assert replicas[1].engine.get_exit_code() is None
