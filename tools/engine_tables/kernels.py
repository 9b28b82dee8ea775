"""Reads the attention kernels of a release, with the block sizes and KV cache types that they support."""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tools.engine_tables.names import Definition
from tools.engine_tables.source import Node
from tools.engine_tables.values import SourceReader
from voice_blueprint.engines.published.release import AttentionKernel

MAJOR_CAPABILITIES = (8, 9, 10, 12)
"""Major compute capabilities of data centre GPUs since Ampere."""
BLOCKS_METHOD, TYPES_ATTRIBUTE, SUPPORTS_TYPE_METHOD = (
    "get_supported_kernel_block_sizes",
    "supported_kv_cache_dtypes",
    "supports_kv_cache_dtype",
)
UNSUPPORTED_LAYOUT_PREDICATES = ("is_mla", "is_sparse")
"""Kernel predicates for kinds of models that the catalogue does not contain."""
UNKNOWN_VALUE = object()
"""Value of an expression that is only known at run time."""


def read_kernels(reader: SourceReader, chooser: str) -> tuple[AttentionKernel, ...]:
    """Return the kernels from which a function selects, ordered by name.

    Raises:
        MissingDefinitionError: The release has no such function.
    """
    result = reader.require_definition(chooser)
    classes_by_name = {
        each.attr: cls
        for each in ast.walk(result.node)
        if isinstance(each, ast.Attribute)
        and isinstance(path := reader.evaluate_or_default(each, result.scope, None), str)
        if (cls := reader.find_definition(path))
    }
    return tuple(
        AttentionKernel(name=name, blocks=tuple(sorted(_read_block_sizes(reader, cls))), kv_types=types)
        for name, cls in sorted(classes_by_name.items())
        if (types := dict(_iter_supported_types(reader, cls)))  # a kernel that delegates to others supports none itself
        and not any(
            _PredicateEvaluator(reader, cls, 0).call_method(layout) is True for layout in UNSUPPORTED_LAYOUT_PREDICATES
        )
    )


def _read_block_sizes(reader: SourceReader, cls: Definition) -> set[int]:
    """Return the block sizes of a kernel. The size of a block must be a multiple of one of these sizes."""
    method = reader.find_member(cls, BLOCKS_METHOD)
    returned = [each.value for each in ast.walk(method.node) if isinstance(each, ast.Return)] if method else []
    items = [item for each in returned if isinstance(each, ast.List) for item in each.elts]
    plain = [item.args[0] if isinstance(item, ast.Call) and item.args else item for item in items]
    sizes = {item.value for item in plain if isinstance(item, ast.Constant) and isinstance(item.value, int)}
    return {size for size in sizes if not any(size % less == 0 for less in sizes if less < size)}


def _iter_supported_types(reader: SourceReader, cls: Definition) -> Iterator[tuple[str, tuple[int, ...]]]:
    declared = _PredicateEvaluator(reader, cls, 0).evaluate(ast.parse(f"cls.{TYPES_ATTRIBUTE}", mode="eval").body)
    for kind in declared if isinstance(declared, list) else ():
        majors = [
            major
            for major in MAJOR_CAPABILITIES
            if _PredicateEvaluator(reader, cls, major).call_method(SUPPORTS_TYPE_METHOD, kind) is not False
        ]
        yield str(kind), tuple(majors)


@dataclass(frozen=True)
class _PredicateEvaluator:
    """Evaluates a kernel predicate statically, for GPUs of one major compute capability."""

    reader: SourceReader
    cls: Definition
    major_capability: int
    defining_class: Definition | None = None
    values: Mapping[str, object] | None = None

    def call_method(self, name: str, *arguments: object) -> object:
        method = self.reader.find_member(self.cls, name)
        return self._evaluate_call(method, arguments) if method else UNKNOWN_VALUE

    def _evaluate_call(self, function: Definition, arguments: tuple[object, ...]) -> object:
        if not isinstance(function.node, ast.FunctionDef):
            return UNKNOWN_VALUE
        names = [each.arg for each in function.node.args.args if each.arg not in {"self", "cls"}]
        inner = _PredicateEvaluator(
            self.reader, self.cls, self.major_capability, function, dict(zip(names, arguments, strict=False))
        )
        return inner._evaluate_block(function.node.body)

    def _evaluate_block(self, body: list[ast.stmt]) -> object:
        for index, statement in enumerate(body):
            match statement:
                case ast.Return(value=ast.expr() as value):
                    return self.evaluate(value)
                case ast.If(test=test, body=then, orelse=otherwise):
                    is_true, rest = self.evaluate(test), body[index + 1 :]
                    if is_true is not UNKNOWN_VALUE:
                        return self._evaluate_block([*(then if is_true else otherwise), *rest])
                    one, other = self._evaluate_block([*then, *rest]), self._evaluate_block([*otherwise, *rest])
                    return one if one == other else UNKNOWN_VALUE
                case ast.Expr(value=ast.Constant()):
                    continue
            return UNKNOWN_VALUE
        return None

    def evaluate(self, node: Node) -> object:
        scope = (self.defining_class or self.cls).scope
        match node:
            case ast.Name(id=name) if self.values and name in self.values:
                return self.values[name]
            case ast.Attribute(value=ast.Name(id="cls"), attr=name) if member := self.reader.find_member(
                self.cls, name
            ):
                value_node = member.node.value if isinstance(member.node, ast.AnnAssign) else member.node
                return (
                    self.reader.evaluate_or_default(value_node, member.scope, UNKNOWN_VALUE)
                    if value_node
                    else UNKNOWN_VALUE
                )
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                is_true = self.evaluate(operand)
                return is_true if is_true is UNKNOWN_VALUE else not is_true
            case ast.BoolOp(op=operator, values=parts):
                return self._evaluate_boolean(parts, decides=isinstance(operator, ast.Or))
            case ast.Compare(left=left, ops=[operator], comparators=[right]):
                return _evaluate_comparison(operator, self.evaluate(left), self.evaluate(right))
            case ast.Call():
                return self._evaluate_call_node(node)
        return self.reader.evaluate_or_default(node, scope, UNKNOWN_VALUE)

    def _evaluate_boolean(self, parts: list[ast.expr], *, decides: bool) -> object:
        values = []
        for part in parts:
            values.append(self.evaluate(part))
            if values[-1] is not UNKNOWN_VALUE and bool(values[-1]) is decides:
                return decides
        return UNKNOWN_VALUE if UNKNOWN_VALUE in values else not decides

    def _evaluate_call_node(self, call: ast.Call) -> object:
        arguments = tuple(map(self.evaluate, call.args))
        match call:
            case ast.Call(func=ast.Attribute(attr="is_device_capability_family"), args=[_]) if isinstance(
                arguments[0], int
            ):
                return arguments[0] // 10 == self.major_capability
            case ast.Call(func=ast.Attribute(attr="startswith", value=text), args=[_]):
                value = self.evaluate(text)
                return UNKNOWN_VALUE if value is UNKNOWN_VALUE else str(value).startswith(str(arguments[0]))
            case ast.Call(func=ast.Attribute(value=ast.Call(func=ast.Name(id="super")), attr=name)):
                inherited = [
                    result
                    for each in self.reader.iter_ancestors(self.cls)
                    if (result := self.reader.find_member(each, name))
                ]
                above = next(
                    (each for each in inherited if self.defining_class and each.node is not self.defining_class.node),
                    None,
                )
                return self._evaluate_call(above, arguments) if above else UNKNOWN_VALUE
            case ast.Call(func=ast.Name(id="any"), args=[ast.GeneratorExp(elt=part, generators=[each])]):
                return self._evaluate_any(part, each)
        function = self.reader.resolve(call.func, (self.defining_class or self.cls).scope)
        return self._evaluate_call(function, arguments) if function and not call.keywords else UNKNOWN_VALUE

    def _evaluate_any(self, part: ast.expr, over: ast.comprehension) -> object:
        items, name = self.evaluate(over.iter), getattr(over.target, "id", "")
        if not isinstance(items, list):
            return UNKNOWN_VALUE
        values = [
            _PredicateEvaluator(
                self.reader, self.cls, self.major_capability, self.defining_class, {name: item}
            ).evaluate(part)
            for item in items
        ]
        return True in values or (UNKNOWN_VALUE if UNKNOWN_VALUE in values else False)


def _evaluate_comparison(operator: ast.cmpop, left: object, right: object) -> object:
    if left is UNKNOWN_VALUE or right is UNKNOWN_VALUE:
        return UNKNOWN_VALUE
    match operator:
        case ast.Eq() | ast.Is():
            return left == right
        case ast.NotEq() | ast.IsNot():
            return left != right
        case ast.In() | ast.NotIn() if isinstance(right, list):
            return (left in right) is isinstance(operator, ast.In)
    return UNKNOWN_VALUE
