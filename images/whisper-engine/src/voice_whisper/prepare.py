"""`python -m voice_whisper.prepare`: fetches a model and compiles it, for a job that leaves both to other hosts."""

import os
import sys

from voice_whisper.backends.base import CannotLoadError, Role, load
from voice_whisper.settings import ModelSettings


def main() -> int:
    """Load the model once, both halves; exit with 1 when that is not possible."""
    try:
        load(ModelSettings(), Role.COLOCATED, os.cpu_count() or 1, 0)
    except CannotLoadError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
