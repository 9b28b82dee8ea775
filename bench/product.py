"""The data plane as its image has it, built for the benches."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROJECT = ROOT / "images/vad-dataplane"
SCRIPT = PROJECT / "timing/product.sh"
PRODUCT = ROOT / "build/vad-dataplane/release"


def build(*targets: str) -> None:
    """Compile some of it in release mode; what that needs from Debian is installed when missing.

    Raises:
        subprocess.CalledProcessError: It does not compile.
    """
    subprocess.run([SCRIPT, PRODUCT, *targets], check=True, stdout=subprocess.DEVNULL)  # noqa: S603
