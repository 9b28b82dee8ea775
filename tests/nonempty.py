"""Guard for selections that a test iterates over."""

from collections.abc import Iterable
from typing import TypeVar

Item = TypeVar("Item")


def nonempty(items: Iterable[Item]) -> list[Item]:
    """Return the items as a list. A test whose assertions are in a loop over an empty selection would pass.

    Raises:
        AssertionError: There are no items.
    """
    selected = list(items)
    assert selected, "nothing is selected: the loop below would assert nothing"
    return selected
