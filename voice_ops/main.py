"""Entry point of the `voice` command. The module imports little, so that Ctrl-C works from the start."""

import os
import signal
from types import FrameType

from voice_ops.exits import INTERRUPTED
from voice_sandbox.loopback import bypass_proxy_for_loopback


def main() -> None:
    """Run the command line of this process."""
    signal.signal(signal.SIGINT, _exit)
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
