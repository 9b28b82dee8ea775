"""The program that checks a node's NVLinks before a cell starts, with output of nvidia-smi."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from voice_blueprint import catalog
from voice_constructs.azure.kubernetes.files import check_topology
from voice_constructs.azure.kubernetes.files.check_topology import (
    ExpectedTopology,
    UnusableNodeError,
    describe_missing_peer_access,
    parse_peer_access,
    parse_topology,
    validate_topology,
)
from voice_constructs.azure.kubernetes.topology_check import SOURCE_FILE, CacheTransfer, render_expected_topology

NC96 = catalog.vm_sizes()["Standard_NC96ads_A100_v4"]
NC80 = catalog.vm_sizes()["Standard_NC80adis_H100_v5"]
EXPECTATION = ExpectedTopology.from_json(render_expected_topology(NC96, 4))

LEGEND = """
Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  NV#  = Connection traversing a bonded set of # NVLinks
"""


def matrix(links: dict[tuple[int, int], str], gpus: int = 4, numa: list[str] | None = None) -> str:
    """Return the output of `nvidia-smi topo -m`: an underlined header, tabs, blanks around X, an empty last column."""
    affinity = numa or [str(gpu) for gpu in range(gpus)]
    titles = "\t".join(f"GPU{gpu}" for gpu in range(gpus))
    lines = [f"\t\x1b[4m{titles}\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m"]
    for row in range(gpus):
        cells = [
            " X " if row == column else links.get((min(row, column), max(row, column)), "SYS") for column in range(gpus)
        ]
        lines.append("\t".join([f"GPU{row}", *cells, "SYS", f"{24 * row}-{24 * row + 23}", affinity[row], "\t\tN/A"]))
    lines.append("\t".join(["NIC0", *["SYS"] * gpus, " X ", "", "", ""]))
    return "\n".join(lines) + "\n" + LEGEND


def listing(gpus: int = 4, mig: bool = False) -> str:
    instance = "\n  MIG 1g.10gb     Device  0: (UUID: MIG-9fc1b2d1-0a5c-5e5f-b6a1-5f1f5ad7a4b1)" if mig else ""
    return "\n".join(f"GPU {gpu}: NVIDIA A100 80GB PCIe (UUID: GPU-{gpu:08x}){instance}" for gpu in range(gpus))


VALID_MATRIX = matrix({(0, 1): "NV12", (2, 3): "NV12"})


def test_a_valid_node_is_accepted() -> None:
    validate_topology(EXPECTATION, parse_topology(VALID_MATRIX), listing())


def test_unknown_numa_nodes_are_accepted() -> None:
    validate_topology(
        EXPECTATION, parse_topology(matrix({(0, 1): "NV12", (2, 3): "NV12"}, numa=["N/A"] * 4)), listing()
    )


@pytest.mark.parametrize(
    ("topology", "gpu_list", "reasons"),
    [
        pytest.param(matrix({}), listing(), ("GPU 0 to GPU 1 is SYS", "GPU 2 to GPU 3 is SYS", "Redeploy"), id="dead"),
        pytest.param(matrix({(0, 1): "NV12"}), listing(), ("GPU 2 to GPU 3 is SYS", "Redeploy"), id="one-dead"),
        pytest.param(
            matrix({(0, 2): "NV12", (1, 3): "NV12"}),
            listing(),
            ("It joins 0 and 2, 1 and 3", "catalogue"),
            id="other-pairs",
        ),
        pytest.param(matrix({(0, 1): "NV12"}, gpus=3), listing(3), ("3 of 4 GPUs",), id="fewer"),
        pytest.param(VALID_MATRIX, listing(mig=True), ("MIG is on",), id="mig"),
        pytest.param(
            matrix({(0, 1): "NV12", (2, 3): "NV12"}, numa=["0", "0", "2", "3"]),
            listing(),
            ("GPU 1 is on 0, not 1",),
            id="numa",
        ),
        pytest.param("No devices were found\n", "", ("shows no GPU", "No devices were found"), id="none"),
    ],
)
def test_a_broken_node_is_refused_with_its_reason(topology: str, gpu_list: str, reasons: tuple[str, ...]) -> None:
    with pytest.raises(UnusableNodeError) as refused:
        validate_topology(EXPECTATION, parse_topology(topology), gpu_list)
    assert all(reason in str(refused.value) for reason in reasons)
    assert "\n" not in str(refused.value)


def test_a_pod_with_some_gpus_requires_nvlink_between_them() -> None:
    some = ExpectedTopology.from_json(render_expected_topology(NC96, 2))
    assert list(some.iter_linked_pairs()) == [(0, 1)]
    assert some.numa_nodes == ()
    assert ExpectedTopology.from_json(render_expected_topology(NC80, 2)).numa_nodes == (0, 1)


# The driver's output for NC96ads: https://github.com/NVIDIA/cuQuantum/issues/191, driver 570.
NO_PEER_ACCESS = (
    " \tGPU0\tGPU1\tGPU2\tGPU3\t\n"
    " GPU0\tX\tOK\tNS\tNS\t\n"
    " GPU1\tOK\tX\tNS\tNS\t\n"
    " GPU2\tNS\tNS\tX\tOK\t\n"
    " GPU3\tNS\tNS\tOK\tX\t\n"
    "\nLegend:\n\n  X    = Self\n  OK   = Status Ok\n  NS   = Not supported\n"
)
WITH_PEER_ACCESS = NO_PEER_ACCESS.replace("NS\t", "OK\t")
CROSS_PAIR_TRANSFER = CacheTransfer(((0, 1), (2, 3)), "cuda_ipc,cuda_copy,sm", refuses_without_access=True)


def test_gpus_that_transfer_kv_cache_need_peer_access() -> None:
    expected = ExpectedTopology.from_json(render_expected_topology(NC96, 4, CROSS_PAIR_TRANSFER))
    assert set(expected.peers) == {(0, 2), (0, 3), (1, 2), (1, 3)}
    assert describe_missing_peer_access(expected, parse_peer_access(WITH_PEER_ACCESS)) == ""
    with pytest.raises(UnusableNodeError, match=r"GPU 0 to GPU 2 is NS.*Of cuda_ipc,cuda_copy,sm UCX can only"):
        describe_missing_peer_access(expected, parse_peer_access(NO_PEER_ACCESS))
    lenient = ExpectedTopology.from_json(
        render_expected_topology(NC96, 4, replace(CROSS_PAIR_TRANSFER, refuses_without_access=False))
    )
    assert "GPU 1 to GPU 3 is NS" in describe_missing_peer_access(lenient, parse_peer_access(NO_PEER_ACCESS))
    with pytest.raises(UnusableNodeError, match="GPU 0 to GPU 2 is absent"):
        describe_missing_peer_access(expected, parse_peer_access("\tGPU0\tGPU1\n GPU0\tX\tOK\n GPU1\tOK\tX\n"))
    with pytest.raises(UnusableNodeError, match="shows no GPU"):
        parse_peer_access("No devices were found\n")


@pytest.mark.parametrize(("refuse", "code", "message"), [(True, 1, "refused: GPUs"), (False, 0, "warning: GPUs")])
@pytest.mark.parametrize("apart", ["w", "r"])
def test_the_reaction_to_missing_peer_access_is_configurable(
    tmp_path: Path, apart: str, *, refuse: bool, code: int, message: str
) -> None:
    fake = tmp_path / "nvidia-smi"
    # GPUs may reach each other in one direction only: prefill writes, decode reads.
    shown = {
        "-m ": VALID_MATRIX,
        "-p2p w": WITH_PEER_ACCESS,
        "-p2p r": WITH_PEER_ACCESS,
        " ": listing(),
        f"-p2p {apart}": NO_PEER_ACCESS,
    }
    cases = "".join(f"  '{flags}') cat <<'END'\n{text}\nEND\n  ;;\n" for flags, text in shown.items())
    fake.write_text(f'#!/bin/sh\ncase "$2 $3" in\n{cases}esac\n', encoding="utf-8")
    fake.chmod(0o755)
    expected = render_expected_topology(NC96, 4, replace(CROSS_PAIR_TRANSFER, refuses_without_access=refuse))
    done = subprocess.run(  # noqa: S603  the program under test
        [sys.executable, str(SOURCE_FILE)],
        env={"PATH": f"{tmp_path}:/bin:/usr/bin", check_topology.EXPECTED_TOPOLOGY_VARIABLE: expected},
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == code
    assert done.stderr.startswith(message)


def run(folder: Path, **outputs: str) -> subprocess.CompletedProcess[str]:
    """Run the program like the container, with a simulated nvidia-smi."""
    if outputs:
        fake = folder / "nvidia-smi"
        cases = "".join(f"  {flag}) cat <<'END'\n{text}\nEND\n  ;;\n" for flag, text in outputs.items())
        fake.write_text(f'#!/bin/sh\ncase "$1" in\n{cases}esac\n', encoding="utf-8")
        fake.chmod(0o755)
    environment = {
        "PATH": f"{folder}:/bin:/usr/bin",
        check_topology.EXPECTED_TOPOLOGY_VARIABLE: render_expected_topology(NC96, 4),
    }
    return subprocess.run(  # noqa: S603  the program under test
        [sys.executable, str(SOURCE_FILE)], env=environment, capture_output=True, text=True, check=False, timeout=60
    )


def test_the_program_starts_nothing_else_on_a_valid_node(tmp_path: Path) -> None:
    done = run(tmp_path, topo=VALID_MATRIX, **{"-L": listing()})
    assert (done.returncode, done.stderr) == (0, "")
    assert "NV12" in done.stdout  # the log contains the matrix for later analysis


def test_the_program_refuses_with_one_line(tmp_path: Path) -> None:
    done = run(tmp_path, topo=matrix({}), **{"-L": listing()})
    assert done.returncode == 1
    assert done.stderr.startswith("refused: NVLink is not active")
    assert done.stderr.count("\n") == 1


@pytest.mark.skipif(os.path.exists("/usr/bin/nvidia-smi"), reason="this machine has a driver")  # noqa: PTH110
def test_the_program_reports_an_unexpected_runtime(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert done.returncode == 1
    assert "NVIDIA runtime" in done.stderr


def test_the_expected_topology_matches_the_catalogue() -> None:
    said = json.loads(render_expected_topology(NC96, 4))
    assert said["nvlink_groups"] == [list(domain) for domain in NC96.nvlink_domains]
    assert said["numa_nodes"] == [0, 1, 2, 3]
