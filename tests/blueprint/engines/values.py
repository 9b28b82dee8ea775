"""Validation of a value from a command line or a JSON document against its setting."""

import json
import re
from collections.abc import Iterator

from voice_blueprint.engines.published.release import Setting
from voice_blueprint.file.suggestion import format_suggestion

_SIZE = re.compile(r"\d+(\.\d+)?[kmgt]|\d+[KMGT]?")
_SUBSTITUTED = re.compile(r"\$\(\w+\)")
"""References that Kubernetes replaces by a variable's value, which is known only when the container starts."""
_EMPTY_VALUES = {"", "None"}
"""Representations of "no value" for an optional setting in vLLM's command line."""
_PLAIN_TYPES: dict[str, tuple[type, ...]] = {
    "str": (str,), "int": (int,), "float": (int, float), "bool": (bool,), "json": (dict,),
}  # fmt: skip
_TYPE_NAMES = {"str": "text", "int": "whole number", "float": "number", "bool": "true or false", "json": "object"}
_SIZES = {"size", "size-or-auto"}


def text_problems(setting: Setting, text: str) -> Iterator[str]:
    """Yield the problems of a command-line value; JSON is only checked for syntax."""
    if _SUBSTITUTED.fullmatch(text) or (setting.nullable and text in _EMPTY_VALUES):
        return
    if setting.choices:
        yield from _choice_problems(setting, text)
    elif setting.type in _SIZES:
        if not _SIZE.fullmatch(text) and not (setting.type == "size-or-auto" and text in {"auto", "-1"}):
            yield f"{_shorten(text)} is no whole number, or one that ends in k, m, g, t, K, M, G or T"
    elif setting.type in {"int", "float"}:
        if not _is_number(text, whole=setting.type == "int"):
            yield f"{_shorten(text)} is no {'whole ' if setting.type == 'int' else ''}number"
    elif setting.type == "json" or (setting.type == "json-or-str" and text.lstrip().startswith("{")):
        try:
            json.loads(text)
        except json.JSONDecodeError as error:
            yield f"{_shorten(text)} is no JSON: {error}"


def value_problems(setting: Setting, value: object) -> Iterator[str]:
    """Yield the problems of a value in a JSON or YAML document, without checking nested objects."""
    if value is None:
        if not setting.nullable and setting.type != "any":
            yield "is null, and needs a value"
    elif setting.nargs is None:
        yield from _item_problems(setting, value)
    elif isinstance(value, list):
        for item in value:
            yield from _item_problems(setting, item)
    else:
        yield f"{_shorten(value)} is no list"


def _item_problems(setting: Setting, value: object) -> Iterator[str]:
    if setting.choices:
        yield from _choice_problems(setting, value)
    elif setting.type in _PLAIN_TYPES:
        is_bool = isinstance(value, bool)
        if not isinstance(value, _PLAIN_TYPES[setting.type]) or is_bool is not (setting.type == "bool"):
            yield f"{_shorten(value)} is no {_TYPE_NAMES[setting.type]}"


def _choice_problems(setting: Setting, value: object) -> Iterator[str]:
    def normalize(choice: object) -> str:
        return str(choice).lower() if setting.any_case else str(choice)

    if normalize(value) not in map(normalize, setting.choices):
        known = [str(choice) for choice in setting.choices]
        added = ", and no plug-in adds it" if setting.extensible else ""
        near = format_suggestion(str(value), known)
        yield f"{_shorten(value)} is none of {', '.join(known)}{added}{near}"


def _is_number(text: str, *, whole: bool) -> bool:
    try:
        _ = int(text) if whole else float(text)
    except ValueError:
        return False
    return True


def _shorten(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 80 else f"{text[:77]}..."
