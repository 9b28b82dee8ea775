"""Builds the data plane for the benchmarks in the same way as for its image."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROJECT = ROOT / "images/vad-dataplane"
BUILD_SCRIPT = PROJECT / "timing/product.sh"
PRODUCT_BUILD_FOLDER = ROOT / "build/vad-dataplane/release"


def build_product_targets(*targets: str) -> None:
    """Compile targets in release mode. Missing Debian packages are installed.

    Raises:
        subprocess.CalledProcessError: A target does not compile.
    """
    subprocess.run([BUILD_SCRIPT, PRODUCT_BUILD_FOLDER, *targets], check=True, stdout=subprocess.DEVNULL)  # noqa: S603
