"""Imports point one way: blueprint <- constructs <- stacks <- app.py, and userdata knows only the contract."""

import ast
import graphlib
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from ops.cli import COMMANDS
from tests.conftest import pytest_configure

ROOT = Path(__file__).parents[1]
CLOUD_SDKS = {"aws_cdk", "boto3", "botocore", "cdk_monitoring_constructs", "cdk_nag", "constructs", "moto", "pulumi"}
ABOVE_BLUEPRINT = {"app", "bench", "constructs", "ops", "sandbox", "stacks", "tests", "userdata", "voice_constructs"}
BLUEPRINT_DEPENDENCIES = {"cryptography", "blueprint", "pydantic", "pydantic_core", "yaml"}


def python_files(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def module_name(file: Path) -> str:
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(source: str, package: str) -> Iterator[str]:
    """Yield every module or name that a source imports, in full; inside functions and TYPE_CHECKING too."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            yield from (f"{base}.{alias.name}" for alias in node.names)


def imports_of(file: Path) -> set[str]:
    name = module_name(file)
    package = name if file.name == "__init__.py" else name.rpartition(".")[0]
    return set(imports(file.read_text(encoding="utf-8"), package))


def top_levels(names: set[str]) -> set[str]:
    return {name.partition(".")[0] for name in names}


def test_imports_are_found_wherever_they_stand() -> None:
    source = (
        "import os.path\nfrom . import a\nfrom ..b import c as d\n"
        "def f():\n    import boto3\nif TYPE_CHECKING:\n    from aws_cdk import aws_ec2\n"
    )
    assert set(imports(source, "x.y")) == {"os.path", "x.y.a", "x.b.c", "boto3", "aws_cdk.aws_ec2"}


@pytest.mark.parametrize("folder", ["blueprint", "userdata"])
def test_there_is_something_to_look_at(folder: str) -> None:
    assert len(python_files(folder)) > 2


@pytest.mark.parametrize("file", python_files("blueprint"), ids=module_name)
def test_blueprint_knows_no_cloud_sdk_and_nothing_above_it(file: Path) -> None:
    tops = top_levels(imports_of(file))
    assert not tops & CLOUD_SDKS
    assert not tops & ABOVE_BLUEPRINT
    assert tops <= sys.stdlib_module_names | BLUEPRINT_DEPENDENCIES


@pytest.mark.parametrize("file", python_files("userdata"), ids=module_name)
def test_userdata_knows_only_the_contract(file: Path) -> None:
    outside = {name for name in imports_of(file) if name.partition(".")[0] not in sys.stdlib_module_names}
    allowed = ("userdata.", "blueprint.contract.")
    assert {name for name in outside if not f"{name}.".startswith(allowed)} == set()


def unit(name: str) -> str | None:
    """``model`` of ``blueprint.file.model.aws.Aws``: the modules and packages right below ``blueprint``."""
    parts = name.split(".")
    if parts[0] != "blueprint" or len(parts) < 2:
        return None
    below = ROOT / "blueprint" / parts[1]
    return parts[1] if below.is_dir() or below.with_suffix(".py").is_file() else "__init__"


def blueprint_graph() -> dict[str, set[str]]:
    graph: dict[str, set[str]] = {}
    for file in python_files("blueprint"):
        here = unit(module_name(file)) or "__init__"
        graph.setdefault(here, set()).update(
            there for name in imports_of(file) if (there := unit(name)) is not None and there != here
        )
    return graph


def test_blueprint_has_no_import_cycle_between_packages() -> None:
    try:
        graphlib.TopologicalSorter(blueprint_graph()).prepare()
    except graphlib.CycleError as error:
        pytest.fail(f"import cycle: {' -> '.join(error.args[1])}")


def test_the_import_graph_is_seen() -> None:
    graph = blueprint_graph()
    assert {"file", "catalog", "engines"} <= graph["checks"]
    assert "file" in graph["__init__"]
    assert "__init__" not in set().union(*graph.values())  # the front door is for others
    assert not graph["contract"]


def test_contract_needs_nothing_but_the_standard_library() -> None:
    imported = set().union(*(imports_of(file) for file in python_files("blueprint/contract")))
    outside = {name for name in imported if not name.startswith("blueprint.contract.")}
    assert top_levels(outside) <= sys.stdlib_module_names


def modules(folder: Path) -> set[str]:
    """Names of the modules and packages right in a folder."""
    return {file.stem for file in folder.glob("*.py")} | {file.parent.name for file in folder.glob("*/__init__.py")}


def test_blueprint_has_one_folder_for_each_subject() -> None:
    subjects = {"file", "contract", "catalog", "checks", "aws", "azure", "engines", "observability"}
    assert modules(ROOT / "blueprint") == subjects | {"__init__", "base", "capacity", "hosts", "images", "signing"}


def test_each_command_has_a_folder_with_its_command() -> None:
    assert {file.parent.name for file in (ROOT / "ops").glob("*/command.py")} - {"demo"} == set(COMMANDS)


def test_constructs_is_a_source_root_and_not_a_package() -> None:
    assert not (ROOT / "constructs" / "__init__.py").exists()
    spec = importlib.util.find_spec("constructs")
    assert spec
    assert spec.origin
    assert ROOT / "constructs" not in Path(spec.origin).parents


def test_guard_says_what_is_wrong_with_constructs_as_a_package(tmp_path: Path) -> None:
    config = cast("pytest.Config", SimpleNamespace(rootpath=tmp_path))
    pytest_configure(config)
    (tmp_path / "constructs").mkdir()
    pytest_configure(config)
    (tmp_path / "constructs" / "__init__.py").touch()
    with pytest.raises(pytest.UsageError, match=r"constructs/__init__\.py exists.*Delete it"):
        pytest_configure(config)
