"""`python -m voice_whisper.prepare`: downloads and compiles a model, for a job that uploads artifacts."""

import os
import sys

from voice_whisper.backends.base import ModelLoadError, Role, load_backend
from voice_whisper.settings import ModelSettings


def main() -> int:
    """Load both parts of the model once, and return the exit code, which is 1 on failure."""
    try:
        load_backend(ModelSettings(), Role.COLOCATED, os.cpu_count() or 1, 0)
    except ModelLoadError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
