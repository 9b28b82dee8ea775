"""Builds the data plane for the benchmarks as in its image."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROJECT = ROOT / "images/vad-dataplane"
SCRIPT = PROJECT / "timing/product.sh"
PRODUCT = ROOT / "build/vad-dataplane/release"


def build(*targets: str) -> None:
    """Compile targets in release mode. Missing Debian packages are installed.

    Raises:
        subprocess.CalledProcessError: A target does not compile.
    """
    subprocess.run([SCRIPT, PRODUCT, *targets], check=True, stdout=subprocess.DEVNULL)  # noqa: S603
