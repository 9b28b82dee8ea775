# mypy: disable-error-code="import-not-found"
"""Builds the VAD module from its source and calls it."""

import ctypes
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Probabilities: TypeAlias = npt.NDArray[np.float64]

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "images/vad-dataplane/src/vad"
FRAME = 320


def build_trace(folder: Path) -> ctypes.CDLL:
    """Build the module for this machine with trace.c."""
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / "trace.so"
    flags = ["-std=gnu11", "-O3", "-ffp-contract=off", "-shared", "-fPIC", f"-I{SOURCE}"]
    subprocess.run(  # noqa: S603
        ["cc", *flags, str(Path(__file__).with_name("trace.c")), "-o", str(library)],  # noqa: S607
        check=True,
    )
    return ctypes.CDLL(str(library))


@dataclass(frozen=True)
class Trace:
    """The network's input for a track, one row per frame."""

    inputs: npt.NDArray[np.float32]
    gated: npt.NDArray[np.bool_]
    """Decided by energy only."""
    is_observed: npt.NDArray[np.bool_]
    """Whether the network ran; the inputs of other frames are stale."""

    def probabilities(
        self, network: Callable[[npt.NDArray[np.float32]], npt.NDArray[np.float32]], gated_odds: float
    ) -> Probabilities:
        """Return the odds of each frame: from the network, from its previous frame, or from the energy gate."""
        probabilities = np.full(len(self.inputs), np.nan)
        probabilities[self.is_observed] = network(self.inputs[self.is_observed])
        probabilities[self.gated] = gated_odds
        last_frame = np.maximum.accumulate(np.where(np.isnan(probabilities), 0, np.arange(len(probabilities))))
        return probabilities[last_frame]


def trace(library: ctypes.CDLL, samples: npt.NDArray[np.int16]) -> Trace:
    """Run the module over a track."""
    frames = len(samples) // FRAME
    rows = np.zeros((frames, int(library.trace_columns())), np.float32)
    contiguous = np.ascontiguousarray(samples)
    library.trace(ctypes.c_void_p(contiguous.ctypes.data), frames, ctypes.c_void_p(rows.ctypes.data))
    return Trace(rows[:, :-2], rows[:, -2] > 0, rows[:, -1] > 0)
