"""Suggestions for an unknown word: the most similar known word, or examples."""

import difflib
import re
from collections.abc import Iterable

_MAX_LISTED_CHOICES = 6
_MIN_SIMILARITY = 0.7
"""Minimum similarity between two words for a suggestion."""


def format_suggestion_or_choices(word: str, valid_names: Iterable[str]) -> str:
    """Return "; did you mean `x`?" for a misspelt word, otherwise "; use `a`, `b` or ..."."""
    names = sorted(valid_names)
    options = [f"`{name}`" for name in names[:_MAX_LISTED_CHOICES]]
    if len(names) > _MAX_LISTED_CHOICES:
        options.append(f"one of {len(names) - _MAX_LISTED_CHOICES} more")
    leading_options = ", ".join(options[:-1])
    choices_text = (
        f"; use {leading_options} or {options[-1]}"
        if leading_options
        else f"; use {''.join(options)}"
        if options
        else ""
    )
    return format_suggestion(word, names) or choices_text


def format_suggestion(word: str, valid_names: Iterable[str]) -> str:
    """Return "; did you mean `x`?" for a misspelt word, or an empty string if no word is similar."""
    candidates = find_closest_match(word, valid_names)
    return f"; did you mean `{candidates}`?" if candidates else ""


def find_closest_match(word: str, valid_names: Iterable[str]) -> str | None:
    """Return the most similar known word. For instance types, only the families are compared.

    Many types share a size such as `.xlarge`.
    """
    names = {re.sub(r"[\s_-]", "", name).lower(): name for name in valid_names}
    normalized = re.sub(r"[\s_-]", "", word).lower()
    # swapped letters can be a third of a short word
    anagrams = [each for each in names if sorted(each) == sorted(normalized)]
    candidates = [names[each] for each in difflib.get_close_matches(normalized, names, 5, _MIN_SIMILARITY) or anagrams]
    candidates.sort(key=lambda each: sorted(each) != sorted(word))  # swapped letters precede other errors
    family, dot, _ = word.lower().partition(".")
    return next((each for each in candidates if not dot or _is_same_family(family, each)), None)


def _is_same_family(family: str, valid_name: str) -> bool:
    return bool(difflib.get_close_matches(family, valid_name.split(".")[:-1]))
