"""Generates the tables in a document. A marker identifies each table, and a test checks that tables are current."""

import re
from collections.abc import Callable, Mapping, Sequence

_TABLE_PATTERN = re.compile(r"(<!-- table: (?P<name>[a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def render_tables(text: str, tables: Mapping[str, Callable[[], str]]) -> str:
    """Return the text of a document with all tables regenerated.

    Raises:
        KeyError: The document contains an unknown marker.
    """
    return _TABLE_PATTERN.sub(lambda found: f"{found[1]}\n{tables[found['name']]()}\n\n{found[3]}", text)


def format_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
