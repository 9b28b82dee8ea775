"""Property names that policies read, held against the SDKs' own schemas."""

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sandbox.azure.schema import Field, Shape, args_shape, resource_shape
from stacks.azure.policy import pack
from stacks.azure.policy.rules import Resource, Rule, Stack
from stacks.azure.policy.values import Value


@dataclass
class Reads:
    """What rules read.

    Attributes:
        known: Whether any resource type has a property of this place, by rule and place.
        names: Every name that was asked for.
    """

    known: dict[tuple[str, str], bool] = field(default_factory=lambda: defaultdict(bool))
    names: set[str] = field(default_factory=set)

    @property
    def misspelt(self) -> set[tuple[str, str]]:
        """Rules, each with a place where no resource type that it read has a property."""
        return {read for read, known in self.known.items() if not known}


@dataclass(frozen=True)
class Watched(Value):
    """A value that knows its schema and notes what is read beneath it.

    Attributes:
        shape: Of an object; ``None`` where no schema says what it holds.
        of: Field of a list or map, whose items have the shape of ``module``'s class.
    """

    reads: Reads = field(default_factory=Reads, compare=False)
    rule: str = ""
    path: str = ""
    shape: Shape | None = None
    of: Field | None = None
    module: str = ""

    def __getitem__(self, key: str) -> "Watched":
        raw = self.raw if self.unknown else self.raw.get(key) if isinstance(self.raw, Mapping) else None
        path = f"{self.path}.{key}".lstrip(".")
        self.reads.names.add(key)
        if self.shape:
            self.reads.known[self.rule, path] |= key in self.shape.inputs or key in self.shape.outputs
            found = self.shape.inputs.get(key)
            items = found is not None and (found.is_list or found.is_map)
            inner = args_shape(self.shape.module, found.args) if found and found.args and not items else None
            return Watched(raw, self.reads, self.rule, path, inner, found if items else None, self.shape.module)
        return self._item(raw, path)

    def __iter__(self) -> Iterator["Watched"]:
        return (self._item(value.raw, f"{self.path}[]") for value in super().__iter__())

    def items(self) -> Iterator[tuple[str, Value]]:
        return ((key, self[key]) for key, _ in super().items())

    def _item(self, raw: object, path: str) -> "Watched":
        inner = args_shape(self.module, self.of.args) if self.of and self.of.args else None
        return Watched(raw, self.reads, self.rule, path, inner)


class _Needs(dict[str, tuple[str, ...]]):
    def __init__(self, needs: Mapping[str, tuple[str, ...]], value: Watched) -> None:
        super().__init__(needs)
        self._value = value

    def get(self, key: str, default: Any = None) -> Any:  # noqa: ANN401
        _ = self._value[key]
        return super().get(key, default)


def watch(rule: Rule, stack: Stack, reads: Reads) -> None:
    """Apply a rule and note what it reads."""
    resources = []
    for each in stack.resources:
        value = Watched(each.props.raw, reads, rule.name, shape=resource_shape(each.type))
        resources.append(Resource(each.urn, each.type, each.name, value, _Needs(each.needs, value)))
    list(rule.examine(Stack(tuple(resources), stack.deployment)))


def written() -> set[str]:
    """Return every literal that a policy's source takes something out of a value by."""
    names: set[str] = set()
    for file in Path(pack.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            inside: list[ast.expr] = []
            if isinstance(node, ast.Subscript):
                inside = [node.slice]
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "at":
                inside = node.args
            names |= {each.value for each in inside if isinstance(each, ast.Constant) and isinstance(each.value, str)}
    return names
