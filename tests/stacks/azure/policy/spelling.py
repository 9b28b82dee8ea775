"""Comparison of the property names in policies with the SDKs' schemas."""

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from voice_sandbox.azure.schema import Field, Shape, load_args_shape, load_resource_shape
from voice_stacks.azure.policy import pack
from voice_stacks.azure.policy.rules import Resource, Rule, Stack
from voice_stacks.azure.policy.values import Value


@dataclass
class RecordedReads:
    """Properties read by rules.

    Attributes:
        known: Whether any resource type has a property at this path, by rule and path.
        names: Every requested name.
    """

    known: dict[tuple[str, str], bool] = field(default_factory=lambda: defaultdict(bool))
    names: set[str] = field(default_factory=set)

    @property
    def misspelled(self) -> set[tuple[str, str]]:
        """Return rules with paths at which no resource type has a property."""
        return {read for read, known in self.known.items() if not known}


@dataclass(frozen=True)
class RecordedValue(Value):
    """A value with its schema that records reads of its properties.

    Attributes:
        shape: Schema of an object; ``None`` if unknown.
        of: Field of a list or map, whose items have the shape of ``module``'s class.
    """

    reads: RecordedReads = field(default_factory=RecordedReads, compare=False)
    rule: str = ""
    path: str = ""
    shape: Shape | None = None
    of: Field | None = None
    module: str = ""

    def __getitem__(self, key: str) -> "RecordedValue":
        raw = self.raw if self.is_unknown else self.raw.get(key) if isinstance(self.raw, Mapping) else None
        path = f"{self.path}.{key}".lstrip(".")
        self.reads.names.add(key)
        if self.shape:
            self.reads.known[self.rule, path] |= key in self.shape.inputs or key in self.shape.outputs
            found = self.shape.inputs.get(key)
            items = found is not None and (found.is_list or found.is_map)
            inner = (
                load_args_shape(self.shape.module, found.args_class)
                if found and found.args_class and not items
                else None
            )
            return RecordedValue(raw, self.reads, self.rule, path, inner, found if items else None, self.shape.module)
        return self._item(raw, path)

    def __iter__(self) -> Iterator["RecordedValue"]:
        return (self._item(value.raw, f"{self.path}[]") for value in super().__iter__())

    def items(self) -> Iterator[tuple[str, Value]]:
        return ((key, self[key]) for key, _ in super().items())

    def _item(self, raw: object, path: str) -> "RecordedValue":
        inner = load_args_shape(self.module, self.of.args_class) if self.of and self.of.args_class else None
        return RecordedValue(raw, self.reads, self.rule, path, inner)


class _Needs(dict[str, tuple[str, ...]]):
    def __init__(self, needs: Mapping[str, tuple[str, ...]], value: RecordedValue) -> None:
        super().__init__(needs)
        self._value = value

    def get(self, key: str, default: Any = None) -> Any:  # noqa: ANN401
        _ = self._value[key]
        return super().get(key, default)


def record_reads(rule: Rule, stack: Stack, reads: RecordedReads) -> None:
    """Apply a rule and record its reads."""
    resources = []
    for each in stack.resources:
        value = RecordedValue(each.props.raw, reads, rule.name, shape=load_resource_shape(each.type))
        resources.append(Resource(each.urn, each.type, each.name, value, _Needs(each.dependencies, value)))
    list(rule.find_violations(Stack(tuple(resources), stack.deployment)))


def names_in_policies() -> set[str]:
    """Return every property name in the sources of policies."""
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
