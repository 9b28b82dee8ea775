"""Dependencies of the package: few without extras, and an extra for each part that requires more."""

import ast
import subprocess
import sys
from importlib.metadata import packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from voice_ops.extras import MODULES_BY_EXTRA

ROOT = Path(__file__).parents[2]
BASE_MODULES = {"pydantic", "pydantic_core", "rich", "typer", "yaml"}
OWN_PACKAGES = {"voice_blueprint", "voice_constructs", "voice_ops", "voice_sandbox", "voice_stacks", "voice_userdata"}
SOURCE_CHECKOUT_ONLY = (
    "voice_ops/demo/",
    "voice_ops/images/licenses.py",
    "voice_ops/images/sbom.py",
    "voice_ops/preflight/aws/permission_table.py",
    "voice_sandbox/engines/tiny_models.py",
    "voice_sandbox/engines/weights.py",
)
"""Files that require the sources and the development dependencies."""


def distributions_with(extra: str) -> set[str]:
    """Return the distributions that `pip install voice-serve[extra]` installs, by requirement."""
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


@pytest.mark.parametrize("extra", MODULES_BY_EXTRA)
def test_an_extra_installs_its_modules(extra: str) -> None:
    distributions = packages_distributions()
    brought = distributions_with(extra)
    missing = {
        module
        for module in MODULES_BY_EXTRA[extra]
        if not brought & {canonicalize_name(name) for name in distributions[module]}
    }
    assert not missing


@pytest.mark.parametrize("command", ["call", "loadtest", "simulate"])
def test_a_command_starts_with_its_own_extra_alone(command: str) -> None:
    others: set[str] = set().union(*MODULES_BY_EXTRA.values()) - MODULES_BY_EXTRA[command]
    # A module with the value None cannot be imported.
    code = f"import sys; sys.modules.update(dict.fromkeys({others!r})); import voice_ops.{command}.command"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)  # noqa: S603


def imported_modules(file: Path) -> set[str]:
    """Return top-level modules that a file imports at run time, without imports for type checking."""
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


@pytest.mark.parametrize(
    "folder", ["constructs", "stacks", "userdata", "voice_blueprint", "voice_ops", "voice_sandbox"]
)
def test_every_imported_module_is_a_dependency_or_in_an_extra(folder: str) -> None:
    known = sys.stdlib_module_names | BASE_MODULES | OWN_PACKAGES | set().union(*MODULES_BY_EXTRA.values())
    files = list((ROOT / folder).rglob("*.py"))
    strange = {
        (str(file.relative_to(ROOT)), module)
        for file in files
        if not str(file.relative_to(ROOT)).startswith(SOURCE_CHECKOUT_ONLY)
        for module in imported_modules(file) - known
    }
    assert files
    assert not strange
