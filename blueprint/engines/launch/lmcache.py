"""``lmcache server``: host memory, and disk beneath it, that keep KV cache of sessions that may come back."""

from dataclasses import dataclass

from blueprint.engines.launch.base import ANY_ADDRESS, Launcher, compact_json, flags
from blueprint.engines.launch.fabric import HASH_SEED
from blueprint.engines.launch.placement import Placement

CHUNK_TOKENS = 256
"""LMCache's default; shorter prompts store nothing."""

EVICTION_POLICY = "LRU"


@dataclass(frozen=True)
class NvmeStore:
    """Files on local NVMe.

    Attributes:
        path: Directory, writable by the server's user.
        gib: When they take more, the least recently used go.
    """

    path: str
    gib: float

    def adapter(self) -> dict[str, object]:
        """Return the JSON value of ``--l2-adapter``. Without ``eviction`` the size would be accounted, not kept."""
        return {
            "type": "fs_native",
            "base_path": self.path,
            "max_capacity_gb": self.gib,
            "eviction": {"eviction_policy": EVICTION_POLICY},
        }


@dataclass(frozen=True)
class LmcacheServer(Launcher):
    """One LMCache server in multi-process mode; every engine has its own.

    Attributes:
        l1_gib: Pinned host memory, GiB in total: in this mode it does not multiply with tensor parallelism.
        port: ZMQ, for the engine on the same loopback.
        http_port: Health and metrics.
        l2: What lies beneath host memory.
        workers: Threads that move KV cache, and as many that look it up; one for each GPU of the engine.
        placement: The engine's GPUs come first among those that the server sees. It is not bound to their NUMA nodes:
            the publisher's image has no numactl.
    """

    l1_gib: float
    port: int
    http_port: int
    l2: NvmeStore | None = None
    workers: int = 1
    placement: Placement | None = None

    def __post_init__(self) -> None:
        if self.l1_gib <= 0:
            raise ValueError(f"an LMCache server with {self.l1_gib} GiB of host memory keeps nothing; give it l1_gib")

    def command(self) -> tuple[str, ...]:
        """Return the full argument vector. The ZMQ port has no authentication and stays on the loopback."""
        return (
            "lmcache",
            "server",
            *flags(
                {
                    "--host": "localhost",
                    "--port": self.port,
                    # LMCache's default is the loopback, where nobody could scrape it.
                    "--http-host": ANY_ADDRESS,
                    "--http-port": self.http_port,
                    "--chunk-size": CHUNK_TOKENS,
                    "--l1-size-gb": self.l1_gib,
                    "--eviction-policy": EVICTION_POLICY,
                    "--max-workers": self.workers,
                    "--l2-adapter": compact_json(self.l2.adapter()) if self.l2 else None,
                }
            ),
        )

    def environment(self) -> dict[str, str]:
        """Return the variables; the server opens the engine's GPU memory, so it has to see the GPUs unasked."""
        return {
            **HASH_SEED,
            "LMCACHE_TRACK_USAGE": "false",
            "NVIDIA_VISIBLE_DEVICES": "all",
            **(self.placement.environment() if self.placement else {}),
        }
