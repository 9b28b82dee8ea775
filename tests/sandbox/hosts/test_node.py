"""What an AKS node with GPUs asks of a kernel: a machine with NC96ads' NUMA nodes, containers with its pods' rights.

Each node has a device in the place of its GPU. Of a node's 24 CPUs one is here: with 96, emulated, no kernel came up.
Containers run the machine's own programs, under Docker's filter of system calls, which containerd's follows.
"""

import base64
import re
from collections.abc import Iterator
from pathlib import Path
from shutil import which
from typing import Any

import pytest

from blueprint import catalog
from blueprint.azure.topology import place, whole_node
from blueprint.engines.cell import RESERVED_CPUS, cell_requests
from blueprint.engines.launch.placement import place as place_engine
from blueprint.engines.sizing.layouts import cell_groups
from blueprint.file.model.azure import TopologyPolicy
from sandbox.hosts.disk import HostsError, disk, run
from sandbox.hosts.machine import Hardware, Machine
from tests.stacks.azure.test_workloads_topology_check import GOOD
from voice_constructs.azure.kubernetes.pods import container_security, pod_security
from voice_constructs.azure.kubernetes.topology_check import TopologyCheck

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1800)]

SIZE = catalog.vm_sizes()["Standard_NC96ads_A100_v4"]
CELL_CPUS = 80
CPUS = 1
"""Of each NUMA node here."""
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
matrix = re.sub(r"(GPU(\\d)\\t.*\\t)\\d(\\t\\t\\tN/A)", lambda row: row[1] + nodes[int(row[2])] + row[3], {GOOD!r})
print(matrix if "-m" in sys.argv else "")
"""
"""NVIDIA's answers as recorded, with the NUMA nodes that the kernel says."""


class Node:
    """The machine, and its containers."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.ask = machine.run
        self.ask(_MAKE_IMAGE)
        self.install("nvidia-smi", _NVIDIA_SMI.encode())
        # Debian 12's has what Ubuntu 22.04's has in the engines' images. From 2.0.19 on it starts nothing in a
        # container that may not ask for its memory policy.
        library = re.search(r"libnuma\S+ => (\S+)", run("ldd", numactl := which("numactl") or ""))
        assert library
        for name, file in (("numactl", numactl), ("libnuma.so.1", library[1])):
            self.install(name, Path(file).read_bytes())

    def install(self, name: str, content: bytes) -> None:
        file, text = f"{_TOOLS}/{name}", base64.b64encode(content).decode()
        self.ask(f"mkdir -p {_TOOLS}; echo {text} | base64 --decode >{file}; chmod 755 {file}")

    def run(self, *command: str, options: str = "") -> str:
        """Run a command in a container with the rights of a pod's.

        Raises:
            HostsError: It fails.
        """
        # Pulumi's types say that each may be missing, or known later.
        pod: Any = pod_security()
        container: Any = container_security()
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
    hardware = Hardware(memory_mib=2048, numa=(CPUS,) * len(SIZE.numa_nodes))
    machine = Machine("node", disk(), hardware, link=None, is_instance=False, folder=tmp_path_factory.mktemp("node"))
    yield Node(machine)
    machine.stop()


def cpus_of(nodes: frozenset[int]) -> str:
    """Return a list of CPUs as the kernel writes it."""
    assert nodes == set(range(min(nodes), max(nodes) + 1))
    return f"{min(nodes) * CPUS}-{(max(nodes) + 1) * CPUS - 1}"


def allowed(status: str) -> str:
    (cpus,) = re.findall(r"Cpus_allowed_list:\s+(\S+)", status)
    return str(cpus)


def test_a_pod_has_its_rights_and_no_others(node: Node) -> None:
    status = dict(re.findall(r"(\w+):\s+(\S+)", node.run("cat", "/proc/self/status")))
    assert (status["CapEff"], status["CapBnd"], status["NoNewPrivs"], status["Seccomp"]) == (
        "0" * 16,
        "0" * 16,
        "1",
        "2",
    )
    assert status["Uid"] == str(pod_security().run_as_user)
    with pytest.raises(HostsError, match="Read-only file system"):
        node.run("touch", "/file")


@pytest.mark.parametrize("policy", [TopologyPolicy.BEST_EFFORT, TopologyPolicy.RESTRICTED])
def test_engines_bind_to_the_cpus_that_the_kubelet_pins(node: Node, policy: TopologyPolicy) -> None:
    answers = place(SIZE, cell_requests(SIZE.gpu_count, CELL_CPUS), policy, whole_node(SIZE, RESERVED_CPUS))
    for answer, gpus in zip(answers, cell_groups(SIZE), strict=False):
        pinned = cpus_of(answer.nodes)
        bound = node.run(
            *place_engine(SIZE, gpus).prefix(), "cat", "/proc/self/status", options=f"--cpuset-cpus={pinned}"
        )
        assert allowed(bound) == pinned


def test_an_engine_that_is_pinned_elsewhere_does_not_start(node: Node) -> None:
    prefill, decode = cell_groups(SIZE)
    elsewhere = cpus_of(frozenset(decode))
    with pytest.raises(HostsError, match="sched_setaffinity"):
        node.run(*place_engine(SIZE, prefill).prefix(), "true", options=f"--cpuset-cpus={elsewhere}")


def test_without_numactl_an_engine_is_everywhere(node: Node) -> None:
    assert allowed(node.run("cat", "/proc/self/status")) == cpus_of(frozenset(range(len(SIZE.numa_nodes))))


def test_a_pod_may_not_bind_memory(node: Node) -> None:
    with pytest.raises(HostsError, match="set_mempolicy: Operation not permitted"):
        node.run("numactl", "--membind=0", "--", "true")


def test_the_start_up_check_finds_the_catalogues_numa_nodes(node: Node) -> None:
    check = TopologyCheck(SIZE, SIZE.gpu_count)
    ((program, text),) = check.files().items()
    node.install("check.py", text.encode())
    ((variable, expected),) = check.environment().items()
    command = [word if word != program else f"{_TOOLS}/check.py" for word in check.command()]
    node.run(*command, options=f"--env={variable}='{expected}'")
