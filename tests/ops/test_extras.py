"""What the package asks for: little by itself, and an extra for each part that needs more."""

import ast
import subprocess
import sys
from importlib.metadata import packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ops.extras import EXTRAS

ROOT = Path(__file__).parents[2]
BASE = {"pydantic", "pydantic_core", "rich", "typer", "yaml"}
OURS = {"blueprint", "ops", "sandbox", "stacks", "userdata", "voice_constructs"}
WITH_THE_SOURCES = ("ops/demo/", "ops/preflight/aws/permission_table.py")
"""What runs beside the sources only, where the developers' packages are."""


def installed_with(extra: str) -> set[str]:
    """The distributions that `pip install voice-serve[extra]` brings, by what each asks for."""
    found: set[str] = set()
    todo = [Requirement(f"voice-serve[{extra}]")]
    while todo:
        wanted = todo.pop()
        name = canonicalize_name(wanted.name)
        found.add(name)
        for text in requires(name) or []:
            needed = Requirement(text)
            if needed.marker is None or any(needed.marker.evaluate({"extra": each}) for each in wanted.extras or {""}):
                fresh = canonicalize_name(needed.name) not in found or needed.extras
                todo += [needed] if fresh else []
    return found


@pytest.mark.parametrize("extra", EXTRAS)
def test_an_extra_brings_the_modules_that_it_is_named_for(extra: str) -> None:
    distributions = packages_distributions()
    brought = installed_with(extra)
    missing = {
        module for module in EXTRAS[extra] if not brought & {canonicalize_name(name) for name in distributions[module]}
    }
    assert not missing


@pytest.mark.parametrize("command", ["call", "loadtest", "simulate"])
def test_a_command_starts_with_its_own_extra_alone(command: str) -> None:
    others: set[str] = set().union(*EXTRAS.values()) - EXTRAS[command]
    # A module of the value None is one that cannot be found.
    code = f"import sys; sys.modules.update(dict.fromkeys({others!r})); import ops.{command}.command"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)  # noqa: S603


def imported(file: Path) -> set[str]:
    """Top-level modules that a file imports when it runs; what only a type checker reads is left out."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    unread = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for inner in ast.walk(node)
    }
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import) and id(node) not in unread:
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and id(node) not in unread:
            found.add(node.module.partition(".")[0])
    return found


@pytest.mark.parametrize("folder", ["blueprint", "constructs", "ops", "sandbox", "stacks", "userdata"])
def test_every_module_that_is_imported_comes_with_the_package_or_an_extra(folder: str) -> None:
    known = sys.stdlib_module_names | BASE | OURS | set().union(*EXTRAS.values())
    files = list((ROOT / folder).rglob("*.py"))
    strange = {
        (str(file.relative_to(ROOT)), module)
        for file in files
        if not str(file.relative_to(ROOT)).startswith(WITH_THE_SOURCES)
        for module in imported(file) - known
    }
    assert files
    assert not strange
