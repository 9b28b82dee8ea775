"""The engines' own parsers accept every command line and variable that the shipped files render."""

import itertools
from pathlib import Path

import pytest

from tests.blueprint.launch.samples import DEPLOYMENTS
from tests.engines.judge import Question, parser_errors
from tests.engines.rendered import on_host, rendered, vllm_fleets
from voice_blueprint.engines.published.release import load_published_table
from voice_sandbox.engines.substitutions import SUBSTITUTIONS, VLLM, CommandRenderer, RenderedProcess

NEWER_VARIABLES = {"VLLM_HTTP_MAX_REQUEST_BODY_SIZE"}
"""Variables of the deployed release that are missing in vLLM's newest build for CPUs."""


@pytest.fixture(scope="module")
def local_processes(tmp_path_factory: pytest.TempPathFactory, models: Path) -> dict[str, RenderedProcess]:
    """Return the processes with the command lines for this machine."""
    folder = tmp_path_factory.mktemp("commands")
    substitutes = CommandRenderer(folder, models)
    return {name: substitutes.render_process(launcher) for name, launcher in rendered().items()}


@pytest.fixture(scope="module")
def errors_by_command(local_processes: dict[str, RenderedProcess]) -> dict[str, list[str]]:
    """Return the parsers' errors by command."""
    as_rendered = [Question.from_launcher(launcher) for launcher in rendered().values()]
    here = [Question.from_process(process) for process in local_processes.values()]
    answers = parser_errors([*as_rendered, *here])
    return {
        name: list(itertools.chain(*both))
        for name, *both in zip(rendered(), answers[: len(here)], answers[len(here) :], strict=True)
    }


def test_parsers_accept_the_rendered_commands(errors_by_command: dict[str, list[str]]) -> None:
    expected = {f"vLLM has no variable {variable}" for variable in NEWER_VARIABLES}
    unexpected = {name: set(problems) - expected for name, problems in errors_by_command.items()}
    assert {name: problems for name, problems in unexpected.items() if problems} == {}


def test_newer_variables_exist_in_the_deployed_release_only(errors_by_command: dict[str, list[str]]) -> None:
    assert set(load_published_table("vllm").environment) >= NEWER_VARIABLES
    missing = {
        problem.removeprefix("vLLM has no variable ") for problem in itertools.chain(*errors_by_command.values())
    }
    assert missing == NEWER_VARIABLES, "the build for CPUs has them by now: take them out of NEWER"


def test_every_substitution_changes_a_command(local_processes: dict[str, RenderedProcess]) -> None:
    made = {(each.program, each.name) for process in local_processes.values() for each in process.applied_substitutions}
    assert {(each.program, each.name) for each in SUBSTITUTIONS} - made == set(), "take it out of the list"


def test_hosts_start_vllm_with_the_command_of_their_launcher() -> None:
    fleets = [(file, fleet) for file in DEPLOYMENTS for fleet in vllm_fleets(file)]
    assert fleets
    for file, fleet in fleets:
        host, launcher = on_host(file, fleet.name), rendered()[f"{file}: {fleet.name}"]
        assert host.build_command() == launcher.build_command()
        assert launcher.build_environment().items() <= host.build_environment().items()
        assert not [
            name
            for name in host.build_environment()
            if name.startswith(VLLM.upper()) and name not in launcher.build_environment()
        ]
