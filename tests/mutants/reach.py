"""Finds the tests that cover a line of the images' programs, in any process.

A copy of the tree gets a mark before each statement of each function. A mark appends the number of the current test and
its own to a file, once for each pair. Programs started by tests import the copy as well, and the number of the current
test is in a file that all processes map, so processes without the tests' environment and killed ones are covered.
"""

import ast
import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

FOLDER = ".reach"
PLUGIN = "tests.mutants.recording"
ENVIRONMENT = "VOICE_MUTANTS_RECORD"

_HEADER = """
import mmap as _mmap, os as _os
try:
    with open({folder!r} + "/current", "r+b") as _file:
        _current = _mmap.mmap(_file.fileno(), 4)
    _log = _os.open({folder!r} + "/marks", _os.O_WRONLY | _os.O_APPEND | _os.O_CREAT)
except OSError:
    def _mark(place): pass
else:
    _marks = set()
    def _mark(place):
        pair = int.from_bytes(_current[:], "little"), place
        if pair not in _marks:
            _marks.add(pair)
            _os.write(_log, b"%d %d\\n" % pair)
"""


@dataclass(frozen=True)
class _Statement:
    file: str
    first: int
    last: int
    names: frozenset[str]
    """Names that it refers to."""


Recorded = dict[str, tuple[float, list[int]]]
"""For each test its duration in seconds, and the statements that it covers."""


@dataclass
class Reach:
    """Tests that cover each statement.

    Attributes:
        duration_s: Duration of each passing test in seconds.
    """

    duration_s: dict[str, float] = field(default_factory=dict)
    _statements: list[_Statement] = field(default_factory=list)
    _tests: defaultdict[int, set[str]] = field(default_factory=lambda: defaultdict(set))
    _bindings: list[tuple[str, int, int, frozenset[str], frozenset[str]]] = field(default_factory=list)
    """Statements outside of functions: file, first and last line, bound names and referenced names."""
    _imported: set[tuple[str, str]] = field(default_factory=set)
    """Files, and the names that their statements outside of functions and classes refer to: they run at import."""

    def read(self, root: Path, programs: list[str]) -> dict[Path, str]:
        """Number the statements of programs, and return their files with a mark before each statement."""
        marked = {}
        for path in sorted(path for folder in programs for path in (root / folder).rglob("*.py")):
            file = str(path.relative_to(root))
            module = ast.parse(path.read_text(encoding="utf-8"))
            self._bind(file, module)
            self._mark(file, module, inside=False)
            marked[path.relative_to(root)] = ast.unparse(ast.fix_missing_locations(module))
        return marked

    def add(self, recorded: Recorded) -> None:
        """Add a record."""
        for name, (duration_s, places) in recorded.items():
            self.duration_s[name] = duration_s
            for place in places:
                self._tests[place].add(name)

    def tests(self, file: str, line: int) -> tuple[str, ...]:
        """Return the tests that cover a line, or functions that refer to its definitions; the fastest come first."""
        inner = [(each.last - each.first, -each.first, number) for number, each in enumerate(self._statements)
                 if each.file == file and each.first <= line <= each.last]  # fmt: skip
        reached = set(self._tests[min(inner)[2]]) if inner else self._referring(file, line)
        # Results of functions called at import are used by tests that never run these functions.
        if any((file, name) in self._imported for name in self._bound(file, line)):
            reached |= self._referring(file, line)
        return tuple(sorted(reached, key=lambda name: (self.duration_s[name], name)))

    def is_in_function(self, file: str, line: int) -> bool:
        """Return True if tests that run a line are recorded, and False for one that runs at import."""
        return any(each.file == file and each.first <= line <= each.last for each in self._statements)

    def _bound(self, file: str, line: int) -> set[str]:
        outer = [(last - first, bound) for path, first, last, bound, _ in self._bindings
                 if path == file and first <= line <= last]  # fmt: skip
        return set(min(outer, key=lambda each: each[0])[1]) if outer else set()

    def _referring(self, file: str, line: int) -> set[str]:
        names = self._bound(file, line)
        while True:
            more = {name for _, _, _, bound, referred in self._bindings if referred & names for name in bound} - names
            if not more:
                break
            names |= more
        # A statement that binds nothing runs with its module.
        return {test for number, each in enumerate(self._statements)
                if (each.names & names if names else each.file == file) for test in self._tests[number]}  # fmt: skip

    def _bind(self, file: str, module: ast.Module) -> None:
        for statement in _outside_functions(module):
            bound = {each.id for each in ast.walk(statement) if isinstance(each, ast.Name)
                     and isinstance(each.ctx, ast.Store)}  # fmt: skip
            if isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                bound = {statement.name}
            else:
                self._imported |= {(file, name) for name in _names(statement)}
            self._bindings.append((file, *_lines(statement), frozenset(bound), _names(statement)))

    def _mark(self, file: str, node: ast.AST, *, inside: bool) -> None:
        inside = inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for name, value in ast.iter_fields(node):
            for each in value if isinstance(value, list) else [value]:
                if isinstance(each, ast.AST):
                    self._mark(file, each, inside=inside)
            if inside and isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                setattr(node, name, list(self._marked(file, value)))

    def _marked(self, file: str, statements: list[ast.stmt]) -> Iterator[ast.stmt]:
        for statement in statements:
            if not _is_first(statement):
                yield from ast.parse(f"_mark({len(self._statements)})").body
                self._statements.append(_Statement(file, *_lines(statement), _names(statement)))
            yield statement


def instrument(tree: Path, marked: dict[Path, str]) -> None:
    """Write marked files into a copy of the tree, for ``record``."""
    record = tree / FOLDER
    record.mkdir()
    (record / "current").write_bytes(bytes(4))
    for path, source in marked.items():
        module = ast.parse(source)
        after = next(at for at, each in enumerate([*module.body, None]) if not _is_first(each))
        module.body[after:after] = ast.parse(_HEADER.format(folder=str(record))).body
        (tree / path).write_text(ast.unparse(module), encoding="utf-8")


def record(tree: Path, tests: list[str], environment: dict[str, str]) -> Recorded:
    """Run tests in an instrumented tree, and print failures."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", PLUGIN, *tests]
    own = environment | {ENVIRONMENT: str(tree / FOLDER)}
    subprocess.run(command, cwd=tree, check=False, stdout=subprocess.DEVNULL, env=own)  # noqa: S603
    names, recorded = {}, Recorded()
    for line in (tree / FOLDER / "tests").read_text(encoding="utf-8").splitlines():
        number, name, duration_s, outcome = json.loads(line)
        if outcome == "passed":
            names[number], recorded[name] = name, (duration_s, [])
        else:
            print(f"{name}: {outcome} without any mutant, and left out", flush=True)
    for line in (tree / FOLDER / "marks").read_text(encoding="ascii").splitlines():
        number, place = map(int, line.split())
        if number in names:
            recorded[names[number]][1].append(place)
    return recorded


def _outside_functions(node: ast.Module | ast.ClassDef) -> Iterator[ast.stmt]:
    for statement in node.body:
        yield statement
        if isinstance(statement, ast.ClassDef):
            yield from _outside_functions(statement)


def _is_first(statement: ast.stmt | None) -> bool:
    """Return True for a docstring or declaration, which must precede other statements or binds no name."""
    if isinstance(statement, ast.ImportFrom):
        return statement.module == "__future__"
    is_text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return is_text or isinstance(statement, ast.Global | ast.Nonlocal)


def _lines(statement: ast.stmt) -> tuple[int, int]:
    decorators = getattr(statement, "decorator_list", [])
    first = min([statement.lineno, *(each.lineno for each in decorators)])
    return first, statement.end_lineno or statement.lineno


def _names(node: ast.AST) -> frozenset[str]:
    names = (each.id if isinstance(each, ast.Name) else each.attr for each in ast.walk(node)
             if isinstance(each, ast.Name | ast.Attribute))  # fmt: skip
    return frozenset(names)
