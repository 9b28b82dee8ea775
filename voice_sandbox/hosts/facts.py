"""Checks for a VAD host that require a kernel. They compare values read inside the machine with the deployment file."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from voice_blueprint.contract.images import Image
from voice_blueprint.file.model.aws import DataPath, DataPathMode
from voice_blueprint.file.model.deployment import Deployment
from voice_blueprint.images import BuiltImage, load_image_specs
from voice_sandbox.hosts.cloud import Host
from voice_sandbox.hosts.network import INTERNET_ADDRESS
from voice_sandbox.rehearsals.claim import VerificationResult

_XDP_DRIVER_MODE = 1
"""Value in the output of ``ip`` if the program runs in the driver. 2 is the kernel's slower generic mode."""
_CAPABILITY_BIT_BY_NAME = {
    "NET_ADMIN": 12,
    "NET_RAW": 13,
    "IPC_LOCK": 14,
    "SYS_ADMIN": 21,
    "SYS_NICE": 23,
    "PERFMON": 38,
    "BPF": 39,
}
"""Capability bits. Source: include/uapi/linux/capability.h"""
_REFUSED_MESSAGE = "Connection refused"
_SECCOMP_FILTER_MODE = "2"
"""Value of ``Seccomp`` for a process with a filter. Source: proc_pid_status(5)"""


def verify_vad_host(deployment: Deployment, host: Host) -> Iterator[VerificationResult]:
    """Yield the results of the checks that run inside a VAD host in service."""
    vad = deployment.aws.vad
    run = host.machine.run
    (interface,) = json.loads(run("ip -json -details link show dev ens5"))
    pages = {name: int(number) for name, number in re.findall(r"(HugePages_\w+):\s+(\d+)", run("cat /proc/meminfo"))}
    requested = vad.huge_pages.count
    used = pages["HugePages_Total"] - pages["HugePages_Free"] + pages["HugePages_Rsvd"]
    yield VerificationResult(
        f"{pages['HugePages_Total']} huge pages are reserved", pages["HugePages_Total"] == requested
    )
    yield VerificationResult(f"the program uses {used} of them", used > 0)
    path = vad.data_path
    yield VerificationResult(f"the MTU is {interface['mtu']}", interface["mtu"] == path.mtu)
    if path.mode is DataPathMode.AF_XDP:
        yield from _verify_af_xdp(path, interface, run("ethtool -l ens5; ethtool -g ens5"), run("ss --xdp --no-header"))
    # No server listens at this address; bash logs why the connection failed.
    reason = (
        run(f"timeout 20 bash -c 'exec 3<>/dev/tcp/{INTERNET_ADDRESS}/80' 2>&1 || true").strip().rpartition(": ")[2]
    )
    has_internet_route = bool(deployment.aws.network.nat_gateways)
    yield VerificationResult(
        f"a connection to the internet was rejected by the VPC with: {reason}",
        (reason == _REFUSED_MESSAGE) == has_internet_route,
    )
    process = run("pgrep --exact --oldest vad-dataplane").strip()
    yield from _verify_pollers(
        run(f"grep -H -e Name: -e Cpus_allowed_list: /proc/{process}/task/*/status"), path.rx_queues
    )
    yield from _verify_capabilities(run(f"cat /proc/{process}/status"))


def _verify_af_xdp(path: DataPath, interface: dict[str, Any], rings: str, sockets: str) -> Iterator[VerificationResult]:
    _, queue_output, ring_output = rings.split("Current hardware settings:")
    (queues,) = map(int, re.findall(r"Combined:\s+(\d+)", queue_output)[:1])
    (ring,) = map(int, re.findall(r"^RX:\s+(\d+)", ring_output, re.MULTILINE))
    yield VerificationResult(f"the interface has {queues} queues", queues == path.rx_queues)
    yield VerificationResult(f"its receive rings have {ring} descriptors", ring == path.rx_ring_size)
    mode = interface.get("xdp", {}).get("mode")
    yield VerificationResult(f"the XDP program runs in the driver (mode {mode})", mode == _XDP_DRIVER_MODE)
    bound = sorted({int(queue) for queue in re.findall(r"ens5:q?(\d+)", sockets)})
    yield VerificationResult(f"AF_XDP sockets are on queues {bound}", bound == list(range(path.rx_queues)))


def _verify_pollers(status: str, count: int) -> Iterator[VerificationResult]:
    """Yield the result of the check that each poller has its own core."""
    values = re.findall(r"status:(?:Name|Cpus_allowed_list):\s+(\S+)", status)
    cores = [core for name, core in zip(values[::2], values[1::2], strict=True) if name == "poller"]
    alone = len(set(cores)) == len(cores) == count and all(core.isdigit() for core in cores)
    yield VerificationResult(f"pollers are on cores {', '.join(sorted(cores))}", alone)


def _verify_capabilities(status: str) -> Iterator[VerificationResult]:
    """Check that the container has exactly the capabilities of its image, and Docker's seccomp filter."""
    spec = load_image_specs()[Image.VAD_DATAPLANE]
    assert isinstance(spec, BuiltImage)  # noqa: S101  it has a Dockerfile
    capability_mask = sum(1 << _CAPABILITY_BIT_BY_NAME[name] for name in spec.capabilities)
    fields = dict(re.findall(r"^(\w+):\s+(\S+)$", status, re.MULTILINE))
    for name in ("CapEff", "CapPrm", "CapBnd"):
        yield VerificationResult(f"{name} is {fields[name]}", int(fields[name], 16) == capability_mask)
    yield VerificationResult(f"Seccomp is {fields['Seccomp']}", fields["Seccomp"] == _SECCOMP_FILTER_MODE)
    yield VerificationResult(f"NoNewPrivs is {fields['NoNewPrivs']}", fields["NoNewPrivs"] == "1")
