"""Converts the keyword arguments of an ``add_argument`` call to a setting."""

import ast
from dataclasses import dataclass, field

from tools.engine_tables.classes import (
    Field,
    TypeHint,
    build_annotation_hint,
    build_choice_settings,
    build_value_settings,
    evaluate_default,
)
from tools.engine_tables.names import Definition, Scope
from tools.engine_tables.values import SourceReader, find_called_name
from voice_blueprint.engines.published.release import Setting

_MAX_CALL_DEPTH = 2
"""Maximum depth of nested calls that are followed to determine the type of a converter."""


@dataclass
class ArgumentSpec:
    """Keyword arguments of an ``add_argument`` call.

    Attributes:
        origin: Field of a configuration class from which arguments are derived, as in vLLM's ``get_kwargs``.
        passed_arguments: Explicit keyword arguments, which take precedence.
        dropped_keys: Derived keyword arguments that are removed.
    """

    origin: Field | None = None
    passed_arguments: dict[str, tuple[ast.expr, Scope]] = field(default_factory=dict)
    dropped_keys: set[str] = field(default_factory=set)

    def set(self, key: str, value: ast.expr, scope: Scope) -> None:
        """Set an explicit keyword argument."""
        self.passed_arguments[key] = (value, scope)

    def drop(self, key: str) -> None:
        """Remove a derived keyword argument."""
        self.dropped_keys.add(key)
        self.passed_arguments.pop(key, None)

    @property
    def action(self) -> str:
        """Word or class name of the argparse action, or "" for the default action."""
        match self.passed_arguments.get("action"):
            case (ast.Constant(value=str(word)), _):
                return word
            case (ast.Name(id=name) | ast.Attribute(attr=name), _):
                return name
        return ""


def build_setting(reader: SourceReader, name: str, arguments: ArgumentSpec, sizes: frozenset[str]) -> Setting:
    """Return the setting that an ``add_argument`` call defines.

    Args:
        name: The flag.
        sizes: Fields whose numbers may have a suffix.
    """
    setting_fields: dict[str, object] = {"name": name}
    if arguments.origin is not None:
        setting_fields |= _derive_arguments(reader, arguments.origin, sizes)
    for key in arguments.dropped_keys:
        setting_fields.pop(key, None)
    return Setting.model_validate(setting_fields | _collect_passed_settings(reader, arguments))


def _collect_passed_settings(reader: SourceReader, arguments: ArgumentSpec) -> dict[str, object]:
    setting_fields: dict[str, object] = {}
    for key, (node, scope) in arguments.passed_arguments.items():
        match key:
            case "type":
                setting_fields["type"] = infer_converter_type(reader, node, scope)
                setting_fields |= {} if setting_fields["type"] == "json" else {"config": None}
            case "metavar" if reader.evaluate_or_default(node, scope, None) == "JSON":
                setting_fields["type"] = "json"
            case "choices":
                allowed_values = reader.evaluate_or_default(node, scope, [])
                setting_fields |= (
                    build_choice_settings(allowed_values, extensible=False)
                    if isinstance(allowed_values, list) and allowed_values
                    else {}
                )
            case "default":
                setting_fields["default"] = reader.evaluate_or_default(node, scope, None)
            case "nargs":
                setting_fields["nargs"] = reader.evaluate_or_default(node, scope, None)
    match arguments.action:
        case "store_true" | "store_false" | "store_const" | "count":
            setting_fields |= {"type": "switch", "default": None}
        case "BooleanOptionalAction":
            setting_fields["type"] = "bool"
        case "append" | "extend":
            setting_fields["repeats"] = True
    return setting_fields


def infer_converter_type(reader: SourceReader, node: ast.expr, scope: Scope, depth: int = 0) -> str:
    """Return the type of the values that a converter (``type=`` of ``add_argument``) accepts."""
    names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    if "json.loads" in ast.unparse(node):
        return "json"
    for name, kind in (("human_readable_int_or_auto", "size-or-auto"), ("human_readable_int", "size")):
        if name in names:
            return kind
    if isinstance(node, ast.Name) and node.id in {"int", "float", "str"}:
        return node.id
    if isinstance(node, ast.Call) and find_called_name(node) in {"optional_type", "parse_type"} and node.args:
        return infer_converter_type(reader, node.args[0], scope, depth)
    result = reader.resolve(node, scope)
    if result and isinstance(result.node, ast.FunctionDef) and depth < _MAX_CALL_DEPTH:
        return _infer_function_type(reader, result, depth)
    return "str"


def _infer_function_type(reader: SourceReader, function: Definition, depth: int) -> str:
    calls = [each for each in ast.walk(function.node) if isinstance(each, ast.Call)]
    kinds = [
        find_called_name(call)
        if find_called_name(call) in {"float", "int"}
        else infer_converter_type(reader, call.func, function.scope, depth + 1)
        for call in calls
    ]
    return next((kind for kind in ("json", "size", "float", "int") if kind in kinds), "str")


def find_size_fields(reader: SourceReader) -> frozenset[str]:
    """Return the vLLM fields whose numbers may have a suffix such as ``k``. Other distributions have none."""
    for module in reader.tree.iter_modules("vllm/engine/", "human_readable_int_args"):
        for node in ast.walk(module.tree):
            match node:
                case ast.Assign(targets=[ast.Name(id="human_readable_int_args")], value=ast.Set(elts=names)):
                    return frozenset(str(getattr(each, "value", "")) for each in names)
    return frozenset()


def _derive_arguments(reader: SourceReader, config_field: Field, sizes: frozenset[str]) -> dict[str, object]:
    """Return the settings that vLLM's ``get_kwargs`` derives from a field of a configuration class."""
    allowed = build_annotation_hint(reader, config_field.annotation, config_field.scope)
    setting_fields: dict[str, object] = {
        "nullable": "none" in allowed.kinds and "bool" not in allowed.kinds,
        "default": evaluate_default(reader, config_field),
    }
    return setting_fields | _derive_type(config_field.name, allowed, sizes)


def _derive_type(name: str, allowed: TypeHint, sizes: frozenset[str]) -> dict[str, object]:
    kinds = allowed.kinds - {"none"}
    if "config" in kinds:
        return build_value_settings(allowed, kinds & {"config", "dict"})
    if allowed.kinds == {"bool", "str", "none"}:
        return {"type": "str", "nargs": "?"}
    if "bool" in kinds:
        return {"type": "bool"}
    if "literal" in kinds:
        return build_choice_settings(allowed.values, extensible="str" in kinds)
    if kinds & {"tuple", "list", "set"} and allowed.items is not None:
        return _build_collection_arguments(allowed, allowed.items)
    return _build_scalar_arguments(name, allowed, kinds, sizes)


def _build_collection_arguments(allowed: TypeHint, items: TypeHint) -> dict[str, object]:
    setting_fields = build_value_settings(items, items.kinds - {"none"})
    return setting_fields | {
        "type": "str" if setting_fields["type"] == "any" else setting_fields["type"],
        "nargs": allowed.length or "+",
    }


def _build_scalar_arguments(name: str, allowed: TypeHint, kinds: set[str], sizes: frozenset[str]) -> dict[str, object]:
    if "int" in kinds:
        return {"type": "size-or-auto" if name == "max_model_len" else "size" if name in sizes else "int"}
    if "float" in kinds:
        return {"type": "float"}
    if "dict" in kinds:
        return {"type": "json-or-str" if kinds & {"str", "other", "enum"} else "json"}
    if "enum" in kinds and kinds <= {"enum", "str"}:
        return {"type": "str", "choices": tuple(allowed.values), "any_case": True}
    return {"type": "str"}
