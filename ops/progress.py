"""Progress of long work: what is being done, for how long, and the last line of the tool that does it."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

from rich.console import Console
from rich.markup import escape

_LINE_WIDTH = 100
SILENCE_S = 30.0
"""Longest that work goes on without a line, where no spinner turns: a pipeline takes silence for death."""


@contextmanager
def heartbeat(console: Console, label: str) -> Iterator[None]:
    """Print a line every 30 s while the block runs, where no terminal shows a spinner."""
    over, start = Event(), time.monotonic()

    def beat() -> None:
        while not over.wait(SILENCE_S):
            console.print(f"… {escape(label)} [dim]{time.monotonic() - start:.0f} s[/]")

    thread = Thread(target=beat, daemon=True)
    if not console.is_terminal:
        thread.start()
    try:
        yield
    finally:
        over.set()
        if thread.ident:
            thread.join()


class Progress:
    """Prints a line for each finished phase, and shows a spinner with details while one runs on a terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._status = console.status("")
        self._label = ""

    @contextmanager
    def phase(self, label: str) -> Iterator[None]:
        """Run the block as one phase."""
        self._label = label
        self._status.update(label)
        start = time.monotonic()
        mark = "[red]✗[/]"
        self._status.start()
        try:
            with heartbeat(self._console, label):
                yield
            mark = "[green]✓[/]"
        finally:
            self._status.stop()
            self._console.print(f"{mark} {escape(label)} [dim]{time.monotonic() - start:.1f} s[/]")

    def detail(self, line: str) -> None:
        """Show a line of output beside the spinner."""
        if line.strip():
            self._status.update(f"{self._label} [dim]{escape(line.strip()[:_LINE_WIDTH])}[/]")
