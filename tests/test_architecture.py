"""Imports have one direction: voice_blueprint <- constructs <- stacks <- app.py.

User data imports only the contract.
"""

import ast
import graphlib
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from tests.conftest import pytest_configure
from tests.nonempty import nonempty
from voice_ops.cli import COMMANDS

ROOT = Path(__file__).parents[1]
ABOVE_BLUEPRINT = {
    *("app", "bench", "tests", "tools"),
    *("voice_constructs", "voice_ops", "voice_sandbox", "voice_stacks", "voice_userdata"),
}
SOURCE_ROOTS = ("constructs", "stacks", "userdata")
"""Top-level folders that contain the project's packages, since their names are too general for packages."""
BLUEPRINT_DEPENDENCIES = {"cryptography", "voice_blueprint", "pydantic", "pydantic_core", "yaml"}


def python_files(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def module_name(file: Path) -> str:
    parts = file.relative_to(ROOT).with_suffix("").parts
    parts = parts[1:] if parts[0] in SOURCE_ROOTS else parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(source: str, package: str) -> Iterator[str]:
    """Yield the full name of every imported module or name, including those in functions and TYPE_CHECKING."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            yield from (f"{base}.{alias.name}" for alias in node.names)


def imports_in_file(file: Path) -> set[str]:
    name = module_name(file)
    package = name if file.name == "__init__.py" else name.rpartition(".")[0]
    return set(imports(file.read_text(encoding="utf-8"), package))


def top_levels(names: set[str]) -> set[str]:
    return {name.partition(".")[0] for name in names}


def test_imports_are_detected_at_any_nesting_level() -> None:
    source = (
        "import os.path\nfrom . import a\nfrom ..b import c as d\n"
        "def f():\n    import boto3\nif TYPE_CHECKING:\n    from aws_cdk import aws_ec2\n"
    )
    assert set(imports(source, "x.y")) == {"os.path", "x.y.a", "x.b.c", "boto3", "aws_cdk.aws_ec2"}


def test_blueprint_imports_no_cloud_sdk_and_no_higher_layer() -> None:
    for file in nonempty(python_files("voice_blueprint")):
        assert top_levels(imports_in_file(file)) <= sys.stdlib_module_names | BLUEPRINT_DEPENDENCIES, file


def test_userdata_imports_only_the_contract() -> None:
    allowed = ("voice_userdata.", "voice_blueprint.contract.")
    for file in nonempty(python_files("userdata")):
        outside = {name for name in imports_in_file(file) if name.partition(".")[0] not in sys.stdlib_module_names}
        assert {name for name in outside if not f"{name}.".startswith(allowed)} == set(), file


@pytest.mark.parametrize("cloud", ["aws", "azure"])
def test_a_local_cloud_imports_no_product_code(cloud: str) -> None:
    own = ("voice_sandbox." + cloud, "voice_sandbox.changes.", "voice_sandbox.loopback.")
    product = ABOVE_BLUEPRINT | {"voice_blueprint", *(file.name for file in (ROOT / "images").glob("*/src/*"))}
    files = python_files(f"voice_sandbox/{cloud}")
    imported = {file: {name for name in imports_in_file(file) if name.partition(".")[0] in product} for file in files}
    assert any(imported.values())
    assert {file: bad for file, names in imported.items() if (bad := {n for n in names if not n.startswith(own)})} == {}


def unit(name: str) -> str | None:
    """Return the subpackage of a name, such as ``file`` for ``voice_blueprint.file.model.aws.Aws``."""
    parts = name.split(".")
    if parts[0] != "voice_blueprint" or len(parts) < 2:
        return None
    below = ROOT / "voice_blueprint" / parts[1]
    return parts[1] if below.is_dir() or below.with_suffix(".py").is_file() else "__init__"


def blueprint_graph() -> dict[str, set[str]]:
    graph: dict[str, set[str]] = {}
    for file in python_files("voice_blueprint"):
        here = unit(module_name(file)) or "__init__"
        graph.setdefault(here, set()).update(
            there for name in imports_in_file(file) if (there := unit(name)) is not None and there != here
        )
    return graph


def test_blueprint_has_no_import_cycle_between_packages() -> None:
    try:
        graphlib.TopologicalSorter(blueprint_graph()).prepare()
    except graphlib.CycleError as error:
        pytest.fail(f"import cycle: {' -> '.join(error.args[1])}")


def test_an_import_cycle_is_detected() -> None:
    graph = blueprint_graph()
    assert {"file", "catalog", "engines"} <= graph["checks"]
    assert "file" in graph["__init__"]
    assert "__init__" not in set().union(*graph.values())  # the package's top level is for others
    assert not graph["contract"]


def test_contract_only_imports_the_standard_library() -> None:
    imported = set().union(*(imports_in_file(file) for file in python_files("voice_blueprint/contract")))
    outside = {name for name in imported if not name.startswith("voice_blueprint.contract.")}
    assert top_levels(outside) <= sys.stdlib_module_names


def modules(folder: Path) -> set[str]:
    """Return the names of the modules and packages directly in a folder."""
    return {file.stem for file in folder.glob("*.py")} | {file.parent.name for file in folder.glob("*/__init__.py")}


def test_blueprint_has_one_folder_for_each_subject() -> None:
    subjects = {"file", "contract", "catalog", "capacity", "checks", "aws", "azure", "engines", "observability"}
    single = {
        "__init__",
        "base",
        "day",
        "environment",
        "hosts",
        "huge_pages",
        "images",
        "limits",
        "shipped",
        "signing",
    }
    assert modules(ROOT / "voice_blueprint") == subjects | single


def test_each_command_has_a_folder_with_its_command() -> None:
    assert {file.parent.name for file in (ROOT / "voice_ops").glob("*/command.py")} - {"demo"} == set(COMMANDS)


def test_constructs_is_a_source_root_and_not_a_package() -> None:
    assert not (ROOT / "constructs" / "__init__.py").exists()
    spec = importlib.util.find_spec("constructs")
    assert spec
    assert spec.origin
    assert ROOT / "constructs" not in Path(spec.origin).parents


def test_importing_constructs_as_a_package_raises_an_explanation(tmp_path: Path) -> None:
    config = cast("pytest.Config", SimpleNamespace(rootpath=tmp_path))
    pytest_configure(config)
    (tmp_path / "constructs").mkdir()
    pytest_configure(config)
    (tmp_path / "constructs" / "__init__.py").touch()
    with pytest.raises(pytest.UsageError, match=r"constructs/__init__\.py exists.*Delete it"):
        pytest_configure(config)
