"""``lmcache server``: keeps the KV cache of sessions that may return, in host memory and optionally on disk.

Servers with ``PeerAccess`` also look up chunks on the servers of other pods. These servers discover each other through
``lmcache coordinator``, which maintains a list of servers and is not involved in lookups. If the coordinator is
unavailable, servers keep their peers for three heartbeats, and then work without peers (lmcache 0.5.6:
``v1/multiprocess/modules/p2p_controller.py``).
"""

from dataclasses import dataclass

from voice_blueprint.engines.launch.base import ANY_ADDRESS, FlagValue, Launcher, dump_compact_json, format_flags
from voice_blueprint.engines.launch.fabric import HASH_SEED_ENVIRONMENT
from voice_blueprint.engines.launch.placement import Placement
from voice_blueprint.engines.sizing.fit import LMCACHE_CHUNK_TOKENS

LMCACHE_PROGRAM = "/opt/venv/bin/lmcache"
"""Path in the publisher's image (``voice_blueprint/catalog/publishers.yaml``), since a command replaces the image's
entry point."""

EVICTION_POLICY = "LRU"

PEER_LOOKUP_TIMEOUT_S = 0.5
"""Timeout for a lookup on a peer, which reads a hash table; LMCache's default of 30 s would stall a turn."""
PEER_LOAD_TIMEOUT_S = 2.0
"""Timeout for loading chunks from a peer: 5 GB (a Voxtral conversation of 32,768 tokens) take 1 s at 40 Gbit/s."""
PEER_EXPIRY_S = 15
"""Time until a server is removed from the list: three missed heartbeats at an interval of 5 s."""
UCX_HOST_TRANSPORTS = "tcp,sm,self"
"""UCX transports between host memory, the only memory from which peers read chunks. No NC size has InfiniBand."""

_UNPRIVILEGED_ENVIRONMENT = {
    "HOME": "/tmp",  # noqa: S108  /tmp of the pod
    "USER": "voice-serve",
    "LMCACHE_TRACK_USAGE": "false",
}
"""Variables that the publisher's image requires for running as a user that the image does not define."""


@dataclass(frozen=True)
class NvmeStore:
    """A store of files on local NVMe disks.

    Attributes:
        path: Directory that the server's user can write to.
        capacity_gib: Capacity, GiB. Above this size, the least recently used files are deleted.
    """

    path: str
    capacity_gib: float

    def build_adapter_config(self) -> dict[str, object]:
        """Return the JSON value of ``--l2-adapter``.

        Without ``eviction``, the capacity would be tracked but not enforced.
        """
        return {
            "type": "fs_native",
            "base_path": self.path,
            "max_capacity_gb": self.capacity_gib,
            "eviction": {"eviction_policy": EVICTION_POLICY},
        }


@dataclass(frozen=True)
class PeerAccess:
    """Access by servers to chunks in other pods.

    Attributes:
        coordinator: Base URL of the coordinator.
        address: Address at which peers reach the pod, or a variable that Kubernetes substitutes.
        port: Port for the exchange of NIXL metadata with peers.
        data_port_range: First and last port on which UCX transfers chunks.
    """

    coordinator: str
    address: str
    port: int
    data_port_range: tuple[int, int]

    def build_flags(self) -> dict[str, FlagValue]:
        """Return the server's flags. A peer that does not respond in time is treated as having no chunk."""
        return {
            "--coordinator-url": self.coordinator,
            "--coordinator-advertise-ip": self.address,
            "--p2p-advertise-url": f"{self.address}:{self.port}",
            "--p2p-lookup-timeout": PEER_LOOKUP_TIMEOUT_S,
            "--p2p-load-timeout": PEER_LOAD_TIMEOUT_S,
        }

    def build_environment(self) -> dict[str, str]:
        """Return the variables that limit UCX to a range of ports, which network policies require."""
        return {"UCX_TLS": UCX_HOST_TRANSPORTS, "UCX_TCP_PORT_RANGE": "{}-{}".format(*self.data_port_range)}


@dataclass(frozen=True)
class LmcacheCoordinator(Launcher):
    """The registry of LMCache servers.

    Attributes:
        port: HTTP port: registration, heartbeats, health and metrics.
    """

    port: int

    def build_command(self) -> tuple[str, ...]:
        """Return the full argument vector."""
        return (
            LMCACHE_PROGRAM,
            "coordinator",
            *format_flags(
                {
                    "--host": ANY_ADDRESS,
                    "--port": self.port,
                    "--chunk-size": LMCACHE_CHUNK_TOKENS,
                    "--instance-timeout": PEER_EXPIRY_S,
                    "--health-check-interval": PEER_EXPIRY_S // 3,
                }
            ),
        )

    def build_environment(self) -> dict[str, str]:
        """Return the variables that the publisher's image requires, since it does not define our user."""
        return {**HASH_SEED_ENVIRONMENT, **_UNPRIVILEGED_ENVIRONMENT}


@dataclass(frozen=True)
class LmcacheServer(Launcher):
    """An LMCache server in multi-process mode; every engine has its own.

    Attributes:
        l1_gib: Pinned host memory in total, GiB. In this mode it is not multiplied by the tensor parallel size.
        port: ZMQ port for the engine on the same loopback.
        http_port: Port of health and metrics.
        l2: Second tier of the cache, below host memory.
        worker_count: Number of threads that move KV cache, and of threads that look it up: one per GPU of the engine.
        peers: Access to other pods' servers, or ``None``.
        placement: Order of the visible GPUs, the engine's first. The server is not bound to their NUMA nodes, since the
            publisher's image has no numactl.
    """

    l1_gib: float
    port: int
    http_port: int
    l2: NvmeStore | None = None
    worker_count: int = 1
    peers: PeerAccess | None = None
    placement: Placement | None = None

    def __post_init__(self) -> None:
        if self.l1_gib <= 0:
            raise ValueError(f"an LMCache server with {self.l1_gib} GiB of host memory keeps nothing; give it l1_gib")

    def build_command(self) -> tuple[str, ...]:
        """Return the full argument vector.

        The ZMQ port has no authentication. It is bound to the loopback, unless peers are served; in that case, network
        policies only admit engines.
        """
        return (
            # The publisher's image lacks NIXL; with peers, the server runs in the engine's image, which has both.
            "lmcache" if self.peers else LMCACHE_PROGRAM,
            "server",
            *format_flags(
                {
                    "--host": ANY_ADDRESS if self.peers else "localhost",
                    "--port": self.port,
                    # LMCache's default is the loopback, which Prometheus cannot scrape.
                    "--http-host": ANY_ADDRESS,
                    "--http-port": self.http_port,
                    "--chunk-size": LMCACHE_CHUNK_TOKENS,
                    "--l1-size-gb": self.l1_gib,
                    "--eviction-policy": EVICTION_POLICY,
                    "--max-workers": self.worker_count,
                    "--l2-adapter": dump_compact_json(self.l2.build_adapter_config()) if self.l2 else None,
                    **(self.peers.build_flags() if self.peers else {}),
                }
            ),
        )

    def build_environment(self) -> dict[str, str]:
        """Return the server's environment variables.

        The server opens the engine's GPU memory, so GPUs must be visible although the container requests none.

        The image does not define our user: torch requires a user name, and libraries write to the home directory.
        """
        return {
            **HASH_SEED_ENVIRONMENT,
            **_UNPRIVILEGED_ENVIRONMENT,
            "NVIDIA_VISIBLE_DEVICES": "all",
            **(self.peers.build_environment() if self.peers else {}),
            **(self.placement.build_environment() if self.placement else {}),
        }
