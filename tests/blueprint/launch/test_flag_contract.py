"""What the launchers emit, against the tables of the published releases: every flag, value, variable and connector."""

from collections.abc import Iterator

import pytest
import yaml

from blueprint.engines.launch import Launcher
from blueprint.engines.launch.lmcache import LmcacheServer, NvmeStore
from blueprint.engines.launch.omni import OmniServer
from blueprint.engines.launch.pd_router import DISAGGREGATED_PATHS, PdRouter
from blueprint.engines.launch.placement import Placement
from blueprint.engines.launch.router import Router
from blueprint.engines.launch.vllm import VllmServer
from blueprint.engines.published.release import Command, EngineTable, published
from tests.blueprint.engines.rules import check_argv, check_document, check_endpoint, check_environment
from tests.blueprint.launch.samples import DEPLOYMENTS, deployment, launchers
from tests.blueprint.launch.test_golden import CASES

PROGRAMS: dict[type[Launcher], tuple[str, tuple[str, ...], str]] = {
    VllmServer: ("vllm", ("vllm",), "serve"),
    OmniServer: ("vllm-omni", ("vllm",), "serve"),
    LmcacheServer: ("lmcache", ("lmcache",), "server"),
    PdRouter: ("pd-router", ("vllm-router",), ""),
    Router: ("router", ("vllm-router",), ""),
}
"""Table, program and sub-command of each launcher; the others have no table."""


def problems(launcher: Launcher, changed: EngineTable | None = None) -> Iterator[str]:
    """Yield what the release would refuse; connectors and stages are checked as the flags and files that name them."""
    if type(launcher) not in PROGRAMS:
        return
    name, program, command = PROGRAMS[type(launcher)]
    table = changed or published(name)
    argv = bare(launcher)
    start = (*program, *filter(None, [command]))
    assert argv[: len(start)] == start
    yield from check_argv(table, command, argv[len(start) :])
    yield from check_environment(table, launcher.environment())
    if isinstance(launcher, OmniServer):
        for text in launcher.files().values():
            yield from check_document(table, "DeployConfig", yaml.safe_load(text))


def bare(launcher: Launcher) -> tuple[str, ...]:
    """The command without what places it."""
    placement = getattr(launcher, "placement", None)
    prefix = placement.prefix() if isinstance(placement, Placement) else ()
    argv = launcher.command()
    return argv[len(prefix) :] if argv[: len(prefix)] == prefix else argv


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_launchers_of_shipped_deployments_keep_the_contract(name: str) -> None:
    found = {part: list(problems(launcher)) for part, launcher in launchers(deployment(name))}
    assert {part: each for part, each in found.items() if each} == {}


@pytest.mark.parametrize("name", CASES)
def test_launchers_of_golden_files_keep_the_contract(name: str) -> None:
    found = {part: list(problems(launcher)) for part, launcher in CASES[name]()}
    assert {part: each for part, each in found.items() if each} == {}


@pytest.mark.parametrize("path", DISAGGREGATED_PATHS)
def test_disaggregated_paths_are_endpoints_of_vllm(path: str) -> None:
    assert list(check_endpoint(published("vllm"), "POST", path)) == []


def test_the_second_level_is_known_to_lmcache() -> None:
    assert list(problems(LmcacheServer(1, 6555, 8084, l2=NvmeStore("/nvme", 10)))) == []


PARTS = {part: launcher for name in ("prefill-decode-cell", "tts") for part, launcher in CASES[name]()}


@pytest.mark.parametrize(
    ("part", "kind", "name"),
    [
        ("voxtral-cells: prefill", "kv", "NixlConnector"),
        ("voxtral-cells: decode", "kv", "LMCacheMPConnector"),
        ("voxtral-cells: lmcache_prefill", "l2", "fs_native"),
        ("speech", "stage", "SharedMemoryConnector"),
    ],
)
def test_a_removed_connector_is_noticed(part: str, kind: str, name: str) -> None:
    launcher = PARTS[part]
    table = published(PROGRAMS[type(launcher)][0])
    left = tuple(each for each in table.connectors[kind] if each != name)
    without = table.model_copy(update={"connectors": table.connectors | {kind: left}})
    assert list(problems(launcher)) == []
    found = list(problems(launcher, without))
    assert found
    assert all(name in problem for problem in found)


def flags_of(launcher: Launcher) -> set[str]:
    return {argument for argument in bare(launcher) if argument.startswith("--") and argument != "--"}


@pytest.mark.parametrize("part", [part for part, launcher in PARTS.items() if type(launcher) in PROGRAMS])
def test_a_release_without_one_of_the_flags_is_noticed(part: str) -> None:
    launcher = PARTS[part]
    name, _, command = PROGRAMS[type(launcher)]
    table = published(name)
    there = table.commands[command]
    for flag in flags_of(launcher):
        known = there.flag(flag)
        assert known
        left = tuple(each for each in there.flags if each.name != known.name)
        without = table.model_copy(update={"commands": {command: Command(flexible=there.flexible, flags=left)}})
        assert any(flag in problem for problem in problems(launcher, without)), flag


def test_a_variable_that_the_release_does_not_read_is_noticed() -> None:
    (problem,) = check_environment(published("vllm"), [*PARTS["voxtral-cells: decode"].environment(), "VLLM_CACHE_DIR"])
    assert "VLLM_CACHE_DIR" in problem
