"""Suggestions for an unknown word: the most similar known one, or examples."""

import difflib
import re
from collections.abc import Iterable

_SHOWN = 6
_NEAR = 0.7
"""Minimum similarity of two words for a suggestion."""


def choice(word: str, known: Iterable[str]) -> str:
    """Return "; did you mean `x`?" for a misspelt word, otherwise "; take `a`, `b` or ..."."""
    names = sorted(known)
    listed = [f"`{name}`" for name in names[:_SHOWN]]
    if len(names) > _SHOWN:
        listed.append(f"one of {len(names) - _SHOWN} more")
    several = ", ".join(listed[:-1])
    taken = f"; take {several} or {listed[-1]}" if several else f"; take {''.join(listed)}" if listed else ""
    return suggestion(word, names) or taken


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return "; did you mean `x`?" for a misspelt word, or an empty text if no word is similar."""
    near = nearest(word, known)
    return f"; did you mean `{near}`?" if near else ""


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the most similar known word. For types, only the families are compared, since many share `.xlarge`."""
    names = {re.sub(r"[\s_-]", "", name).lower(): name for name in known}
    written = re.sub(r"[\s_-]", "", word).lower()
    # in a short word, swapped letters are a third of it
    swapped = [each for each in names if sorted(each) == sorted(written)]
    near = [names[each] for each in difflib.get_close_matches(written, names, 5, _NEAR) or swapped]
    near.sort(key=lambda each: sorted(each) != sorted(word))  # swapped letters precede other errors
    family, dot, _ = word.lower().partition(".")
    return next((each for each in near if not dot or _same_family(family, each)), None)


def _same_family(family: str, known: str) -> bool:
    return bool(difflib.get_close_matches(family, known.split(".")[:-1]))
