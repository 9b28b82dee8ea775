"""Resolves names in published source through imports and base classes."""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from tools.engine_tables.source import Import, Module, Node, SourceTree, Symbols


class MissingDefinitionError(Exception):
    """A release lacks a name to which a recipe refers."""

    def __init__(self, name: str) -> None:
        super().__init__(f"this release has no {name}; update its location in tools/engine_tables/recipes.yaml")


@dataclass(frozen=True)
class Scope:
    """Scope of a name. The local names of a function take precedence over those of the module."""

    module: Module
    local: Mapping[str, Node | Import]


@dataclass(frozen=True)
class Definition:
    """Syntax node that defines a name, and the scope of the node."""

    node: Node
    scope: Scope


class NameResolver:
    """Looks up names across the modules of one distribution."""

    def __init__(self, tree: SourceTree) -> None:
        self.tree = tree

    def create_scope(self, module: Module, local: Symbols | None = None) -> Scope:
        """Return the scope of a module, or of a function with local names."""
        return Scope(module, local or {})

    def resolve(self, node: Node, scope: Scope) -> Definition | None:
        """Return the definition of a name or dotted name, or None if the distribution does not define it."""
        match node:
            case ast.Name(id=name):
                if name in scope.local:
                    return self._follow_import(scope.local[name], scope)
                return self._resolve_in_module(scope.module, name)
            case ast.Attribute(value=value, attr=attr):
                base = self.resolve(value, scope)
                return self._resolve_member(base, attr) if base else None
        return None

    def find_definition(self, dotted: str) -> Definition | None:
        """Return the definition of a full dotted name such as ``package.module.Class.method``, or None."""
        module_name, _, name = dotted.rpartition(".")
        if (module := self.tree.module(dotted)) is not None:
            return Definition(module.tree, self.create_scope(module))
        base = self.find_definition(module_name) if module_name else None
        return self._resolve_member(base, name) if base else None

    def require_definition(self, dotted: str) -> Definition:
        """Return the definition of a full dotted name that must exist.

        Raises:
            MissingDefinitionError: The distribution has no such name.
        """
        result = self.find_definition(dotted)
        if result is None:
            raise MissingDefinitionError(dotted)
        return result

    def _resolve_member(self, base: Definition, name: str) -> Definition | None:
        match base.node:
            case ast.Module():
                return self._resolve_in_module(base.scope.module, name)
            case ast.ClassDef():
                return self.find_member(base, name)
            case ast.Call(func=func):  # an instance: its class's defaults, unless overridden by the call
                for keyword in base.node.keywords:
                    if keyword.arg == name:
                        return Definition(keyword.value, base.scope)
                cls = self.resolve(func, base.scope)
                return self._resolve_member(cls, name) if cls and isinstance(cls.node, ast.ClassDef) else None
        return None

    def _resolve_in_module(self, module: Module, name: str) -> Definition | None:
        if name in module.symbols:
            return self._follow_import(module.symbols[name], self.create_scope(module))
        starred = [each.module for key, each in module.symbols.items() if key[0] == "*" and isinstance(each, Import)]
        return next((result for each in starred if (result := self.find_definition(f"{each}.{name}"))), None)

    def find_member(self, cls: Definition, name: str) -> Definition | None:
        """Return the definition of a class member, which may be inherited."""
        for each in self.iter_ancestors(cls):
            for statement in getattr(each.node, "body", []):
                match statement:
                    case ast.FunctionDef(name=own) | ast.AnnAssign(target=ast.Name(id=own)) if own == name:
                        return Definition(statement, each.scope)
                    case ast.Assign(targets=[ast.Name(id=own)], value=value) if own == name:
                        return Definition(value, replace(each.scope, local=collect_class_assignments(each.node)))
        return None

    def iter_ancestors(self, cls: Definition) -> Iterator[Definition]:
        """Yield a class, followed by its base classes from the nearest to the most distant."""
        yield cls
        for base in getattr(cls.node, "bases", []):
            result = self.resolve(base, cls.scope)
            if result and isinstance(result.node, ast.ClassDef):
                yield from self.iter_ancestors(result)

    def _follow_import(self, meaning: Node | Import | None, scope: Scope) -> Definition | None:
        if isinstance(meaning, Import):
            if meaning.name is None:
                return self.find_definition(meaning.module)
            return self.find_definition(f"{meaning.module}.{meaning.name}")
        return Definition(meaning, scope) if meaning is not None else None


def collect_class_assignments(cls: Node) -> dict[str, ast.expr]:
    """Return the assigned values in the body of a class, by name."""
    return {
        statement.targets[0].id: statement.value
        for statement in getattr(cls, "body", [])
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name)
    }
