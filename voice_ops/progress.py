"""Shows the progress of long operations: the current phase, its duration, and the last line of output."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

from rich.console import Console
from rich.text import Text

from voice_ops.output import format_markup

_LINE_WIDTH = 100
HEARTBEAT_INTERVAL_S = 30.0
"""Maximum time without output if there is no spinner. CI systems may abort jobs without output."""


@contextmanager
def print_heartbeats(console: Console, label: str) -> Iterator[None]:
    """Print a line every 30 s while the block runs, unless the output is a terminal."""
    finished, start = Event(), time.monotonic()

    def print_heartbeat() -> None:
        while not finished.wait(HEARTBEAT_INTERVAL_S):
            console.print(format_markup("… {} [dim]{} s[/]", label, f"{time.monotonic() - start:.0f}"))

    thread = Thread(target=print_heartbeat, daemon=True)
    if not console.is_terminal:
        thread.start()
    try:
        yield
    finally:
        finished.set()
        if thread.ident:
            thread.join()


class Progress:
    """Prints a line for each finished phase. On a terminal, a spinner with details is shown during a phase."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._status = console.status("")
        self._label = ""

    @contextmanager
    def phase(self, label: str) -> Iterator[None]:
        """Run the block as one phase."""
        self._label = label
        self._status.update(Text(label))
        start = time.monotonic()
        mark = "[red]✗[/]"
        self._status.start()
        try:
            with print_heartbeats(self._console, label):
                yield
            mark = "[green]✓[/]"
        finally:
            self._status.stop()
            self._console.print(format_markup(f"{mark} {{}} [dim]{{}} s[/]", label, f"{time.monotonic() - start:.1f}"))

    def show_detail(self, line: str) -> None:
        """Show a line of output next to the spinner."""
        if line.strip():
            self._status.update(format_markup("{} [dim]{}[/]", self._label, line.strip()[:_LINE_WIDTH]))
