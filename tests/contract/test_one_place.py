"""Versions of engines, ports and metric names of engines stand in one place each; a second copy fails."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from blueprint import catalog
from blueprint.azure import contract as cluster_contract
from blueprint.contract import network
from blueprint.contract.network import Port

ROOT = Path(__file__).parents[2]
FOLDERS = ("blueprint", "constructs", "ops", "sandbox", "stacks", "userdata")
CONTRACTS = ("blueprint/contract/network.py", "blueprint/azure/contract.py")
VERIFIER = "sandbox/aws/verify_edge.py"
"""Says a second time, as a person would, which ports are public: it compares nothing with itself."""
METRICS = ("blueprint/azure/metrics.py",)
"""Where names of engines' metrics are written."""
COMMON_PORTS = {53, 443, 10_000}
"""Numbers that mean other things too."""

PORTS = {
    value.number for module in (network, cluster_contract) for value in vars(module).values() if isinstance(value, Port)
} - COMMON_PORTS
VERSIONS = {engine.version for engine in catalog.engines().values()}


def constants(source: str) -> Iterator[object]:
    """Yield every literal of a program but its docstrings, which explain."""
    tree = ast.parse(source)
    explanations = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in explanations:
            yield node.value


def copies(source: str, *, name: str) -> list[object]:
    """Return the literals that belong elsewhere."""
    return [
        value
        for value in constants(source)
        if (type(value) is int and value in PORTS and name not in (*CONTRACTS, VERIFIER))
        or (isinstance(value, str) and any(version in value for version in VERSIONS))
        or (isinstance(value, str) and value.startswith(("vllm:", "lmcache_mp_")) and name not in METRICS)
    ]


FILES = sorted(file for folder in FOLDERS for file in (ROOT / folder).rglob("*.py"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_program_holds_no_copy(file: Path) -> None:
    assert copies(file.read_text(encoding="utf-8"), name=str(file.relative_to(ROOT))) == []


@pytest.mark.parametrize(
    "planted",
    [
        "PORT = 8000",
        "x = f(port=6555)  # LMCache",
        'IMAGE = "vllm/vllm-openai:v0.33.0"',
        'm = "vllm:num_requests_waiting"',
    ],
)
def test_a_second_copy_is_found(planted: str) -> None:
    assert copies(planted, name="stacks/azure/workloads/__main__.py")


def test_explanations_may_name_numbers() -> None:
    assert copies('"""Port 8000 of vllm 0.33.0."""\nx = 1  # 8000', name="blueprint/engines/launch/vllm.py") == []


def test_files_are_looked_at() -> None:
    assert len(FILES) > 200
