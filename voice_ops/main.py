"""Entry point of the `voice` command. The module imports little, so that Ctrl-C works from the start."""

import gc
import os
import signal
from types import FrameType

from voice_ops.exits import INTERRUPTED
from voice_sandbox.loopback import bypass_proxy_for_loopback

OBJECTS_BETWEEN_COLLECTIONS = 100_000
"""Number of new objects after which Python looks for unused ones. The imports of a command create this many objects,
and all of them live until it exits."""


def main() -> None:
    """Run the command line of this process.

    Pydantic does not search for plugins, which takes a tenth of the time of a command, and which may change how
    deployment files are read. A caller can set PYDANTIC_DISABLE_PLUGINS to allow them.
    """
    signal.signal(signal.SIGINT, _exit)
    gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS)
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    try:
        from voice_ops.cli import app  # noqa: PLC0415  this import takes most of the start-up time

        bypass_proxy_for_loopback(os.environ)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        app()
    except KeyboardInterrupt:
        os._exit(INTERRUPTED)  # in case of Ctrl-C between two lines of this function


def _exit(_signal: int, _frame: FrameType | None) -> None:
    """Exit at once. This is the signal handler during imports, when no processes have been started yet."""
    os._exit(INTERRUPTED)
