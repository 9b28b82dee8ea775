"""Versions of engines, ports and engines' metric names are defined in one place; a second copy fails."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from voice_blueprint import catalog
from voice_blueprint.azure import contract as cluster_contract
from voice_blueprint.contract import network
from voice_blueprint.contract.network import Port

ROOT = Path(__file__).parents[2]
FOLDERS = ("voice_blueprint", "constructs", "voice_ops", "voice_sandbox", "stacks", "userdata")
CONTRACTS = ("voice_blueprint/contract/network.py", "voice_blueprint/azure/contract.py")
VERIFIER = "voice_sandbox/rehearsals/verify_edge.py"
"""Lists the public ports independently, so that the contract is not compared with itself."""
METRICS = ("voice_blueprint/azure/metrics.py",)
"""Files that define names of engines' metrics."""
COMMON_PORTS = {53, 443, 10_000}
"""Numbers with other meanings."""

PORTS = {
    value.number for module in (network, cluster_contract) for value in vars(module).values() if isinstance(value, Port)
} - COMMON_PORTS
VERSIONS = {engine.version for engine in catalog.engines().values()}


def constants(source: str) -> Iterator[object]:
    """Yield every literal of a program except docstrings."""
    tree = ast.parse(source)
    explanations = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in explanations:
            yield node.value


def copies(source: str, *, name: str) -> list[object]:
    """Return the literals that are defined elsewhere."""
    return [
        value
        for value in constants(source)
        if (type(value) is int and value in PORTS and name not in (*CONTRACTS, VERIFIER))
        or (isinstance(value, str) and any(version in value for version in VERSIONS))
        or (isinstance(value, str) and value.startswith(("vllm:", "lmcache_mp_")) and name not in METRICS)
    ]


FILES = sorted(file for folder in FOLDERS for file in (ROOT / folder).rglob("*.py"))


def test_programs_contain_no_copy_of_a_contract_value() -> None:
    names = [str(file.relative_to(ROOT)) for file in FILES]
    assert len(names) > 200
    found = {name: copies((ROOT / name).read_text(encoding="utf-8"), name=name) for name in names}
    assert {name: each for name, each in found.items() if each} == {}


@pytest.mark.parametrize(
    "copy",
    [
        "PORT = 8000",
        "x = f(port=6555)  # LMCache",
        'IMAGE = "vllm/vllm-openai:v0.33.0"',
        'm = "vllm:num_requests_waiting"',
    ],
)
def test_a_second_copy_is_detected(copy: str) -> None:
    assert copies(copy, name="stacks/voice_stacks/azure/workloads/__main__.py")


def test_comments_and_docstrings_may_contain_numbers() -> None:
    assert copies('"""Port 8000 of vllm 0.33.0."""\nx = 1  # 8000', name="voice_blueprint/engines/launch/vllm.py") == []
