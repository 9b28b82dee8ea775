"""How the `voice` command talks: tables for people, JSON for pipelines, messages on stderr."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import typer
from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.markup import escape
from rich.table import Table
from rich.text import Text


class WholeConsole(Console):
    """A console that leaves lines that are longer than the terminal to the terminal."""

    def print(self, *objects: Any, **how: Any) -> None:  # noqa: ANN401  those of rich
        super().print(*objects, **{"crop": False} | how)


out = WholeConsole(highlight=False)
if not out.is_terminal:
    out.width = max(out.width, 100)  # rich takes 80 for a pipe or a CI log, which cuts tables short
err = Console(stderr=True, highlight=False)


def complain(text: str) -> None:
    """Print what is wrong on stderr, further lines below the first."""
    first, _, more = text.partition("\n")
    err.print(f"[red]✗[/] {escape(first)}", soft_wrap=True)
    for line in more.splitlines():
        err.print(f"  {escape(line)}", soft_wrap=True)


def stop(text: str, code: int) -> typer.Exit:
    """Print why a command ends here; raise what this returns."""
    complain(text)
    return typer.Exit(code)


def as_json(value: object) -> str:
    """Return JSON of plain values, dataclasses and models; what is neither is written as its attributes."""
    from pydantic_core import to_jsonable_python  # noqa: PLC0415  `voice --help` does without

    return json.dumps(to_jsonable_python(value, fallback=vars), indent=2)


def print_json(report: Mapping[str, object], deployment: str = "") -> None:
    """Print what ``--json`` says: always an object, led by the deployment's name where there is one."""
    typer.echo(as_json(({"deployment": deployment} if deployment else {}) | dict(report)))


class WholeTable(Table):
    """A table that cuts nothing: where the terminal is too narrow, words wrap and numbers stay whole."""

    def add_row(self, *cells: RenderableType | None, **how: Any) -> None:  # noqa: ANN401  those of rich
        for column, cell in zip(self.columns, cells, strict=False):
            texts = [Text.from_markup(text).plain for text in (column.header, cell) if isinstance(text, str)]
            whole = texts if column.no_wrap else [word for text in texts for word in text.split()]
            column.min_width = max(column.min_width or 0, *map(cell_len, whole), 0)
        super().add_row(*cells, **how)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        # Of too narrow a terminal rich takes whole columns away.
        least = sum((column.min_width or 0) + 3 for column in self.columns)
        return super().__rich_console__(console, options.update_width(max(options.max_width, least)))


def empty_table(title: str, words: Iterable[str], numbers: Iterable[str], last: str = "", caption: str = "") -> Table:
    """Return a table without rows: columns of words, of numbers, and a last one of words that may wrap."""
    table = WholeTable(title=title, title_justify="left", box=box.SIMPLE_HEAD, caption=caption or None)
    table.caption_justify = "left"
    for heading in words:
        table.add_column(heading, no_wrap=True)
    for heading in numbers:
        table.add_column(heading, justify="right", no_wrap=True)
    if last:
        table.add_column(last)
    return table


def stack_table(title: str, stacks: dict[str, Counter[str]]) -> Table:
    """Return a table of resource counts by stack and type."""
    table = empty_table(title, ["stack"], ["resources"], "types")
    for name, types in stacks.items():
        table.add_row(name, str(types.total()), describe_types(types))
    table.add_section()
    table.add_row("", str(sum(types.total() for types in stacks.values())), "")
    return table


def describe_types(types: Counter[str]) -> str:
    """Return a short list such as "9×EC2::Subnet, 1×EC2::VPC", most frequent first."""
    return ", ".join(f"{count}×{kind.removeprefix('AWS::')}" for kind, count in types.most_common())


def span(low: int, high: int) -> str:
    """Return a range such as "3-30"."""
    return f"{low}-{high}"
