"""Builds and runs the native benches of `images/vad-dataplane/bench`."""

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "images/vad-dataplane/bench"
BUILD = ROOT / "build/vad-dataplane/bench"

OURS = "voice"

REDIS = Path("/usr/bin/redis-check-rdb")
"""Redis' server is this program under another name; Debian's package of that name would start it on port 6379."""


@dataclass(frozen=True)
class Measurement:
    """What one contestant gave, round after round; rounds of contestants took turns.

    Attributes:
        group: What was measured; only measurements of one group compare.
        name: The contestant: ``voice``, or a rival.
        unit: ``M msg/s`` is better when higher, times when lower.
    """

    group: str
    name: str
    unit: str
    rounds: tuple[float, ...]

    @property
    def best(self) -> float:
        """The round that was disturbed least."""
        return max(self.rounds) if self.higher_is_better else min(self.rounds)

    @property
    def median(self) -> float:
        """The round in the middle."""
        return median(self.rounds)

    @property
    def higher_is_better(self) -> bool:
        """Whether this is a rate."""
        return self.unit == "M msg/s"

    def times_better_than(self, other: "Measurement") -> float:
        """Return how many times better the best round is: over 1 is better."""
        return self.best / other.best if self.higher_is_better else other.best / self.best


def build() -> None:
    """Compile the benches in release mode; what they need from Debian is installed when it is missing."""
    packages = (SOURCE / "packages.txt").read_text().split()
    if subprocess.run(["dpkg-query", "--show", *packages], capture_output=True, check=False).returncode != 0:  # noqa: S603, S607
        as_root = [] if os.geteuid() == 0 else ["sudo"]
        install = ["apt-get", "install", "-qq", "-y", "--no-install-recommends", *packages]
        subprocess.run([*as_root, "apt-get", "update", "-qq"], check=True)  # noqa: S603
        subprocess.run([*as_root, *install], check=True)  # noqa: S603
    if not (BUILD / "build.ninja").exists():
        subprocess.run(["meson", "setup", str(BUILD), str(SOURCE)], check=True, capture_output=True)  # noqa: S603, S607
    subprocess.run(["ninja", "--quiet", "-C", str(BUILD)], check=True)  # noqa: S603, S607


def parse(output: str) -> list[Measurement]:
    """Read what a bench printed: one JSON object a line."""
    lines = map(json.loads, output.splitlines())
    return [Measurement(one["group"], one["name"], one["unit"], tuple(one["rounds"])) for one in lines]


def run(bench: str, *arguments: str) -> list[Measurement]:
    """Run one of the benches."""
    command = [str(BUILD / bench), *arguments]
    return parse(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)  # noqa: S603


@contextmanager
def redis() -> Iterator[str]:
    """Start Redis on a socket of its own, in memory alone, and yield the socket's path."""
    with TemporaryDirectory() as folder:
        socket = Path(folder, "redis.sock")
        options = ["--port", "0", "--unixsocket", str(socket), "--save", "", "--appendonly", "no", "--dir", folder]
        command = ["redis-server", *options]
        server = subprocess.Popen(command, executable=REDIS, stdout=subprocess.DEVNULL)  # noqa: S603
        try:
            for _ in range(100):
                if socket.exists():
                    break
                time.sleep(0.1)
            yield str(socket)
        finally:
            server.terminate()
            server.wait()


def all_measurements(rounds: int) -> Iterator[list[Measurement]]:
    """Run every bench; rounds of a bench take a few seconds together."""
    yield run("ring_bench", str(rounds))
    yield run("log_mel_bench", str(rounds))
    with redis() as socket:
        yield run("state_bench", str(rounds), socket)
