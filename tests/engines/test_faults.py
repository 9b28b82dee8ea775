"""Planted faults are refused with a message that names them, before or during the start of an engine.

Inconsistencies between two processes of a pod are covered in
``tests/blueprint/launch/test_pod_consistency.py``: launchers
refuse them, so no file causes them. These faults are detected only by the engines themselves.
"""

import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.engines.conftest import Bench
from tests.engines.judge import Question, parser_errors
from tests.engines.rendered import OnHost, rendered
from voice_blueprint.contract.network import VLLM
from voice_sandbox.engines.processes import EngineError
from voice_sandbox.engines.substitutions import CommandRenderer

CHAT, PREFILL = "production-azure: qwen: a100", "cells: voxtral-cells: prefill"
LMCACHE, PD_ROUTER = "cells: voxtral-cells: lmcache_prefill", "cells: voxtral-cells: pd_router"


@dataclass(frozen=True)
class Fault:
    """A change of a rendered command line, and part of the expected message."""

    what: str
    command: str
    old: str
    new: str
    names: str
    variable: str | None = None

    def argv(self, rendered: Sequence[str]) -> list[str]:
        """Return the command line with the fault."""
        changed = re.sub(self.old, self.new, "\n".join(rendered), count=1).split("\n") if self.old else list(rendered)
        assert self.variable or changed != list(rendered), f"{self.what}: nothing was planted"
        return changed


def without_flag(argv: Sequence[str], flag: str) -> tuple[str, ...]:
    at = argv.index(flag)
    return (*argv[:at], *argv[at + 2 :])


FAULTS = (
    Fault("flag that does not exist", CHAT, "--max-num-seqs", "--max-num-sequences", "--max-num-sequences"),
    Fault("KV role that does not exist", PREFILL, "kv_producer", "kv_prefill", "kv_prefill"),
    Fault("connector that does not exist", PREFILL, "NixlConnector", "NixlConector", "NixlConector"),
    Fault("connector of connectors that does not exist", PREFILL, "MultiConnector", "ManyConnector", "ManyConnector"),
    Fault("context that the model does not have", CHAT, r"(--max-model-len)\n\d+", r"\1\n65536", "65536"),
    Fault(
        "batch with fewer tokens than requests", CHAT, r"(--max-num-batched-tokens)\n\d+", r"\1\n8",
        "max_num_batched_tokens (8) must be greater than or equal to max_num_seqs",
    ),
    Fault("GPUs that do not divide the heads", CHAT, r"(--tensor-parallel-size)\n1", r"\1\n3", "parallel size (3)"),
    Fault("graph mode that does not exist", PREFILL, r"$", '\n--compilation-config\n{"cudagraph_mode":"SOME"}', "SOME"),
    Fault("setting of graphs that does not exist", PREFILL, r"$", '\n--compilation-config\n{"graphs":1}', "graphs"),
    Fault("type of KV cache that does not exist", CHAT, r"$", "\n--kv-cache-dtype\nfp7", "fp7"),
    Fault("variable that does not exist", CHAT, "", "", "VLLM_MAX_AUDIO_SECONDS", "VLLM_MAX_AUDIO_SECONDS"),
    Fault("model that is not there", CHAT, r"\n[^\n]*/models/qwen\n", "\n/nowhere/qwen\n", "/nowhere/qwen"),
    Fault("flag of the cache that does not exist", LMCACHE, "--chunk-size", "--chunk-tokens", "--chunk-tokens"),
    Fault("second level that does not exist", LMCACHE, "fs_native", "fs_native_nvme", "fs_native_nvme"),
    Fault("policy of eviction that does not exist", LMCACHE, r"\bLRU\b", "LFU", "LFU"),
    Fault("hand-over that does not exist", PD_ROUTER, r"\bnixl\b", "nixel", "nixel"),
    Fault("policy of the router that does not exist", PD_ROUTER, "round_robin", "round-robin", "round-robin"),
)  # fmt: skip


@pytest.fixture(scope="module")
def refusals(tmp_path_factory: pytest.TempPathFactory, models: Path) -> dict[str, str]:
    """Return the errors of the engines' parsers and configurations for each fault."""
    substitutes = CommandRenderer(tmp_path_factory.mktemp("faults"), models)
    questions = []
    for fault in FAULTS:
        process = substitutes.render_process(rendered()[fault.command])
        environment = process.environment | ({fault.variable: "1"} if fault.variable else {})
        questions.append(Question(fault.argv(process.argv), environment, True))
    return {fault.what: "\n".join(said) for fault, said in zip(FAULTS, parser_errors(questions), strict=True)}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.what)
def test_an_engine_refuses_an_invalid_setting_by_name(fault: Fault, refusals: dict[str, str]) -> None:
    assert fault.names in refusals[fault.what]


def test_a_port_in_use_is_reported(bench: Bench) -> None:
    """Another process on the port would respond instead of the engine."""
    engine = bench.launch_process(rendered()["both: p5"], "late", VLLM.number)
    port = int(engine.url.rpartition(":")[2])
    with socket.create_server(("127.0.0.1", port)), pytest.raises(EngineError, match=f"late: port {port} is in use"):
        engine.start()


def test_an_engine_that_exits_shows_the_reason(bench: Bench) -> None:
    engine = bench.launch_process(rendered()["both: p5"], "flagged", VLLM.number)
    engine.process.argv.append("--no-such-flag")
    with pytest.raises(EngineError, match=r"(?s)flagged ended with 2.*--no-such-flag"):
        engine.start().wait_until_ready()


def test_a_substitution_without_its_flag_is_reported(models: Path, tmp_path: Path) -> None:
    fleet = rendered()["both: p5"]
    bare = OnHost(without_flag(fleet.build_command(), "--gpu-memory-utilization"), fleet.build_environment())
    with pytest.raises(ValueError, match="does not render --gpu-memory-utilization"):
        CommandRenderer(tmp_path, models).render_process(bare)
