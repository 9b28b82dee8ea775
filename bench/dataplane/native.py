"""Builds and runs the native programs of `images/vad-dataplane/timing`."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np
import numpy.typing as npt

from bench import product
from bench.product import PRODUCT_BUILD_FOLDER, PROJECT, ROOT
from bench.vad.native import BuiltModule

SOURCE_FOLDER = PROJECT / "timing"
BUILD_FOLDER = ROOT / "build/bench-dataplane/native"
VAD_MODULE = PRODUCT_BUILD_FOLDER / "src/vad/vad.so"
PRODUCT_TARGETS = (
    "src/vad-dataplane",
    "src/vad/vad.so",
    "src/vad/libvad_host.a",
    "subprojects/libsrtp-2.5.0/libsrtp2.a",
)

PRODUCT_PREFIX = "voice"

REDIS_PROGRAM = Path("/usr/bin/redis-check-rdb")
"""The Redis server's program under another name. Debian's server package would start the server on port 6379."""


@dataclass(frozen=True)
class Measurement:
    """Results of a contestant, by round. Within a group, the rounds of the contestants alternate.

    Attributes:
        group: Subject of the measurement. Only measurements in the same group can be compared.
        name: Name of the contestant, which is ``voice`` or an alternative.
        unit: Unit of the rounds. Higher rates and shares are better, as are lower times.
    """

    group: str
    name: str
    unit: str
    rounds: tuple[float, ...]

    @property
    def best(self) -> float:
        """Value of the best round."""
        return max(self.rounds) if self.higher_is_better else min(self.rounds)

    @property
    def median(self) -> float:
        """Median of all rounds."""
        return median(self.rounds)

    @property
    def higher_is_better(self) -> bool:
        """Whether the unit is not a time."""
        return self.unit not in ("ns", "us")

    def calculate_speedup(self, other: "Measurement") -> float:
        """Return the factor by which the best round is better than the best round in another measurement."""
        return self.best / other.best if self.higher_is_better else other.best / self.best


def build_benchmarks() -> None:
    """Compile the data plane and the benchmarks in release mode. Missing Debian packages are installed."""
    subprocess.run([PROJECT / "tests/install.sh", SOURCE_FOLDER / "packages.txt"], check=True)  # noqa: S603
    product.build_product_targets(*PRODUCT_TARGETS)
    if not (BUILD_FOLDER / "build.ninja").exists():
        setup = ["meson", "setup", f"-Dproduct={PRODUCT_BUILD_FOLDER}", str(BUILD_FOLDER), str(SOURCE_FOLDER)]
        subprocess.run(setup, check=True, stdout=subprocess.DEVNULL)  # noqa: S603
    subprocess.run(["ninja", "--quiet", "-C", str(BUILD_FOLDER)], check=True)  # noqa: S603, S607


def parse_measurements(output: str) -> list[Measurement]:
    """Parse the output of a benchmark, which is one JSON object per line."""
    lines = map(json.loads, output.splitlines())
    return [Measurement(one["group"], one["name"], one["unit"], tuple(one["rounds"])) for one in lines]


def combine_rounds(measurements: Sequence[Measurement]) -> Measurement:
    """Return the rounds of several runs as one measurement."""
    return replace(measurements[0], rounds=tuple(chain.from_iterable(one.rounds for one in measurements)))


def check_out_commit(commit: str, patch: Path) -> Path:
    """Check out a commit, apply a patch, build the benchmarks from that code, and return the folder.

    Raises:
        subprocess.CalledProcessError: The commit is not in the history, or does not compile.
    """
    folder = ROOT / "build/bench-dataplane" / commit
    if not folder.exists():
        subprocess.run(["git", "worktree", "add", "--detach", str(folder), commit], cwd=ROOT, check=True)  # noqa: S603, S607
        subprocess.run(["git", "apply", str(patch)], cwd=folder, check=True)  # noqa: S603, S607
    code = "from bench.dataplane import native; native.build()"
    subprocess.run([sys.executable, "-c", code], cwd=folder, check=True, env=os.environ | {"PYTHONPATH": str(folder)})  # noqa: S603
    return folder


def run_benchmark(bench: str, *arguments: str, build: Path = BUILD_FOLDER) -> list[Measurement]:
    command = [str(build / bench), *arguments]
    return parse_measurements(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)  # noqa: S603


@contextmanager
def run_redis() -> Iterator[str]:
    """Start a Redis server without persistence on a Unix socket, and yield the path of the socket."""
    with TemporaryDirectory() as folder:
        socket = Path(folder, "redis.sock")
        options = ["--port", "0", "--unixsocket", str(socket), "--save", "", "--appendonly", "no", "--dir", folder]
        command = ["redis-server", *options]
        server = subprocess.Popen(command, executable=REDIS_PROGRAM, stdout=subprocess.DEVNULL)  # noqa: S603
        try:
            for _ in range(100):
                if socket.exists():
                    break
                time.sleep(0.1)
            yield str(socket)
        finally:
            server.terminate()
            server.wait()


def measure_vad(folder: Path, audio: npt.NDArray[np.int16]) -> list[Measurement]:
    """Measure the VAD module in WebAssembly and as machine code."""
    cost = BuiltModule(folder).measure_cost(audio, folder)
    group = "VAD of a frame, 2,000 streams in turn"
    return [
        Measurement(group, f"{PRODUCT_PREFIX} (wasm)", "ns", cost.wasm_ns),
        Measurement(group, "the same C, native", "ns", cost.native_ns),
    ]


def measure_stages(rounds: int, folder: Path, audio: npt.NDArray[np.int16]) -> Iterator[list[Measurement]]:
    """Run the benchmark of each stage, and yield its measurements."""
    yield run_benchmark("time_ring", str(rounds))
    yield measure_vad(folder, audio)
    yield run_benchmark("time_log_mel", str(rounds))
    if os.geteuid() == 0:
        yield run_benchmark("time_sending", str(rounds))
    with run_redis() as socket:
        yield run_benchmark("time_state", str(rounds), socket)
