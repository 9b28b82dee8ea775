"""Parses the Python modules of a wheel, or modules from source text."""

import ast
import functools
import importlib.util
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

Node = ast.AST


@dataclass(frozen=True)
class Import:
    """An imported module, or a name imported from a module.

    Attributes:
        name: Imported name; None for the module itself.
    """

    module: str
    name: str | None


_MATCH_ALL_PATTERN = re.compile("")

Symbols = dict[str, "Node | Import"]


@dataclass(frozen=True, eq=False)
class Module:
    """A parsed module.

    Attributes:
        path: Path inside the wheel or repository.
        symbols: Definition of each top-level name, including those under ``TYPE_CHECKING``; for a star import, the key
            is ``*`` and the module's name.
    """

    name: str
    path: str
    tree: ast.Module
    symbols: Symbols = field(repr=False)


class SourceTree:
    """The modules of a distribution, each of which is parsed on first use."""

    def __init__(self, paths: frozenset[str], read: Callable[[str], str]) -> None:
        self._read = functools.cache(read)
        self._paths = {
            path.removesuffix(".py").removesuffix("/__init__").replace("/", "."): path
            for path in paths
            if path.endswith(".py")
        }
        self.module = functools.cache(self._parse_module)

    @classmethod
    def from_texts(cls, texts: Mapping[str, str]) -> "SourceTree":
        """Create a tree from the texts of files, by path."""
        return cls(frozenset(texts), texts.__getitem__)

    @classmethod
    def from_wheel(cls, archive: Path) -> "SourceTree":
        """Create a tree from the files of a wheel.

        Raises:
            zipfile.BadZipFile: The file is not a wheel.
        """
        wheel = zipfile.ZipFile(archive)
        return cls(frozenset(wheel.namelist()), lambda path: wheel.read(path).decode("utf-8"))

    def iter_modules(
        self, under: str = "", containing: str = "", pattern: re.Pattern[str] = _MATCH_ALL_PATTERN
    ) -> Iterator[Module]:
        """Yield the modules whose path has a prefix, and whose text contains a word and matches a pattern.

        The text is searched first, since parsing all of a large distribution takes a long time.
        """
        for name, path in sorted(self._paths.items(), key=lambda item: item[1]):
            if not path.startswith(under):
                continue
            text = self._read(path)
            if containing in text and pattern.search(text) and (module := self.module(name)):
                yield module

    def _parse_module(self, name: str) -> Module | None:
        path = self._paths.get(name)
        if path is None:
            return None
        try:
            tree = ast.parse(self._read(path))
        except SyntaxError:  # a template, or newer than this Python
            return None
        package = name if path.endswith("/__init__.py") else name.rpartition(".")[0]
        return Module(name, path, tree, collect_symbols(tree.body, package))


def collect_symbols(body: list[ast.stmt], package: str) -> Symbols:
    """Return the first binding of each name in a block of statements."""
    matches: Symbols = {}
    for statement in body:
        for name, meaning in _iter_bindings(statement, package):
            matches.setdefault(name, meaning)
    return matches


def _iter_bindings(statement: ast.stmt, package: str) -> Iterator[tuple[str, Node | Import]]:
    match statement:
        case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
            yield statement.name, statement
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            yield name, value
        case ast.AnnAssign(target=ast.Name(id=name)):
            yield name, statement
        case ast.Import(names=names):
            for alias in names:
                top = alias.name.partition(".")[0]
                yield alias.asname or top, Import(alias.name if alias.asname else top, None)
        case ast.ImportFrom():
            yield from _iter_imported_names(statement, package)
        case ast.If() | ast.Try() | ast.With():
            for block in iter_blocks(statement):
                yield from collect_symbols(block, package).items()


def _iter_imported_names(statement: ast.ImportFrom, package: str) -> Iterator[tuple[str, Import]]:
    try:
        module = importlib.util.resolve_name("." * statement.level + (statement.module or ""), package)
    except ImportError:  # above the top-level package: not part of this distribution
        return
    for alias in statement.names:
        if alias.name == "*":
            yield f"*{module}", Import(module, None)
        else:
            yield alias.asname or alias.name, Import(module, alias.name)


def iter_blocks(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    """Yield the blocks of statements inside a statement, in source order."""
    for name in ("body", "orelse", "finalbody"):
        yield getattr(statement, name, [])
    for handler in getattr(statement, "handlers", []):
        yield handler.body
