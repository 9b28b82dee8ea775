"""Prints tables and JSON to stdout, and messages to stderr."""

import codecs
import io
import json
import os
import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import typer
from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Column, Table
from rich.text import Span, Text
from typer._click.globals import get_current_context  # typer contains a vendored click

from voice_ops.exits import INVALID_INPUT

ASCII_EQUIVALENTS = {"✓": "+", "✗": "x", "→": "->", "…": "...", "×": "x", "\N{EN DASH}": "-", "·": "-"}
"""Replacements for characters that the output encoding lacks. Other characters become question marks."""


def _replace_unencodable_characters(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(ASCII_EQUIVALENTS.get(each, "?") for each in error.object[error.start : error.end]), error.end


codecs.register_error("voice-plain", _replace_unencodable_characters)
for _stream in (sys.stdout, sys.stderr):
    if isinstance(_stream, io.TextIOWrapper):
        _stream.reconfigure(errors="voice-plain")


MESSAGE_PREFIXES = {"✗ ", "✓ ", "! ", "→ ", "? "}
"""Message prefixes. Continuation lines are indented by the width of the prefix."""


class PlainConsole(Console):
    """A console that does not interpret or truncate text.

    For example, ``[red]`` is not a colour and ``:100:`` is not an emoji.
    """

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, highlight=False, emoji=False, markup=False)

    def print(self, *objects: Any, **options: Any) -> None:  # noqa: ANN401  parameters of rich
        if options.get("soft_wrap") and self.is_terminal and len(objects) == 1 and isinstance(objects[0], str | Text):
            self._print_wrapped(objects[0])
        else:
            super().print(*objects, **{"crop": False} | options)

    def _print_wrapped(self, text: str | Text) -> None:
        """Print text wrapped at words. Continuation lines are indented like the first line."""
        for line in (Text(text) if isinstance(text, str) else text).split("\n", allow_blank=True):
            indent = len(line) - len(line.plain.lstrip(" "))
            mark = 2 if line.plain[indent : indent + 2] in MESSAGE_PREFIXES else 0
            words = wrap_text(line[indent + mark :], max(20, self.width - indent - mark))
            first = line[: indent + mark]
            for number, each in enumerate(words or [Text()]):
                super().print((first if not number else Text(" " * len(first))) + each, crop=False, soft_wrap=True)


def format_markup(template: str, *data: object) -> Text:
    """Return the text of a template with markup, such as ``[red]✗[/] {}``. Markup in the data is not interpreted."""
    text = Text.from_markup(template, emoji=False)
    offsets = [at for match in re.finditer(r"\{\}", text.plain) for at in match.span()]
    values = iter(data)
    pieces = []
    for piece in text.divide(offsets):
        if piece.plain == "{}":
            value = str(next(values))
            pieces.append(Text(value, spans=[Span(0, len(value), each.style) for each in piece.spans]))
        else:
            pieces.append(piece)
    return Text().join(pieces)


def wrap_text(text: Text, width: int) -> list[Text]:
    """Wrap text to a width. Words that exceed the width, such as URLs, are not broken, so that they can be copied."""
    breaks, line_width = [], 0
    for word in re.finditer(r"\S+\s*", text.plain):
        if line_width and line_width + cell_len(word.group().rstrip()) > width:
            breaks.append(word.start())
            line_width = 0
        line_width += cell_len(word.group())
    lines = list(text.divide(breaks))
    for line in lines:
        line.rstrip()
    return lines


out = PlainConsole()
if not out.is_terminal and "COLUMNS" not in os.environ:
    out.width = 120  # rich uses 80 columns for a pipe or a CI log
err = PlainConsole(stderr=True)


_JSON_PRINTED_KEY = "voice.reported"
"""Key in a command's context that records whether the JSON report has been printed."""


def print_error(text: str) -> None:
    """Print an error to stderr. Further lines are indented below the first line."""
    first, _, details = text.partition("\n")
    err.print(format_markup("[red]✗[/] {}", first), soft_wrap=True)
    for line in details.splitlines():
        err.print(f"  {line}", soft_wrap=True)


def create_exit(text: str, code: int) -> typer.Exit:
    """Print the reason why a command ends, in the format that ``--json`` selects, and return the exception to raise."""
    print_error(text)
    print_json_error([text], code)
    return typer.Exit(code)


def print_json_error(problems: list[str], code: int) -> None:
    """Print problems as JSON, if ``--json`` was specified and no report has been printed."""
    context = get_current_context(silent=True)
    if context and context.params.get("as_json") and not context.meta.get(_JSON_PRINTED_KEY):
        print_json({"refused": code == INVALID_INPUT, "problems": problems})


def to_json(value: object) -> str:
    """Serialize plain values, dataclasses and models to JSON. Other objects are serialized as their attributes."""
    from pydantic_core import to_jsonable_python  # noqa: PLC0415  not needed by `voice --help`

    return json.dumps(to_jsonable_python(value, fallback=vars), indent=2)


def print_json(report: Mapping[str, object], deployment: str = "") -> None:
    """Print the JSON report of a command. The report starts with the name of the deployment, if there is one."""
    if context := get_current_context(silent=True):
        context.meta[_JSON_PRINTED_KEY] = True
    typer.echo(to_json(({"deployment": deployment} if deployment else {}) | dict(report)))


class UntruncatedTable(Table):
    """A table that is never wider than the terminal, but does not truncate cells or break numbers.

    If a row is too wide, its widest cells are printed below the row, each after the heading of its column.
    """

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        rows = list(zip(*(list(column.cells) for column in self.columns), strict=True))
        widths = [self._column_width(console, column, index, rows) for index, column in enumerate(self.columns)]
        moved_columns: list[int] = []
        # Columns are separated by three characters, and the edge has one. The first column identifies the
        # row, so it is never moved.
        while len(moved_columns) < len(widths) - 1 and sum(widths) + 3 * len(widths) + 1 > options.max_width:
            widest = max(range(1, len(widths)), key=widths.__getitem__)
            moved_columns.append(widest)
            widths[widest] = -3
        if moved_columns:
            yield from self._render_stacked(console, options, rows, sorted(moved_columns))
        else:
            yield from super().__rich_console__(console, options)
        if self.caption:
            yield Segment.line()  # as after a table without this line

    def _column_width(
        self, console: Console, column: Column, index: int, rows: list[tuple[RenderableType, ...]]
    ) -> int:
        cells = [column.header, *(row[index] for row in rows)]
        return max(
            (Measurement.get(console, console.options, _to_text(console, cell)).maximum for cell in cells), default=0
        )

    def _render_stacked(
        self,
        console: Console,
        options: ConsoleOptions,
        rows: list[tuple[RenderableType, ...]],
        moved_columns: list[int],
    ) -> RenderResult:
        remaining_columns = [index for index in range(len(self.columns)) if index not in moved_columns]
        slim = Table(title=self.title, title_justify="left", box=self.box, caption=self.caption, caption_justify="left")
        for index in remaining_columns:
            column = self.columns[index]
            slim.add_column(column.header, justify=column.justify, no_wrap=True)
        for row, style in zip(rows, self.rows, strict=True):
            slim.add_row(*(row[index] for index in remaining_columns), end_section=style.end_section)
        lines = console.render_lines(slim, options, pad=False)
        notes = iter([_render_overflowing_cells(console, options, self.columns, row, moved_columns) for row in rows])
        # Each row of the slim table is one line, since its cells do not wrap. The header ends with a rule.
        rule_index = next(
            (at for at, line in enumerate(lines) if set("".join(each.text for each in line).strip()) == {"─"}), -1
        )
        for at, line in enumerate(lines):
            yield from line
            yield Segment.line()
            text = "".join(each.text for each in line).strip()
            if at > rule_index and text and set(text) != {"─"}:
                yield from next(notes, [])


def _to_text(console: Console, cell: RenderableType) -> RenderableType:
    return console.render_str(cell) if isinstance(cell, str) else cell


def _render_overflowing_cells(
    console: Console,
    options: ConsoleOptions,
    columns: list[Column],
    row: tuple[RenderableType, ...],
    moved_columns: list[int],
) -> list[Segment]:
    """Render the cells that did not fit into a row, each after the heading of its column."""
    parts: list[Text] = []
    for index in moved_columns:
        cell, header = _to_text(console, row[index]), _to_text(console, columns[index].header)
        if isinstance(cell, Text) and isinstance(header, Text) and cell.plain:
            parts.append(Text.assemble(f"{header.plain}: " if header.plain else "", cell))
    results: list[Segment] = []
    for line in wrap_text(Text("; ").join(parts), options.max_width - 6) if parts else ():
        results += [Segment("      "), *line.render(console), Segment.line()]
    return results


def create_table(title: str, words: Iterable[str], numbers: Iterable[str], last: str = "", caption: str = "") -> Table:
    """Create a table without rows.

    Args:
        words: Headings of the columns with text.
        numbers: Headings of the columns with numbers.
        last: Heading of a last column, whose text may wrap.
    """
    table = UntruncatedTable(title=title, title_justify="left", box=box.SIMPLE_HEAD, caption=caption or None)
    table.caption_justify = "left"
    for heading in words:
        table.add_column(heading, no_wrap=True)
    for heading in numbers:
        table.add_column(heading, justify="right", no_wrap=True)
    if last:
        table.add_column(last)
    return table


def create_stack_table(title: str, stacks: dict[str, Counter[str]]) -> Table:
    """Return a table of resource counts by stack and type."""
    table = create_table(title, ["stack"], ["resources"], "types")
    for name, types in stacks.items():
        table.add_row(name, str(types.total()), format_type_counts(types))
    table.add_section()
    table.add_row("", str(sum(types.total() for types in stacks.values())), "")
    return table


def format_type_counts(types: Counter[str]) -> str:
    """Return a list such as "9×EC2::Subnet, 1×EC2::VPC", ordered by descending count and then by name."""
    ordered = sorted(types.items(), key=lambda each: (-each[1], each[0]))
    return ", ".join(f"{count}×{kind.removeprefix('AWS::')}" for kind, count in ordered)


def format_range(low: int, high: int) -> str:
    """Format a range, such as "3-30"."""
    return f"{low}-{high}"
