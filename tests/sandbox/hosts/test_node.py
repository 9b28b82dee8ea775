"""Kernel features for an AKS node with GPUs, in a machine with NC96ads' NUMA nodes.

A device replaces the GPU of each NUMA node. Each node has one CPU instead of 24, since no kernel booted with 96
emulated CPUs. Containers run programs of the machine with Docker's seccomp profile, which containerd also uses.
"""

import base64
import re
from collections.abc import Iterator
from pathlib import Path
from shutil import which
from typing import Any

import pytest

from tests.nonempty import nonempty
from tests.stacks.azure.test_workloads_topology_check import VALID_MATRIX
from voice_blueprint import catalog
from voice_blueprint.azure.topology import admit_pods, calculate_empty_node_resources
from voice_blueprint.engines.cell import MIN_RESERVED_CPUS, build_cell_requests
from voice_blueprint.engines.launch.placement import create_engine_placement
from voice_blueprint.engines.sizing.layouts import select_cell_gpu_groups
from voice_blueprint.file.model.azure import TopologyPolicy
from voice_constructs.azure.kubernetes.pods import create_container_security_context, create_pod_security_context
from voice_constructs.azure.kubernetes.topology_check import TopologyCheck
from voice_sandbox.hosts.disk import HostRehearsalError, prepare_disk, run_command
from voice_sandbox.hosts.machine import Hardware, Machine

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1800)]

SIZE = catalog.vm_sizes()["Standard_NC96ads_A100_v4"]
CELL_CPUS = 80
CPUS = 1
"""CPUs of each emulated NUMA node."""
_TOOLS = "/opt/tools"
_MAKE_IMAGE = """systemctl mask --runtime --now systemd-networkd-wait-online
mkdir -p /root/image/usr
ln -s usr/bin usr/sbin usr/lib usr/lib64 /root/image
systemctl start docker
tar --directory /root/image --create . | docker import - node"""
_NVIDIA_SMI = f"""#!/usr/bin/python3
import re, sys
from pathlib import Path
nodes = [path.read_text().strip() for path in sorted(Path("/sys/bus/pci/devices").glob("*:?1:01.0/numa_node"))]
matrix = re.sub(r"(GPU(\\d)\\t.*\\t)\\d(\\t\\t\\tN/A)", lambda row: row[1] + nodes[int(row[2])] + row[3],
    {VALID_MATRIX!r})
print(matrix if "-m" in sys.argv else "")
"""
"""NVIDIA's recorded output, with the NUMA nodes that the kernel reports."""

_PIECE_LENGTH = 3600
"""Characters of a file that one command contains, since ``Machine.run`` may fail with a longer command."""


class Node:
    """The machine, and its containers."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.ask = machine.run
        self.ask(_MAKE_IMAGE)
        self.install("nvidia-smi", _NVIDIA_SMI.encode())
        # numactl of Debian 12 behaves like Ubuntu 22.04's in the engine images. Since 2.0.19 it fails in a container
        # that is not permitted to query its memory policy.
        library = re.search(r"libnuma\S+ => (\S+)", run_command("ldd", numactl := which("numactl") or ""))
        assert library
        for name, file in (("numactl", numactl), ("libnuma.so.1", library[1])):
            self.install(name, Path(file).read_bytes())

    def install(self, name: str, content: bytes) -> None:
        file, text = f"{_TOOLS}/{name}", base64.b64encode(content).decode()
        self.ask(f"mkdir -p {_TOOLS}; rm -f {file}.text")
        for start in range(0, len(text), _PIECE_LENGTH):
            self.ask(f"echo {text[start : start + _PIECE_LENGTH]} >>{file}.text")
        self.ask(f"base64 --decode {file}.text >{file}; chmod 755 {file}")

    def run(self, *command: str, options: str = "") -> str:
        """Run a command in a container with a pod's permissions.

        Raises:
            HostRehearsalError: The command fails.
        """
        # In Pulumi's types each value may be missing or unknown.
        pod: Any = create_pod_security_context()
        container: Any = create_container_security_context()
        rights = f"--user={pod.run_as_user}:{pod.run_as_group} --read-only={container.read_only_root_filesystem}"
        for capability in container.capabilities.drop:
            rights += f" --cap-drop={capability}"
        if not container.allow_privilege_escalation:
            rights += " --security-opt=no-new-privileges"
        tools = f"--volume={_TOOLS}:{_TOOLS}:ro --env=PATH={_TOOLS}:/usr/bin --env=LD_LIBRARY_PATH={_TOOLS}"
        return self.ask(
            f"docker run --rm --network=none {rights.lower()} --volume=/usr:/usr:ro {tools} {options} node "
            + " ".join(command)
        )


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    hardware = Hardware(memory_mib=2048, cpu_counts_by_node=(CPUS,) * len(SIZE.numa_nodes))
    machine = Machine(
        "node", prepare_disk(), hardware, link=None, is_instance=False, folder=tmp_path_factory.mktemp("node")
    )
    try:
        yield Node(machine)
    finally:
        machine.stop()


def cpu_list(nodes: frozenset[int]) -> str:
    """Return a list of CPUs in the kernel's notation."""
    assert nodes == set(range(min(nodes), max(nodes) + 1))
    return f"{min(nodes) * CPUS}-{(max(nodes) + 1) * CPUS - 1}"


def allowed_cpus(status: str) -> str:
    (cpus,) = re.findall(r"Cpus_allowed_list:\s+(\S+)", status)
    return str(cpus)


def test_a_pod_has_only_its_configured_capabilities(node: Node) -> None:
    status = dict(re.findall(r"(\w+):\s+(\S+)", node.run("cat", "/proc/self/status")))
    assert (status["CapEff"], status["CapBnd"], status["NoNewPrivs"], status["Seccomp"]) == (
        "0" * 16,
        "0" * 16,
        "1",
        "2",
    )
    assert status["Uid"] == str(create_pod_security_context().run_as_user)
    with pytest.raises(HostRehearsalError, match="Read-only file system"):
        node.run("touch", "/file")


@pytest.mark.parametrize("policy", [TopologyPolicy.BEST_EFFORT, TopologyPolicy.RESTRICTED])
def test_engines_bind_to_the_cpus_that_the_kubelet_pins(node: Node, policy: TopologyPolicy) -> None:
    answers = admit_pods(
        SIZE,
        build_cell_requests(SIZE.gpu_count, CELL_CPUS),
        policy,
        calculate_empty_node_resources(SIZE, MIN_RESERVED_CPUS),
    )
    for answer, gpus in nonempty(zip(answers, select_cell_gpu_groups(SIZE), strict=False)):
        pinned = cpu_list(answer.nodes)
        bound = node.run(
            *create_engine_placement(SIZE, gpus).build_command_prefix(),
            "cat",
            "/proc/self/status",
            options=f"--cpuset-cpus={pinned}",
        )
        assert allowed_cpus(bound) == pinned


def test_an_engine_with_a_conflicting_pinning_does_not_start(node: Node) -> None:
    prefill, decode = select_cell_gpu_groups(SIZE)
    elsewhere = cpu_list(frozenset(decode))
    with pytest.raises(HostRehearsalError, match="sched_setaffinity"):
        node.run(
            *create_engine_placement(SIZE, prefill).build_command_prefix(), "true", options=f"--cpuset-cpus={elsewhere}"
        )


def test_without_numactl_an_engine_uses_all_numa_nodes(node: Node) -> None:
    assert allowed_cpus(node.run("cat", "/proc/self/status")) == cpu_list(frozenset(range(len(SIZE.numa_nodes))))


def test_a_pod_is_not_permitted_to_bind_memory(node: Node) -> None:
    with pytest.raises(HostRehearsalError, match="set_mempolicy: Operation not permitted"):
        node.run("numactl", "--membind=0", "--", "true")


def test_the_startup_check_matches_the_numa_nodes_of_the_catalogue(node: Node) -> None:
    check = TopologyCheck(SIZE, SIZE.gpu_count)
    ((program, text),) = check.render_files().items()
    node.install("check.py", text.encode())
    ((variable, expected),) = check.build_environment().items()
    command = [word if word != program else f"{_TOOLS}/check.py" for word in check.build_command()]
    node.run(*command, options=f"--env={variable}='{expected}'")
