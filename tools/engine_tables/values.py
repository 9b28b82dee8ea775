"""Evaluates expressions in published source statically."""

import ast
from collections.abc import Callable, Mapping
from dataclasses import replace

from tools.engine_tables.names import Definition, NameResolver, Scope, collect_class_assignments
from tools.engine_tables.source import Node, SourceTree


class UnknownValueError(Exception):
    """The value of an expression cannot be determined statically."""


_OPERATORS: dict[type[ast.operator], Callable[[int, int], object]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b,
    ast.Pow: lambda a, b: a**b,
    ast.LShift: lambda a, b: a << b,
}
_BUILTIN_FUNCTIONS: dict[str, Callable[..., object]] = {
    "int": int, "float": float, "str": str, "bool": bool, "list": list, "tuple": list, "sorted": sorted,
    "set": sorted, "frozenset": sorted,
}  # fmt: skip
_ENUM_BASES = ("Enum", "IntEnum", "StrEnum", "Flag", "IntFlag")


class SourceReader(NameResolver):
    """Looks up names and evaluates expressions across the modules of one distribution.

    Args:
        tree: Modules of the distribution.
        registries: Registered names that functions return, by name of the function.
    """

    def __init__(self, tree: SourceTree, registries: Mapping[str, list[str]] | None = None) -> None:
        super().__init__(tree)
        self._registries = registries or {}

    def is_enum(self, cls: Definition) -> bool:
        """Return True if a class is an enumeration."""
        return any(
            getattr(base, "id", getattr(base, "attr", "")) in _ENUM_BASES
            for each in self.iter_ancestors(cls)
            for base in getattr(each.node, "bases", [])
        )

    def read_enum_members(self, enum: Definition) -> dict[str, object]:
        """Return the members of an enumeration. The name replaces a value that is neither a string nor an integer."""
        results: dict[str, object] = {}
        for name, node in collect_class_assignments(enum.node).items():
            value = self.evaluate_or_default(
                node, replace(enum.scope, local=collect_class_assignments(enum.node)), None
            )
            results[name] = value if isinstance(value, str | int) else name
        return results

    def evaluate_or_default(self, node: Node, scope: Scope, default: object) -> object:
        """Return the value of an expression, or a default if the value cannot be determined statically."""
        try:
            return self.evaluate(node, scope)
        except UnknownValueError:
            return default

    def evaluate(self, node: Node, scope: Scope) -> object:
        """Return the value of an expression.

        Raises:
            UnknownValueError: The value cannot be determined statically.
        """
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name() | ast.Attribute():
                return self._evaluate_name(node, scope)
            case ast.Call():
                return self._evaluate_call(node, scope)
            case ast.ListComp():
                return self._evaluate_comprehension(node, scope)
            case ast.List() | ast.Tuple() | ast.Set() | ast.Dict():
                return self._evaluate_collection(node, scope)
        return self._evaluate_operation(node, scope)

    def _evaluate_collection(self, node: ast.List | ast.Tuple | ast.Set | ast.Dict, scope: Scope) -> object:
        if isinstance(node, ast.Dict):
            pairs = zip(node.keys, node.values, strict=True)
            return {str(self.evaluate(key, scope)): self.evaluate(value, scope) for key, value in pairs if key}
        return [value for item in node.elts for value in self._evaluate_item(item, scope)]

    def _evaluate_operation(self, node: Node, scope: Scope) -> object:
        match node:
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return self._evaluate_operator(ast.Sub(), 0, self.evaluate(operand, scope))
            case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _OPERATORS:
                return self._evaluate_operator(operator, self.evaluate(left, scope), self.evaluate(right, scope))
            case ast.JoinedStr(values=parts):
                return "".join(str(self.evaluate(part, scope)) for part in parts)
            case ast.FormattedValue(value=inner):
                return self.evaluate(inner, scope)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return self.evaluate(body if self.evaluate(test, scope) else orelse, scope)
        raise UnknownValueError(ast.unparse(node))

    def _evaluate_item(self, item: ast.expr, scope: Scope) -> list[object]:
        if not isinstance(item, ast.Starred):
            return [self.evaluate(item, scope)]
        inner = self.evaluate(item.value, scope)
        if not isinstance(inner, list):
            raise UnknownValueError(ast.unparse(item))
        return inner

    @staticmethod
    def _evaluate_operator(operator: ast.operator, left: object, right: object) -> object:
        try:
            return _OPERATORS[type(operator)](left, right)  # type: ignore[arg-type]
        except (TypeError, ArithmeticError):
            raise UnknownValueError(type(operator).__name__) from None

    def _evaluate_name(self, node: ast.Name | ast.Attribute, scope: Scope) -> object:
        if isinstance(node, ast.Attribute):
            owner = self.resolve(node.value, scope)
            if owner and isinstance(owner.node, ast.ClassDef) and self.is_enum(owner):
                members = self.read_enum_members(owner)
                if node.attr in members:
                    return members[node.attr]
            if node.attr in {"value", "name"} and isinstance(node.value, ast.Attribute):
                return self.evaluate(node.value, scope)
        result = self.resolve(node, scope)
        match result:
            case Definition(node=ast.AnnAssign(value=ast.expr() as value), scope=there):
                return self.evaluate(value, there)
            case Definition(node=ast.expr() as value, scope=there) if value is not node:
                return self.evaluate(value, there)
        raise UnknownValueError(ast.unparse(node))

    def _evaluate_call(self, call: ast.Call, scope: Scope) -> object:
        name = find_called_name(call)
        arguments = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
        if name in {"field", "Field"}:
            return self._evaluate_field(call, arguments, scope)
        if name in self._registries:
            return list(self._registries[name])
        if name == "get_args":
            return self.evaluate_literal_values(call.args[0], scope)
        if name == "get_field":
            return self.evaluate(ast.Attribute(call.args[0], str(self.evaluate(call.args[1], scope))), scope)
        if name in {"getenv", "get"} and "os." in ast.unparse(call.func):
            return self.evaluate(call.args[1], scope) if len(call.args) > 1 else None
        if name in {"lower", "upper", "strip"} and isinstance(call.func, ast.Attribute):
            return getattr(str(self.evaluate(call.func.value, scope)), name)()
        if name in _BUILTIN_FUNCTIONS and len(call.args) == 1:
            return self._construct_value(name, self._evaluate_iterable(call.args[0], scope))
        if name in {"list", "tuple", "set", "frozenset", "dict"} and not call.args and not call.keywords:
            return {} if name == "dict" else []
        raise UnknownValueError(ast.unparse(call))

    def _evaluate_iterable(self, node: ast.expr, scope: Scope) -> object:
        result = self.resolve(node, scope)
        if result and isinstance(result.node, ast.ClassDef) and self.is_enum(result):
            return list(self.read_enum_members(result).values())
        return self.evaluate(node, scope)

    @staticmethod
    def _construct_value(name: str, value: object) -> object:
        try:
            return _BUILTIN_FUNCTIONS[name](value)
        except (TypeError, ValueError):
            raise UnknownValueError(name) from None

    def _evaluate_field(self, call: ast.Call, arguments: dict[str, ast.expr], scope: Scope) -> object:
        if "default" in arguments:
            return self.evaluate(arguments["default"], scope)
        match arguments.get("default_factory"):
            case None:
                if not call.args:
                    raise UnknownValueError("required")
                return self.evaluate(call.args[0], scope)
            case ast.Name(id="list" | "set" | "tuple"):
                return []
            case ast.Name(id="dict"):
                return {}
            case ast.Lambda(body=body):
                return self.evaluate(body, scope)
            case factory:
                result = self.resolve(factory, scope)
                if result and isinstance(result.node, ast.ClassDef):
                    return {}  # all of that class's defaults
                raise UnknownValueError(ast.unparse(factory))

    def _evaluate_comprehension(self, node: ast.ListComp, scope: Scope) -> object:
        match node:
            case ast.ListComp(
                elt=ast.Name() | ast.Attribute(value=ast.Name(), attr="value" | "name"),
                generators=[ast.comprehension(target=ast.Name(), iter=source, ifs=[])],
            ):
                return self._evaluate_iterable(source, scope)
        raise UnknownValueError(ast.unparse(node))

    def evaluate_literal_values(self, node: Node, scope: Scope) -> list[object]:
        """Return the values that a ``Literal`` type allows. Aliases and unions of literals are resolved.

        Raises:
            UnknownValueError: The type is not a literal.
        """
        match node:
            case ast.Subscript(value=ast.Name(id="Literal") | ast.Attribute(attr="Literal"), slice=inside):
                items = inside.elts if isinstance(inside, ast.Tuple) else [inside]
                return [
                    value
                    for item in items
                    for value in (
                        [item.value] if isinstance(item, ast.Constant) else self.evaluate_literal_values(item, scope)
                    )
                ]
            case ast.BinOp(left=left, op=ast.BitOr(), right=right):
                return [*self.evaluate_literal_values(left, scope), *self.evaluate_literal_values(right, scope)]
            case ast.Name() | ast.Attribute():
                result = self.resolve(node, scope)
                if result is not None and result.node is not node:
                    alias = result.node.value if isinstance(result.node, ast.AnnAssign) else result.node
                    if alias is not None:
                        return self.evaluate_literal_values(alias, result.scope)
        raise UnknownValueError(ast.unparse(node))


def find_called_name(call: ast.Call) -> str:
    """Return the last part of the called function's name, or "" if the function has no name."""
    return str(getattr(call.func, "id", getattr(call.func, "attr", "")))
