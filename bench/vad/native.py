# mypy: disable-error-code="import-not-found"
"""The built module: its decisions and its cost."""

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bench.vad.corpus import Flags
from bench.vad.module import ROOT

HERE = Path(__file__).parent
PROJECT = ROOT / "images/vad-dataplane"
TARGETS = ("src/vad/vad.so", "src/vad/libvad_host.a", "tests/vad/libvad_native.a")


@dataclass(frozen=True)
class Cost:
    """Nanoseconds a frame, of the thread's own time."""

    wasm_ns: float
    native_ns: float
    wasm_best_ns: float
    native_best_ns: float
    gated: float
    frames: int
    different: int


class Build:
    """The data plane's own build of the module and its host, and two small programs around them."""

    def __init__(self, folder: Path) -> None:
        build = folder / "release"
        if not (build / "build.ninja").exists():
            self._run("meson", "setup", str(build), str(PROJECT), "--buildtype=release")
        self._run("ninja", "-C", str(build), *TARGETS)
        self._module = str(build / TARGETS[0])
        self._programs = {}
        for name in ("decide", "frame_cost"):
            program = self._programs[name] = str(folder / name)
            libraries = [str(build / target) for target in TARGETS[1:]]
            flags = ["-std=c++20", "-O2", "-Wall", "-Wextra", "-Werror", f"-I{PROJECT / 'src'}"]
            self._run("c++", *flags, str(HERE / f"{name}.cpp"), *libraries, "-ldl", "-o", program)

    @staticmethod
    def _run(*command: str, stdin: bytes | None = None) -> bytes:
        return subprocess.run(command, input=stdin, capture_output=True, check=True).stdout  # noqa: S603

    def decisions(self, samples: npt.NDArray[np.int16]) -> tuple[Flags, Flags]:
        """Return which frames are sent, pre-roll included, and which were decided by energy alone."""
        raw = np.frombuffer(self._run(self._programs["decide"], self._module, stdin=samples.tobytes()), np.uint8)
        flags, pre_roll = raw[::2], raw[1::2]
        sent: Flags = (flags & 1) > 0
        for frame in np.flatnonzero(pre_roll):
            sent[max(0, frame - pre_roll[frame]) : frame] = True
        return sent, (flags & 2) > 0

    def cost(self, samples: npt.NDArray[np.int16], folder: Path) -> Cost:
        """Return what a frame of this audio costs."""
        audio = folder / "audio.s16"
        audio.write_bytes(samples.tobytes())
        return Cost(**json.loads(self._run(self._programs["frame_cost"], self._module, str(audio))))
