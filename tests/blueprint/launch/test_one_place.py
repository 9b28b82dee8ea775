"""Only the launchers contain an engine's flags and variables."""

import re
from collections.abc import Iterator

import pytest

from tests.blueprint.launch.samples import ROOT, azure_service, deployment
from voice_blueprint.engines.launch.omni import OmniServer
from voice_blueprint.engines.launch.services import create_tts_launcher
from voice_blueprint.engines.published.release import load_published_table
from voice_blueprint.file.model.azure import TtsService

FOLDERS = ("voice_blueprint", "constructs", "stacks", "userdata", "voice_ops")
OWNING_FOLDERS = ("voice_blueprint/engines/", "tools/engine_tables/", "stacks/voice_stacks/azure/policy/")
"""Launchers, the tables of releases, and the policy pack, which only reads commands."""
ENGINES = ("vllm", "vllm-omni", "lmcache", "pd-router")
COMMON_FLAGS = {
    "--host",
    "--port",
    "--version",
    "--help",
    "--name",
    "--output",
    "--format",
    "--json",
    "--model",
    "--policy",
    "--revision",
}
"""Flags common to all kinds of programs."""


def engine_flags() -> set[str]:
    commands = [command for engine in ENGINES for command in load_published_table(engine).commands.values()]
    return {name for command in commands for name in command.names if name.startswith("--")} - COMMON_FLAGS


def spelled_names() -> Iterator[tuple[str, str]]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")) + sorted((ROOT / folder).rglob("*.sh")):
            name = str(path.relative_to(ROOT))
            if not name.startswith(OWNING_FOLDERS):
                for found in re.findall(
                    r"""["'](--[a-z][a-z0-9-]+|VLLM_[A-Z_]+|LMCACHE_[A-Z_]+|UCX_[A-Z_]+)["'=]""", path.read_text()
                ):
                    yield name, found


def test_engine_flags_and_variables_are_only_in_launchers() -> None:
    flags = engine_flags()
    assert "--kv-transfer-config" in flags
    assert [(where, what) for where, what in spelled_names() if not what.startswith("--") or what in flags] == []


def test_names_that_look_like_flags_are_detected() -> None:
    assert any(what.startswith("--") for _, what in spelled_names())


@pytest.mark.parametrize("cuda_graphs", [True, False])
def test_both_speech_stages_are_sized_and_eager_only_if_configured(cuda_graphs: bool) -> None:
    service = azure_service(TtsService).model_copy(update={"cuda_graphs": cuda_graphs})
    assert isinstance(service, TtsService)
    server = create_tts_launcher(deployment("cells").azure, service)
    assert isinstance(server, OmniServer)
    stages = server.build_deploy_config()["stages"]
    assert isinstance(stages, list)
    first, second = stages
    assert (first["enforce_eager"], second["enforce_eager"]) == (not cuda_graphs, True)
    assert first["gpu_memory_utilization"] + second["gpu_memory_utilization"] <= 0.92
