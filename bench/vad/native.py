# mypy: disable-error-code="import-not-found"
"""Builds the VAD module in the same way as for its image, and measures its decisions and cost."""

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
import numpy.typing as npt

from bench import product
from bench.product import PRODUCT_BUILD_FOLDER, PROJECT
from bench.vad.corpus import FrameFlags

BENCH_DIR = Path(__file__).parent
BUILD_TARGETS = ("src/vad/vad.so", "src/vad/libvad_host.a", "tests/vad/libvad_native.a", "src/libsupport.a")


@dataclass(frozen=True)
class FrameCost:
    """CPU time per frame in nanoseconds, in several rounds over all streams."""

    wasm_ns: tuple[float, ...]
    native_ns: tuple[float, ...]
    gated: float
    frames: int
    different: int

    def __str__(self) -> str:
        wasm, native = (f"{median(one):,.0f} ({min(one):,.0f})" for one in (self.wasm_ns, self.native_ns))
        return f"{wasm} | {native} | {self.gated:.0%} | {self.different:,} of {self.frames:,}"


class BuiltModule:
    """The VAD module and its WebAssembly host, built as for the image, with two small programs that call them."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        product.build_product_targets(*BUILD_TARGETS)
        self._module = str(PRODUCT_BUILD_FOLDER / BUILD_TARGETS[0])
        self._programs = {}
        for name in ("decide", "frame_cost"):
            program = self._programs[name] = str(folder / name)
            libraries = [str(PRODUCT_BUILD_FOLDER / target) for target in BUILD_TARGETS[1:]]
            flags = ["-std=c++20", "-O2", "-Wall", "-Wextra", "-Werror", f"-I{PROJECT / 'src'}"]
            self._run("c++", *flags, str(BENCH_DIR / f"{name}.cpp"), *libraries, "-ldl", "-o", program)

    @staticmethod
    def _run(*command: str, stdin: bytes | None = None) -> bytes:
        return subprocess.run(command, input=stdin, stdout=subprocess.PIPE, check=True).stdout  # noqa: S603

    def decide_frames(self, samples: npt.NDArray[np.int16]) -> tuple[FrameFlags, FrameFlags]:
        """Return the frames that are sent, including pre-roll, and the frames that the energy gate classified."""
        raw = np.frombuffer(self._run(self._programs["decide"], self._module, stdin=samples.tobytes()), np.uint8)
        flags, pre_roll = raw[::2], raw[1::2]
        sent: FrameFlags = (flags & 1) > 0
        for frame in np.flatnonzero(pre_roll):
            sent[max(0, frame - pre_roll[frame]) : frame] = True
        return sent, (flags & 2) > 0

    def measure_cost(self, samples: npt.NDArray[np.int16], folder: Path) -> FrameCost:
        """Measure the cost per frame of this audio."""
        audio = folder / "audio.s16"
        audio.write_bytes(samples.tobytes())
        return FrameCost(**json.loads(self._run(self._programs["frame_cost"], self._module, str(audio))))
