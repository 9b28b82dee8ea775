"""The data plane as in its image, built for the benchmarks."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROJECT = ROOT / "images/vad-dataplane"
SCRIPT = PROJECT / "timing/product.sh"
PRODUCT = ROOT / "build/vad-dataplane/release"


def build(*targets: str) -> None:
    """Compile some targets in release mode; missing Debian packages are installed.

    Raises:
        subprocess.CalledProcessError: It does not compile.
    """
    subprocess.run([SCRIPT, PRODUCT, *targets], check=True, stdout=subprocess.DEVNULL)  # noqa: S603
