"""Parser of command lines that behaves like argparse with vLLM's extensions."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from voice_blueprint.engines.published.release import Command, Setting
from voice_blueprint.file.suggestion import format_suggestion

_NUMBER = re.compile(r"-\d+(\.\d+)?")
_LEVEL = re.compile(r"-O=?(?P<level>.+)")


@dataclass
class Parsed:
    """A parsed command line.

    Attributes:
        given: Flags as written, with their values.
        keys: Individually set JSON values, by flag.
        problems: Syntax errors.
    """

    given: list[tuple[str, Setting, list[str]]] = field(default_factory=list)
    keys: dict[str, dict[str, object]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def parse(command: Command, argv: Sequence[str], release: str) -> Parsed:
    """Parse a command line.

    Args:
        argv: Without the program and the sub-command.
        release: The release's name for messages.
    """
    return _Parser(command, release).parse(list(argv))


class _Parser:
    def __init__(self, command: Command, release: str) -> None:
        self._command = command
        self._release = release
        self._positionals = [flag for flag in command.flags if not flag.name.startswith("-")]
        self._parsed = Parsed()

    def parse(self, argv: list[str]) -> Parsed:
        rest = argv
        while rest:
            word, rest = rest[0], rest[1:]
            if not _is_flag(word):
                self._positional(word)
                continue
            name, equals, attached = self._split_flag(word)
            if self._command.flexible and "." in name and name.startswith("-"):
                rest = self._dotted_values(name, attached if equals else None, rest)
                continue
            flag = self._command.find_flag(name)
            if flag is None:
                self._unknown(name)
                rest = list(_after_values(rest))
                continue
            rest = self._values(name, flag, attached if equals else None, rest)
        return self._parsed

    def _split_flag(self, word: str) -> tuple[str, str, str]:
        if self._command.flexible and (level := _LEVEL.fullmatch(word)):
            return "--optimization-level", "=", level["level"]
        name, equals, attached = word.partition("=")
        if self._command.flexible and name.startswith("--"):
            base, dot, keys = name.partition(".")
            name = base.replace("_", "-") + dot + keys
        return name, equals, attached

    def _positional(self, word: str) -> None:
        if self._positionals:
            flag = self._positionals[0]
            self._parsed.given.append((flag.name, flag, [word]))
            if flag.nargs not in {"*", "+"}:
                self._positionals.pop(0)
        else:
            self._parsed.problems.append(f"`{word}` belongs to no flag ({self._release})")

    def _unknown(self, name: str) -> None:
        near = format_suggestion(name, self._command.names)
        self._parsed.problems.append(f"{self._release} has no flag `{name}`{near}")

    def _dotted_values(self, name: str, attached: str | None, rest: list[str]) -> list[str]:
        base, *path = name.removesuffix("+").split(".")
        flag = self._command.find_flag(base)
        if flag is None:
            self._unknown(base)
        elif flag.type not in {"json", "json-or-str"}:
            self._parsed.problems.append(f"`{name}`: the value of `{base}` has no keys ({self._release})")
        if attached is None:
            if not rest:
                self._parsed.problems.append(f"`{name}` needs a value ({self._release})")
                return rest
            attached, rest = rest[0], rest[1:]
        if flag is not None:
            value: object = attached.split(",") if name.endswith("+") else _json_or_text(attached)
            _set_nested(self._parsed.keys.setdefault(flag.name, {}), path, value)
        return rest

    def _values(self, name: str, flag: Setting, attached: str | None, rest: list[str]) -> list[str]:
        if flag.type in {"switch", "bool"}:
            if attached is not None:
                self._parsed.problems.append(f"`{name}` takes no value, and is given `{attached}` ({self._release})")
            self._parsed.given.append((name, flag, []))
            return rest
        least, most = _value_count(flag)
        values = [attached] if attached is not None else []
        while rest and attached is None and len(values) < most and not _is_flag(rest[0]):
            values, rest = [*values, rest[0]], rest[1:]
        if len(values) < least:
            needed = "a value" if least == 1 else f"{least} values"
            self._parsed.problems.append(f"`{name}` needs {needed} ({self._release})")
        self._parsed.given.append((name, flag, values))
        return rest


def _value_count(flag: Setting) -> tuple[int, float]:
    match flag.nargs:
        case int(count):
            return count, count
        case "?":
            return 0, 1
        case "*":
            return 0, float("inf")
        case "+":
            return 1, float("inf")
    return 1, 1


def _is_flag(word: str) -> bool:
    return word.startswith("-") and len(word) > 1 and not _NUMBER.fullmatch(word)


def _after_values(rest: list[str]) -> Iterator[str]:
    """Yield the arguments after the values of an unknown flag."""
    started = False
    for word in rest:
        started = started or _is_flag(word)
        if started:
            yield word


def _json_or_text(text: str) -> object:
    try:
        value: object = json.loads(text)
    except json.JSONDecodeError:
        return text
    return value


def _set_nested(document: dict[str, object], path: list[str], value: object) -> None:
    *parents, last = path
    for key in parents:
        inner = document.setdefault(key, {})
        if not isinstance(inner, dict):
            inner = document[key] = {}
        document = inner
    document[last] = value
