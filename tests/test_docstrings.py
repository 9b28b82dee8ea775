"""Docstrings add information to the names, and documents use standard terms."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PUBLIC = ("constructs", "stacks", "voice_blueprint", "voice_ops")
FOLDERS = (*PUBLIC, "bench", "images", "tools", "userdata", "voice_sandbox")
FILLER_WORDS = re.compile(
    "returns?|yields?|the|an?|of|its?|for|from|to|and|in|is|this|what|one|every|each|that|are|as|by|with|on|at|be|all|"
    "them|they|whether|there|give|make|get|tell|so|where|which|how|answer",
    re.IGNORECASE,
)
"""Words without information of their own."""
FORBIDDEN_WORDS = re.compile(
    r"\b(mends?|mended|nobody|somebody|whoever|anybody|anew|at the most|without a word|lets? in|speaks? against)\b",
    re.IGNORECASE,
)
"""Words that must not occur in texts for users."""
NOT_A_SUMMARY = re.compile(r"(Return (what|how|who|whether)|What|Who|Where|How) ")
Function = ast.FunctionDef | ast.AsyncFunctionDef


def stems(text: str) -> set[str]:
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", text)
    return {
        re.sub(r"(ing|ed|es|s|d|e)$", "", word.lower()) or word for word in words if not FILLER_WORDS.fullmatch(word)
    }


def repeats(function: Function, around: str) -> bool:
    """Return True if all words of a one-line docstring occur in the signature, the class or the module name."""
    text = ast.get_docstring(function)
    return (
        bool(text)
        and "\n" not in str(text)
        and stems(str(text)) <= stems(f"{around} {ast.unparse(_signature_only(function))}")
    )


def _signature_only(function: Function) -> Function:
    kind = type(function)
    return kind(function.name, function.args, [ast.Pass()], [], function.returns, lineno=0)


def repeating_docstrings(source: str, module: str) -> Iterator[str]:
    def visit(node: ast.AST, around: str) -> Iterator[str]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, Function) and repeats(child, around):
                yield f"{child.name}: {ast.get_docstring(child)}"
            yield from visit(child, f"{around} {child.name}" if isinstance(child, ast.ClassDef) else around)

    return visit(ast.parse(source), module)


def sources() -> list[Path]:
    files = (file for folder in FOLDERS for file in (ROOT / folder).rglob("*.py"))
    return sorted(file for file in files if "tests" not in file.relative_to(ROOT).parts)


def test_no_docstring_only_repeats_names() -> None:
    files = sources()
    assert len(files) > 400
    assert [
        f"{file}: {each}"
        for file in files
        for each in repeating_docstrings(file.read_text(encoding="utf-8"), file.stem)
    ] == []


@pytest.mark.parametrize(
    "source",
    [
        'def alarm_name() -> str:\n    """Return the name of the alarm."""',
        'class Certificate:\n    def delete(self) -> None:\n        """Delete the certificate."""',
        'async def in_zone(zone: str) -> None:\n    """Each in this zone."""',
    ],
)
def test_a_repetition_is_detected(source: str) -> None:
    assert list(repeating_docstrings(source, "module"))


def test_a_docstring_that_adds_a_unit_is_accepted() -> None:
    assert not list(repeating_docstrings('def size() -> int:\n    """Return the size in bytes."""', "module"))


def forbidden_words(name: str) -> list[str]:
    text = (ROOT / name).read_text(encoding="utf-8")
    return [
        f"{name}:{text.count(chr(10), 0, match.start()) + 1}: {match[0]}" for match in FORBIDDEN_WORDS.finditer(text)
    ]


def test_documents_use_standard_terms() -> None:
    """Includes the reference pages of commands and settings, whose texts are help texts and descriptions."""
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "deployments").glob("*.yaml")]
    names = [str(page.relative_to(ROOT)) for page in pages if "seeds" not in page.parts and page.stem != "deviations"]
    assert len(names) > 80
    assert [each for name in names for each in forbidden_words(name)] == []


def test_a_coined_word_is_detected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "page.md").write_text("A host.\nIt lets in nobody.\n", encoding="utf-8")
    monkeypatch.setattr("tests.test_docstrings.ROOT", tmp_path)
    assert forbidden_words("page.md") == ["page.md:2: lets in", "page.md:2: nobody"]


def test_summaries_are_noun_phrases_or_imperatives() -> None:
    files = [file for file in sources() if file.relative_to(ROOT).parts[0] in PUBLIC]
    assert len(files) > 300
    documented = [
        (file, node)
        for file in files
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    summaries = [(file, ast.get_docstring(node) or "") for file, node in documented]
    assert [f"{file}: {text.splitlines()[0]}" for file, text in summaries if NOT_A_SUMMARY.match(text)] == []


SECTION = re.compile(r"^(?:Attributes|Args):\n((?: {4}.*\n?|\n)+)", re.MULTILINE)
ENTRY = re.compile(r"^ {4}(\w+(?:, \w+)*):", re.MULTILINE)


def unknown_names(source: str) -> Iterator[str]:
    """Yield the names in sections of docstrings that the class or function does not have."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.ClassDef | Function):
            continue
        body = node.args if isinstance(node, Function) else node
        known = {each.arg for each in ast.walk(body) if isinstance(each, ast.arg)}
        known |= {each.attr for each in ast.walk(body) if isinstance(each, ast.Attribute)}
        known |= {each.id for each in ast.walk(body) if isinstance(each, ast.Name)}
        known |= {each.name for each in ast.walk(body) if isinstance(each, Function)}
        for section in SECTION.findall(ast.get_docstring(node) or ""):
            for entry in ENTRY.findall(section):
                yield from (f"{node.name}: {name}" for name in entry.split(", ") if name not in known)


def test_docstrings_describe_names_that_exist() -> None:
    assert [f"{file}: {name}" for file in sources() for name in unknown_names(file.read_text(encoding="utf-8"))] == []


def test_the_old_name_of_a_renamed_field_is_detected() -> None:
    source = (
        'class Host:\n    """A host.\n\n    Attributes:\n        ip, port: Where it listens.\n    """\n\n    port: int'
    )
    assert list(unknown_names(source)) == ["Host: ip"]
