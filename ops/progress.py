"""Progress of long work: what is being done, for how long, and the last line of the tool that does it."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape

_LINE_WIDTH = 100


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
            yield
            mark = "[green]✓[/]"
        finally:
            self._status.stop()
            self._console.print(f"{mark} {escape(label)} [dim]{time.monotonic() - start:.1f} s[/]")

    def detail(self, line: str) -> None:
        """Show a line of output beside the spinner."""
        if line.strip():
            self._status.update(f"{self._label} [dim]{escape(line.strip()[:_LINE_WIDTH])}[/]")
