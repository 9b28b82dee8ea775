"""A docstring says something that the names do not: one that repeats them costs a reader time."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("bench", "blueprint", "constructs", "images", "ops", "sandbox", "stacks", "userdata")
EMPTY = re.compile(
    "returns?|yields?|the|an?|of|its?|for|from|to|and|in|is|this|what|one|every|each|that|are|as|by|with|on|at|be|all|"
    "them|they|whether|there|give|make|get|tell|so|where|which|how|answer",
    re.IGNORECASE,
)
"""Words that say nothing by themselves."""
Function = ast.FunctionDef | ast.AsyncFunctionDef


def stems(text: str) -> set[str]:
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", text)
    return {re.sub(r"(ing|ed|es|s|d|e)$", "", word.lower()) or word for word in words if not EMPTY.fullmatch(word)}


def repeats(function: Function, around: str) -> bool:
    """Whether the words of a one-line docstring are those of the signature, the class and the module."""
    text = ast.get_docstring(function)
    return (
        bool(text) and "\n" not in str(text) and stems(str(text)) <= stems(f"{around} {ast.unparse(_bare(function))}")
    )


def _bare(function: Function) -> Function:
    kind = type(function)
    return kind(function.name, function.args, [ast.Pass()], [], function.returns, lineno=0)


def found(source: str, module: str) -> Iterator[str]:
    def visit(node: ast.AST, around: str) -> Iterator[str]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, Function) and repeats(child, around):
                yield f"{child.name}: {ast.get_docstring(child)}"
            yield from visit(child, f"{around} {child.name}" if isinstance(child, ast.ClassDef) else around)

    return visit(ast.parse(source), module)


def sources() -> list[Path]:
    files = (file for folder in FOLDERS for file in (ROOT / folder).rglob("*.py"))
    return sorted(file for file in files if "tests" not in file.relative_to(ROOT).parts)


def test_no_docstring_repeats_the_names() -> None:
    files = sources()
    assert len(files) > 400
    assert [f"{file}: {each}" for file in files for each in found(file.read_text(encoding="utf-8"), file.stem)] == []


@pytest.mark.parametrize(
    "planted",
    [
        'def alarm_name() -> str:\n    """Return the name of the alarm."""',
        'class Certificate:\n    def delete(self) -> None:\n        """Delete the certificate."""',
        'async def in_zone(zone: str) -> None:\n    """Each in this zone."""',
    ],
)
def test_a_repetition_is_found(planted: str) -> None:
    assert list(found(planted, "module"))


def test_a_unit_is_news() -> None:
    assert not list(found('def size() -> int:\n    """Return the size in bytes."""', "module"))
