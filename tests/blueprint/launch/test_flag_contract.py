"""Flags, values, variables and connectors of the launchers are compared with the tables of the published releases."""

from collections.abc import Iterator

import pytest
import yaml

from tests.blueprint.engines.rules import check_argv, check_document, check_endpoint, check_environment
from tests.blueprint.launch.samples import DEPLOYMENTS, deployment, launchers
from tests.blueprint.launch.test_golden import CASES
from tests.nonempty import nonempty
from voice_blueprint.engines.launch import Launcher
from voice_blueprint.engines.launch.lmcache import LMCACHE_PROGRAM, LmcacheCoordinator, LmcacheServer, NvmeStore
from voice_blueprint.engines.launch.omni import OmniServer
from voice_blueprint.engines.launch.pd_router import DISAGGREGATED_PATHS, PdRouter
from voice_blueprint.engines.launch.placement import Placement
from voice_blueprint.engines.launch.vllm import VllmServer
from voice_blueprint.engines.published.release import Command, EngineTable, load_published_table

PROGRAMS: dict[type[Launcher], tuple[str, tuple[str, ...], str]] = {
    VllmServer: ("vllm", ("vllm",), "serve"),
    OmniServer: ("vllm-omni", ("vllm",), "serve"),
    LmcacheServer: ("lmcache", (LMCACHE_PROGRAM,), "server"),
    LmcacheCoordinator: ("lmcache", (LMCACHE_PROGRAM,), "coordinator"),
    PdRouter: ("pd-router", ("vllm-router",), ""),
}
"""Table, program and sub-command of each launcher; the others have no table."""


def problems(launcher: Launcher, changed: EngineTable | None = None) -> Iterator[str]:
    """Yield the problems that the release would report.

    Connectors and stages are checked through the flags and files that contain them.
    """
    if type(launcher) not in PROGRAMS:
        return
    name, program, command = PROGRAMS[type(launcher)]
    table = changed or load_published_table(name)
    argv = command_without_placement(launcher)
    if isinstance(launcher, LmcacheServer) and launcher.peers:
        program = ("lmcache",)
    start = (*program, *filter(None, [command]))
    assert argv[: len(start)] == start
    yield from check_argv(table, command, argv[len(start) :])
    yield from check_environment(table, launcher.build_environment())
    if isinstance(launcher, OmniServer):
        for text in launcher.render_files().values():
            yield from check_document(table, "DeployConfig", yaml.safe_load(text))


def command_without_placement(launcher: Launcher) -> tuple[str, ...]:
    """Return the command without its placement."""
    placement = getattr(launcher, "placement", None)
    prefix = placement.build_command_prefix() if isinstance(placement, Placement) else ()
    argv = launcher.build_command()
    return argv[len(prefix) :] if argv[: len(prefix)] == prefix else argv


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_launchers_of_shipped_deployments_satisfy_the_contract(name: str) -> None:
    found = {part: list(problems(launcher)) for part, launcher in launchers(deployment(name))}
    assert {part: each for part, each in found.items() if each} == {}


@pytest.mark.parametrize("name", CASES)
def test_launchers_of_golden_files_satisfy_the_contract(name: str) -> None:
    found = {part: list(problems(launcher)) for part, launcher in CASES[name]()}
    assert {part: each for part, each in found.items() if each} == {}


@pytest.mark.parametrize("path", DISAGGREGATED_PATHS)
def test_disaggregated_paths_are_vllm_endpoints(path: str) -> None:
    assert list(check_endpoint(load_published_table("vllm"), "POST", path)) == []


def test_lmcache_supports_the_configured_disk_tier() -> None:
    assert list(problems(LmcacheServer(1, 6555, 8084, l2=NvmeStore("/nvme", 10)))) == []


LAUNCHERS_BY_PART = {part: launcher for name in ("prefill-decode-cell", "tts") for part, launcher in CASES[name]()}


@pytest.mark.parametrize(
    ("part", "kind", "name"),
    [
        ("voxtral-cells: prefill", "kv", "NixlConnector"),
        ("voxtral-cells: decode", "kv", "LMCacheMPConnector"),
        ("voxtral-cells: lmcache_prefill", "l2", "fs_native"),
        ("speech", "stage", "SharedMemoryConnector"),
    ],
)
def test_a_removed_connector_is_detected(part: str, kind: str, name: str) -> None:
    launcher = LAUNCHERS_BY_PART[part]
    table = load_published_table(PROGRAMS[type(launcher)][0])
    left = tuple(each for each in table.connectors[kind] if each != name)
    without = table.model_copy(update={"connectors": table.connectors | {kind: left}})
    assert list(problems(launcher)) == []
    found = list(problems(launcher, without))
    assert found
    assert all(name in problem for problem in found)


def flags_in(launcher: Launcher) -> set[str]:
    return {
        argument for argument in command_without_placement(launcher) if argument.startswith("--") and argument != "--"
    }


@pytest.mark.parametrize("part", [part for part, launcher in LAUNCHERS_BY_PART.items() if type(launcher) in PROGRAMS])
def test_a_release_without_one_of_the_flags_is_detected(part: str) -> None:
    launcher = LAUNCHERS_BY_PART[part]
    name, _, command = PROGRAMS[type(launcher)]
    table = load_published_table(name)
    there = table.commands[command]
    for flag in nonempty(flags_in(launcher)):
        known = there.find_flag(flag)
        assert known
        left = tuple(each for each in there.flags if each.name != known.name)
        without = table.model_copy(update={"commands": {command: Command(flexible=there.flexible, flags=left)}})
        assert any(flag in problem for problem in problems(launcher, without)), flag


def test_a_variable_that_the_release_does_not_read_is_detected() -> None:
    (problem,) = check_environment(
        load_published_table("vllm"),
        [*LAUNCHERS_BY_PART["voxtral-cells: decode"].build_environment(), "VLLM_CACHE_DIR"],
    )
    assert "VLLM_CACHE_DIR" in problem
