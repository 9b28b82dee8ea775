"""Kernel output of a machine is compared with the file: each difference is detected."""

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

import voice_blueprint
from voice_sandbox.hosts.cloud import Host
from voice_sandbox.hosts.facts import verify_vad_host

DEPLOYMENT = voice_blueprint.load(Path(__file__).parents[3] / "tests/deployments/hosts.yaml")
COMMAND_OUTPUT = {
    "ip": '[{"ifname": "ens5", "mtu": 3498, "xdp": {"mode": 1, "prog": {"id": 41, "jited": 1}}}]',
    "cat /proc/meminfo": "HugePages_Total:    1024\nHugePages_Free:     1004\nHugePages_Rsvd:        0\n",
    "ethtool": (
        "Channel parameters for ens5:\nPre-set maximums:\nRX:\t\tn/a\nCombined:\t4\n"
        "Current hardware settings:\nRX:\t\tn/a\nCombined:\t2\n"
        "Ring parameters for ens5:\nPre-set maximums:\nRX:\t\t\t1024\nRX Mini:\t\tn/a\n"
        "Current hardware settings:\nRX:\t\t\t256\nRX Mini:\t\tn/a\nTX:\t\t\t256\n"
    ),
    "ss": "0      0      ens5:q1 *\n0      0      ens5:q0 *\n",
    "timeout": (
        "bash: connect: Network is unreachable\nbash: line 1: /dev/tcp/203.0.113.1/80: Network is unreachable\n"
    ),
    "pgrep": "1189\n",
    "grep": "".join(
        f"/proc/1189/task/{thread}/status:Name:\t{name}\n/proc/1189/task/{thread}/status:Cpus_allowed_list:\t{cores}\n"
        for thread, name, cores in [(1189, "vad-dataplane", "0-2"), (1201, "poller", "2"), (1202, "poller", "1")]
    ),
    "cat /proc/1189/status": (
        "CapPrm:\t000000c000a07000\nCapEff:\t000000c000a07000\nCapBnd:\t000000c000a07000\nNoNewPrivs:\t1\nSeccomp:\t2\n"
    ),
}
"""Output recorded on a serving machine, by the beginning of the command."""


def host(answers: dict[str, str]) -> Host:
    def run(command: str) -> str:
        (answer,) = [text for beginning, text in answers.items() if command.startswith(beginning)]
        return answer

    return cast("Host", SimpleNamespace(machine=SimpleNamespace(run=run)))


def test_a_serving_host_satisfies_all_checks() -> None:
    claims = list(verify_vad_host(DEPLOYMENT, host(COMMAND_OUTPUT)))
    assert len(claims) == 14
    assert [claim.text for claim in claims if not claim.passed] == []


@pytest.mark.parametrize(
    ("question", "right", "wrong", "text"),
    [
        ("ip", '"mtu": 3498', '"mtu": 9001', "the MTU is 9001"),
        ("ip", '"mode": 1', '"mode": 2', "the XDP program runs in the driver (mode 2)"),
        (
            "ip",
            ', "xdp": {"mode": 1, "prog": {"id": 41, "jited": 1}}',
            "",
            "the XDP program runs in the driver (mode None)",
        ),
        ("cat /proc/meminfo", "Total:    1024", "Total:    1023", "1023 huge pages are reserved"),
        ("cat /proc/meminfo", "Free:     1004", "Free:     1024", "the program uses 0 of them"),
        ("ethtool", "RX:\t\t\t256", "RX:\t\t\t1024", "its receive rings have 1024 descriptors"),
        ("ethtool", "Combined:\t2", "Combined:\t5", "the interface has 5 queues"),
        ("ss", "ens5:q1", "ens5:q3", "AF_XDP sockets are on queues [0, 3]"),
        (
            "timeout",
            "80: Network is unreachable",
            "80: Connection refused",
            "a connection to the internet was rejected by the VPC with: Connection refused",
        ),
        ("grep", "list:\t1", "list:\t2", "pollers are on cores 2, 2"),
        ("grep", "list:\t1", "list:\t0-2", "pollers are on cores 0-2, 2"),
        ("cat /proc/1189", "CapBnd:\t000000c000a07000", "CapBnd:\t000001ffffffffff", "CapBnd is 000001ffffffffff"),
        ("cat /proc/1189", "Seccomp:\t2", "Seccomp:\t0", "Seccomp is 0"),
        ("cat /proc/1189", "NoNewPrivs:\t1", "NoNewPrivs:\t0", "NoNewPrivs is 0"),
    ],
)
def test_a_failed_check_is_detected(question: str, right: str, wrong: str, text: str) -> None:
    (key,) = [beginning for beginning in COMMAND_OUTPUT if beginning.startswith(question)]
    assert right in COMMAND_OUTPUT[key]
    answers = {**COMMAND_OUTPUT, key: COMMAND_OUTPUT[key].replace(right, wrong)}
    assert [claim.text for claim in verify_vad_host(DEPLOYMENT, host(answers)) if not claim.passed] == [text]
