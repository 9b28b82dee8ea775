"""Generated tables of a document, each identified by a marker; a test compares the document with the computation."""

import re
from collections.abc import Callable, Mapping, Sequence

_TABLE = re.compile(r"(<!-- table: (?P<name>[a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def rendered(text: str, tables: Mapping[str, Callable[[], str]]) -> str:
    """Return a document with every table regenerated.

    Raises:
        KeyError: The document contains an unknown marker.
    """
    return _TABLE.sub(lambda found: f"{found[1]}\n{tables[found['name']]()}\n\n{found[3]}", text)


def markdown(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
