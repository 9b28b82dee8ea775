"""Reads the fields of configuration classes, and the values that annotations allow."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from tools.engine_tables.names import Definition, Scope
from tools.engine_tables.source import Node
from tools.engine_tables.values import SourceReader, UnknownValueError, find_called_name
from voice_blueprint.engines.published.release import Setting

_CONFIG_DECORATORS = {"config", "dataclass", "pydantic_dataclass"}
_COLLECTION_KIND_BY_TYPE = {
    "list": "list",
    "List": "list",
    "Sequence": "list",
    "tuple": "tuple",
    "Tuple": "tuple",
    "set": "set",
}
_WRAPPER_TYPES = {"Annotated", "SkipValidation", "Optional", "Required", "NotRequired", "Final"}
_MAPPING_TYPES = {"dict", "Dict", "Mapping", "defaultdict"}


@dataclass(frozen=True)
class Field:
    """A field of a configuration class."""

    name: str
    annotation: ast.expr
    default: ast.expr | None
    scope: Scope


@dataclass
class TypeHint:
    """Values that an annotation allows.

    Attributes:
        kinds: Subset of ``none bool int float str literal list tuple set dict config enum other``.
        items: Item type of a collection.
        length: Length of a tuple, if it is fixed.
    """

    kinds: set[str] = field(default_factory=set)
    values: list[object] = field(default_factory=list)
    items: "TypeHint | None" = None
    length: int | None = None
    config: Definition | None = None

    def merge(self, other: "TypeHint") -> None:
        """Also allow the values of another annotation."""
        self.kinds |= other.kinds
        self.values += [value for value in other.values if value not in self.values]
        self.items = self.items or other.items
        self.length = self.length or other.length
        self.config = self.config or other.config


def is_config_class(reader: SourceReader, cls: Definition) -> bool:
    """Return True if a class is a dataclass, according to its decorators."""
    decorators = [
        find_called_name(each) if isinstance(each, ast.Call) else getattr(each, "id", getattr(each, "attr", ""))
        for parent in reader.iter_ancestors(cls)
        for each in getattr(parent.node, "decorator_list", [])
    ]
    return any(name in _CONFIG_DECORATORS for name in decorators)


def collect_class_fields(reader: SourceReader, cls: Definition) -> dict[str, Field]:
    """Return the fields of a configuration class by name. Inherited fields come first."""
    results: dict[str, Field] = {}
    for each in reversed(list(reader.iter_ancestors(cls))):
        for statement in getattr(each.node, "body", []):
            match statement:
                case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation, value=default):
                    if _is_constructor_argument(name, annotation, default):
                        results[name] = Field(name, annotation, default, each.scope)
    return results


def _is_constructor_argument(name: str, annotation: ast.expr, default: ast.expr | None) -> bool:
    if name.startswith("_") or "ClassVar" in ast.unparse(annotation):
        return False
    keywords = default.keywords if isinstance(default, ast.Call) else []
    return not any(each.arg == "init" and getattr(each.value, "value", True) is False for each in keywords)


def build_annotation_hint(reader: SourceReader, node: Node, scope: Scope) -> TypeHint:
    """Return the values that an annotation allows."""
    match node:
        case ast.Constant(value=None):
            return TypeHint({"none"})
        case ast.Constant(value=str(text)):
            return build_annotation_hint(reader, ast.parse(text, mode="eval").body, scope)
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return _build_union_hint(reader, [left, right], scope)
        case ast.Subscript():
            return _build_subscript_hint(reader, node, scope)
        case ast.Name(id="bool" | "int" | "float" | "str" as name):
            return TypeHint({name})
        case ast.Name(id="dict" | "list" | "tuple" | "set" as name):
            return TypeHint({name})
        case ast.Name() | ast.Attribute():
            result = reader.resolve(node, scope)
            return _build_class_hint(reader, result) if result and result.node is not node else TypeHint({"other"})
    return TypeHint({"other"})


def _build_union_hint(reader: SourceReader, parts: list[ast.expr], scope: Scope) -> TypeHint:
    combined = TypeHint()
    for part in parts:
        combined.merge(build_annotation_hint(reader, part, scope))
    return combined


def _build_subscript_hint(reader: SourceReader, node: ast.Subscript, scope: Scope) -> TypeHint:
    name = getattr(node.value, "id", getattr(node.value, "attr", ""))
    inside = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    if name == "Literal":
        try:
            return TypeHint({"literal"}, values=reader.evaluate_literal_values(node, scope))
        except UnknownValueError:
            return TypeHint({"other"})
    if name == "Union":
        return _build_union_hint(reader, inside, scope)
    if name in _WRAPPER_TYPES:
        combined = build_annotation_hint(reader, inside[0], scope)
        if name == "Optional":
            combined.kinds.add("none")
        return combined
    if name in _COLLECTION_KIND_BY_TYPE:
        open_ended = name not in {"tuple", "Tuple"} or any(getattr(each, "value", None) is ... for each in inside)
        length = None if open_ended else len(inside)
        return TypeHint(
            {_COLLECTION_KIND_BY_TYPE[name]}, items=build_annotation_hint(reader, inside[0], scope), length=length
        )
    return TypeHint({"dict"} if name in _MAPPING_TYPES else {"other"})


def _build_class_hint(reader: SourceReader, class_definition: Definition) -> TypeHint:
    match class_definition.node:
        case ast.ClassDef(bases=bases):
            if is_config_class(reader, class_definition):
                return TypeHint({"config"}, config=class_definition)
            if reader.is_enum(class_definition):
                return TypeHint({"enum"}, values=_list_accepted_values(reader.read_enum_members(class_definition)))
            is_mapping = any(ast.unparse(base).partition("[")[0] in _MAPPING_TYPES for base in bases)
            return TypeHint({"dict"} if is_mapping else {"other"})
        case ast.AnnAssign(value=ast.expr() as alias) | (ast.expr() as alias):
            return build_annotation_hint(reader, alias, class_definition.scope)
    return TypeHint({"other"})


def _list_accepted_values(members: dict[str, object]) -> list[object]:
    """Return the accepted values of an enumeration, which are the member names and the integer values."""
    return [*members, *(value for value in members.values() if isinstance(value, int))]


def build_field_setting(reader: SourceReader, config_field: Field) -> Setting:
    allowed = build_annotation_hint(reader, config_field.annotation, config_field.scope)
    kinds = allowed.kinds - {"none"}
    many = bool(kinds & {"list", "tuple", "set"})
    simple = len(kinds) == 1
    of = allowed.items if many and simple and allowed.items else allowed
    item_kinds = of.kinds - {"none"}
    changes = build_value_settings(of, item_kinds)
    if many and simple:
        changes["nargs"] = allowed.length or "*"
    return Setting.model_validate(
        {
            "name": config_field.name,
            "nullable": "none" in allowed.kinds,
            "default": evaluate_default(reader, config_field),
            **changes,
        }
    )


def build_value_settings(allowed: TypeHint, kinds: set[str]) -> dict[str, object]:
    """Return the type, choices and class of a value that is not a collection, as fields of ``Setting``."""
    if kinds == {"config"} and allowed.config is not None:
        return {"type": "json", "config": getattr(allowed.config.node, "name", None)}
    if kinds == {"config", "dict"}:
        return {"type": "json"}
    if "literal" in kinds and kinds <= {"literal", "str"}:
        return build_choice_settings(allowed.values, extensible="str" in kinds)
    if kinds == {"enum"}:
        return {"type": "any", "choices": tuple(allowed.values), "any_case": True}
    if kinds == {"int", "float"}:
        return {"type": "float"}
    if kinds == {"dict"}:
        return {"type": "json"}
    return {"type": kinds.pop() if len(kinds) == 1 and kinds <= {"bool", "int", "float", "str"} else "any"}


def build_choice_settings(values: list[object], *, extensible: bool) -> dict[str, object]:
    """Return the type and choices of a setting that allows these values, as fields of ``Setting``."""
    literals = [value for value in values if isinstance(value, str | int | float) and not isinstance(value, bool)]
    if len(literals) != len(values):
        return {"type": "any"}
    of_type = "int" if all(isinstance(value, int) for value in literals) else "str"
    in_order = sorted(set(literals), key=str if of_type == "str" else float)
    return {"type": of_type, "choices": tuple(in_order), "extensible": extensible}


def evaluate_default(reader: SourceReader, config_field: Field) -> object:
    """Return the default of a field. It is None if the engine determines the default at start-up."""
    return (
        reader.evaluate_or_default(config_field.default, config_field.scope, None)
        if config_field.default is not None
        else None
    )


def iter_reachable_classes(
    reader: SourceReader, roots: dict[str, Definition], without: frozenset[str]
) -> Iterator[tuple[str, dict[str, Field]]]:
    """Yield the name and fields of each root class, and recursively of the configuration classes of its fields.

    Args:
        without: Names of excluded classes. The classes of their fields are excluded too.
    """
    waiting, visited = dict(roots), set(without)
    while waiting:
        name, cls = waiting.popitem()
        if name in visited:
            continue
        visited.add(name)
        own_fields = collect_class_fields(reader, cls)
        yield name, own_fields
        for each in own_fields.values():
            allowed = build_annotation_hint(reader, each.annotation, each.scope)
            for config in (allowed.config, allowed.items.config if allowed.items else None):
                if config is not None:
                    waiting[getattr(config.node, "name", "")] = config
