"""Reads command-line flags by interpreting the functions that add arguments to an argparse parser."""

import ast
from dataclasses import dataclass, field, replace

from tools.engine_tables.argument import ArgumentSpec, find_size_fields
from tools.engine_tables.argument import build_setting as argument_setting
from tools.engine_tables.classes import Field, collect_class_fields
from tools.engine_tables.names import Definition, MissingDefinitionError, Scope
from tools.engine_tables.source import Module, Symbols, collect_symbols, iter_blocks
from tools.engine_tables.values import SourceReader, find_called_name
from voice_blueprint.engines.published.release import Command, Setting

_GROUP_METHODS = {"add_argument_group", "add_mutually_exclusive_group", "add_parser", "ArgumentParser"}
_PARSER_METHODS = {*_GROUP_METHODS, "add_argument", "set_defaults", "parse_args", "add_subparsers", "format_help"}
_NEGATING_ACTION = "EnableDisableAction"
"""Name of vLLM's boolean action, which pairs ``--enable-x`` with ``--disable-x``."""


@dataclass
class FieldArguments:
    """Keyword arguments to ``add_argument`` for each field in a configuration class."""

    fields: dict[str, Field]
    changed_arguments: dict[str, ArgumentSpec] = field(default_factory=dict)

    def get_arguments(self, name: str) -> ArgumentSpec:
        """Return the arguments for a field. Each call returns the same object."""
        return self.changed_arguments.setdefault(name, ArgumentSpec(origin=self.fields.get(name)))


@dataclass
class _Frame:
    """A function that is being interpreted, and the values of its names."""

    scope: Scope
    local: Symbols
    cls: Definition | None
    owner: Definition | None
    parsers: set[str]
    arguments: dict[str, FieldArguments | ArgumentSpec] = field(default_factory=dict)


class FlagReader:
    """Parses the flags of a sub-command.

    Args:
        reader: Reader of the parser's distribution.
        flexible: Whether the parser is vLLM's own, which treats ``_`` as ``-`` and supports dotted flags.
    """

    def __init__(self, reader: SourceReader, *, flexible: bool = False) -> None:
        self._reader = reader
        self._flexible = flexible
        self._supports_negation = any(reader.tree.iter_modules("vllm/utils/", f"class {_NEGATING_ACTION}"))
        self._size_fields = find_size_fields(reader)
        self._flags: dict[str, Setting] = {}
        self._files: set[str] = set()
        self._lost: set[str] = set()

    def read(self, function: str) -> Command:
        """Return the flags that a function adds to its parser argument.

        Args:
            function: Full dotted name.

        Raises:
            MissingDefinitionError: The distribution has no such function.
        """
        result = self._reader.require_definition(function)
        if not isinstance(result.node, ast.FunctionDef):
            raise MissingDefinitionError(function)
        owner = self._reader.find_definition(function.rpartition(".")[0])
        in_class = owner if owner and isinstance(owner.node, ast.ClassDef) else None
        self._interpret_function(result, in_class, in_class, {})
        return Command(
            flexible=self._flexible,
            read_from=tuple(sorted(self._files)),
            unparsed_functions=tuple(sorted(self._lost)),
            flags=tuple(sorted(self._flags.values(), key=lambda flag: flag.name)),
        )

    def _interpret_function(
        self,
        function: Definition,
        cls: Definition | None,
        owner: Definition | None,
        arguments: dict[str, FieldArguments | ArgumentSpec],
    ) -> FieldArguments | None:
        """Interpret a function, and return the field arguments passed to it, with the function's changes to them."""
        node, module = function.node, function.scope.module
        if not isinstance(node, ast.FunctionDef):
            return None
        parameters = {each.arg for each in node.args.args} - {"self", "cls"} - set(arguments)
        local = _collect_local_names(node, module)
        frame = _Frame(self._reader.create_scope(module, local), local, cls, owner, parameters, dict(arguments))
        self._interpret_block(node.body, frame)
        return next((each for each in arguments.values() if isinstance(each, FieldArguments)), None)

    def _interpret_block(self, statements: list[ast.stmt], frame: _Frame) -> None:
        for statement in statements:
            match statement:
                case ast.FunctionDef() | ast.ClassDef():
                    continue
                case ast.For(iter=ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="items"))) if isinstance(
                    class_arguments := frame.arguments.get(name), FieldArguments
                ):
                    self._add_class(class_arguments, frame)
                case ast.Assign(targets=[target], value=value):
                    self._interpret_assignment(target, value, frame)
                case ast.Delete(targets=targets):
                    for target in targets:
                        self._interpret_deletion(target, frame)
                case ast.Expr(value=ast.Call() as call) | ast.Return(value=ast.Call() as call):
                    self._interpret_call(call, frame)
            for block in iter_blocks(statement):
                self._interpret_block(block, frame)

    def _interpret_assignment(self, target: ast.expr, value: ast.expr, frame: _Frame) -> None:
        match target, value:
            case ast.Name(id=name), ast.Call() if find_called_name(value) in _GROUP_METHODS:
                frame.parsers.add(name)
            case ast.Name(id=name), _ if (field_arguments := self._find_field_arguments(value, frame)) is not None:
                frame.arguments[name] = field_arguments
            case ast.Name(id=name), ast.IfExp():
                frame.local[name] = value
            case ast.Name(id=name), ast.Call():
                result = self._interpret_call(value, frame)
                if result is not None:
                    frame.arguments[name] = result
            case ast.Subscript(value=base, slice=ast.Constant(value=str(key))), _:
                field_arguments = self._find_field_arguments(base, frame)
                if isinstance(field_arguments, ArgumentSpec):
                    field_arguments.set(key, value, frame.scope)

    def _interpret_deletion(self, target: ast.expr, frame: _Frame) -> None:
        match target:
            case ast.Subscript(value=base, slice=ast.Constant(value=str(key))):
                field_arguments = self._find_field_arguments(base, frame)
                if isinstance(field_arguments, ArgumentSpec):
                    field_arguments.drop(key)

    def _find_field_arguments(self, node: ast.expr, frame: _Frame) -> FieldArguments | ArgumentSpec | None:
        """Return the arguments that an expression refers to, or None if it refers to none."""
        match node:
            case ast.Name(id=name):
                return frame.arguments.get(name)
            case ast.Call(func=ast.Name(id="get_kwargs"), args=[ast.Name(id="cls")]) if frame.cls:
                return FieldArguments(collect_class_fields(self._reader, frame.cls))
            case ast.Call(func=ast.Name(id="get_kwargs"), args=[cls]):
                result = self._reader.resolve(cls, frame.scope)
                return FieldArguments(collect_class_fields(self._reader, result)) if result else None
            case ast.Subscript(value=base, slice=ast.Constant(value=str(name))):
                class_arguments = self._find_field_arguments(base, frame)
                return class_arguments.get_arguments(name) if isinstance(class_arguments, FieldArguments) else None
        return None

    def _interpret_call(self, call: ast.Call, frame: _Frame) -> FieldArguments | None:
        if find_called_name(call) == "add_argument":
            self._interpret_argument(call, frame)
            return None
        names = [each.id for each in call.args if isinstance(each, ast.Name)]
        passed = {name: frame.arguments[name] for name in names if name in frame.arguments}
        if find_called_name(call) in _PARSER_METHODS or not (passed or frame.parsers & set(names)):
            return None
        target, owner = self._resolve_call(call.func, frame)
        if target is None or not isinstance(target.node, ast.FunctionDef):
            self._lost.add(ast.unparse(call.func))
            return None
        parameters = [each.arg for each in target.node.args.args if each.arg not in {"self", "cls"}]
        renamed = {
            parameter: passed[name] for parameter, name in zip(parameters, names, strict=False) if name in passed
        }
        bound = frame.cls if ast.unparse(call.func).startswith(("cls.", "super().")) else owner
        return self._interpret_function(target, bound, owner, renamed)

    def _resolve_call(self, func: ast.expr, frame: _Frame) -> tuple[Definition | None, Definition | None]:
        """Return the called function and the class that defines the function."""
        match func:
            case ast.Attribute(value=ast.Call(func=ast.Name(id="super")), attr=attr) if frame.owner:
                parents = list(self._reader.iter_ancestors(frame.owner))[1:]
                return next(((self._reader.find_member(each, attr), each) for each in parents), (None, None))
            case ast.Attribute(value=ast.Name(id="cls"), attr=attr) if frame.cls:
                holders = (
                    parent
                    for parent in self._reader.iter_ancestors(frame.cls)
                    if any(getattr(each, "name", None) == attr for each in getattr(parent.node, "body", []))
                )
                return self._reader.find_member(frame.cls, attr), next(holders, frame.cls)
            case ast.Attribute(value=base, attr=attr):
                owner = self._reader.resolve(base, frame.scope)
                if owner and isinstance(owner.node, ast.ClassDef):
                    return self._reader.find_member(owner, attr), owner
        return self._reader.resolve(func, frame.scope), None

    def _add_class(self, class_arguments: FieldArguments, frame: _Frame) -> None:
        for name in class_arguments.fields:
            self._add_flag([f"--{name.replace('_', '-')}"], class_arguments.get_arguments(name), frame.scope)

    def _interpret_argument(self, call: ast.Call, frame: _Frame) -> None:
        names = [
            self._reader.evaluate_or_default(each, frame.scope, None)
            for each in call.args
            if not isinstance(each, ast.Starred)
        ]
        texts = [name for name in names if isinstance(name, str)]
        arguments = ArgumentSpec()
        for keyword in call.keywords:
            if keyword.arg is None:
                arguments = self._unpack_arguments(keyword.value, frame, arguments)
            else:
                arguments.set(keyword.arg, keyword.value, frame.scope)
        if texts:
            self._add_flag(texts, arguments, frame.scope)

    def _unpack_arguments(self, node: ast.expr, frame: _Frame, arguments: ArgumentSpec) -> ArgumentSpec:
        """Return the arguments of ``**node``, overridden by explicit arguments."""
        match node:
            case ast.Dict(keys=keys, values=values):
                for key, value in zip(keys, values, strict=True):
                    if key is None:
                        arguments = self._unpack_arguments(value, frame, arguments)
                    else:
                        arguments.set(str(self._reader.evaluate_or_default(key, frame.scope, "")), value, frame.scope)
                return arguments
        result = self._find_field_arguments(node, frame)
        return (
            replace(result, passed_arguments={**result.passed_arguments, **arguments.passed_arguments})
            if isinstance(result, ArgumentSpec)
            else arguments
        )

    def _add_flag(self, names: list[str], arguments: ArgumentSpec, scope: Scope) -> None:
        if arguments.action in {"help", "version"}:
            return
        name = next((each for each in names if each.startswith("--")), names[0])
        new_setting = argument_setting(self._reader, name, arguments, self._size_fields)
        off = f"--disable-{name.removeprefix('--enable-')}" if name.startswith("--enable-") else None
        paired = self._supports_negation and new_setting.type == "bool"
        self._flags.setdefault(
            name,
            new_setting.model_copy(
                update={"aliases": tuple(each for each in names if each != name), "off": off if paired else None}
            ),
        )
        self._files.add(scope.module.path)


def _collect_local_names(function: ast.FunctionDef, module: Module) -> Symbols:
    """Return the imports of a function and the defaults of its parameters, by name."""
    package = module.name if module.path.endswith("/__init__.py") else module.name.rpartition(".")[0]
    imports = [node for node in ast.walk(function) if isinstance(node, ast.Import | ast.ImportFrom)]
    defaults = zip(reversed(function.args.args), reversed(function.args.defaults), strict=False)
    return collect_symbols(list(imports), package) | {each.arg: default for each, default in defaults}
