# mypy: disable-error-code="import-not-found"
"""Builds the VAD module from its source, and traces the input to its network."""

import ctypes
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

LogOdds: TypeAlias = npt.NDArray[np.float64]

ROOT = Path(__file__).parents[2]
VAD_SOURCE_FOLDER = ROOT / "images/vad-dataplane/src/vad"
SAMPLES_PER_FRAME = 320


def build_trace_library(folder: Path) -> ctypes.CDLL:
    """Compile the module together with trace.c for this machine, and load it."""
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / "trace.so"
    flags = ["-std=gnu11", "-O3", "-ffp-contract=off", "-shared", "-fPIC", f"-I{VAD_SOURCE_FOLDER}"]
    subprocess.run(  # noqa: S603
        ["cc", *flags, str(Path(__file__).with_name("trace.c")), "-o", str(library)],  # noqa: S607
        check=True,
    )
    return ctypes.CDLL(str(library))


@dataclass(frozen=True)
class NetworkInputTrace:
    """Input to the network for a track, with one row per frame."""

    inputs: npt.NDArray[np.float32]
    is_gated: npt.NDArray[np.bool_]
    """Whether the energy gate classified the frame without the network."""
    is_observed: npt.NDArray[np.bool_]
    """Whether the network ran. The inputs for other frames are stale."""

    def calculate_log_odds(
        self, network: Callable[[npt.NDArray[np.float32]], npt.NDArray[np.float32]], gated_odds: float
    ) -> LogOdds:
        """Return the log-odds of each frame. Frames without a value of their own repeat the previous value."""
        probabilities = np.full(len(self.inputs), np.nan)
        probabilities[self.is_observed] = network(self.inputs[self.is_observed])
        probabilities[self.is_gated] = gated_odds
        last_frame = np.maximum.accumulate(np.where(np.isnan(probabilities), 0, np.arange(len(probabilities))))
        return probabilities[last_frame]


def trace_network_inputs(library: ctypes.CDLL, samples: npt.NDArray[np.int16]) -> NetworkInputTrace:
    """Run the module on a track, and return the inputs to the network."""
    frames = len(samples) // SAMPLES_PER_FRAME
    rows = np.zeros((frames, int(library.trace_columns())), np.float32)
    contiguous = np.ascontiguousarray(samples)
    library.trace(ctypes.c_void_p(contiguous.ctypes.data), frames, ctypes.c_void_p(rows.ctypes.data))
    return NetworkInputTrace(rows[:, :-2], rows[:, -2] > 0, rows[:, -1] > 0)
