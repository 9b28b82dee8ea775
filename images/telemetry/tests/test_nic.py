"""Counters of a real veth through the kernel's interface, and of ENA under its driver's names."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.isolation import unshare
from voice_blueprint.contract.metrics import NetworkAllowance
from voice_telemetry.sources import SourceError, nic
from voice_telemetry.sources.nic import NicSource

ROOT = Path(__file__).parents[3]
COUNTERS = nic.read_counters
# Output of `ethtool -S` on an instance, from AWS's guide to network performance monitoring.
ENA = """\
NIC statistics:
     tx_timeout: 0
     suspend: 0
     resume: 0
     wd_expired: 0
     interface_up: 1
     interface_down: 0
     admin_q_pause: 0
     bw_in_allowance_exceeded: 0
     bw_out_allowance_exceeded: 0
     pps_allowance_exceeded: 0
     conntrack_allowance_exceeded: 0
     linklocal_allowance_exceeded: 0
     queue_0_tx_cnt: 4329
"""


def printed(text: str) -> dict[str, int]:
    """Parse the output of ethtool."""
    rows = (line.rpartition(":") for line in text.splitlines()[1:])
    return {name.strip(): int(value) for name, _, value in rows}


def in_own_network(script: str) -> str:
    """Run a script as root in a network namespace that has only `lo`; return its output."""
    paths = os.pathsep.join(str(ROOT / part) for part in ("", "images/runtime/src", "images/telemetry/src"))
    return subprocess.run(
        [*unshare("--net"), "sh", "-c", script],
        env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip


def test_counters_match_ethtool() -> None:
    code = (
        'import json; from voice_telemetry.sources import nic; print(json.dumps(nic.read_counters("veth-of-15-long")))'
    )
    read = shlex.join([sys.executable, "-c", code])
    script = f"ip link add veth-of-15-long type veth peer name v1 && {read} && ethtool -S veth-of-15-long"
    ours, ethtool = in_own_network(script).split("\n", 1)
    assert json.loads(ours) == printed(ethtool)
    assert json.loads(ours)["peer_ifindex"] > 0, "a number that is not 0: names and values stand together"


def test_the_interface_of_the_default_route_is_used() -> None:
    code = "from voice_telemetry.sources import nic; print(nic.find_default_interface())"
    links = "ip link add v0 type veth peer name v1; ip address add 10.9.0.1/24 dev v0; ip link set v0 up"
    others = "ip link set v1 up; ip address add 10.8.0.1/24 dev v1"
    script = f"{links}; {others}; ip route add default via 10.9.0.2; {shlex.join([sys.executable, '-c', code])}"
    assert in_own_network(script) == "v0\n"
    with pytest.raises(subprocess.CalledProcessError) as error:
        in_own_network(shlex.join([sys.executable, "-c", code]))
    assert "no default route leads to an interface" in error.value.stderr


async def test_increments_are_reported_by_allowance(monkeypatch: pytest.MonkeyPatch) -> None:
    told = [printed(ENA), printed(ENA) | {"pps_allowance_exceeded": 70}, printed(ENA)]
    monkeypatch.setattr(nic, "read_counters", lambda _: told.pop(0))
    monkeypatch.setattr(nic, "find_default_interface", lambda: "ens5")
    source = NicSource()
    assert await source.read() == [], "since when is not known yet"
    assert {sample.dimension_value: sample.value for sample in await source.read()} == {
        allowance: 70 if allowance is NetworkAllowance.PACKETS else 0 for allowance in NetworkAllowance
    }
    assert {sample.value for sample in await source.read()} == {0}, "after a reset of the driver they begin anew"


async def test_an_unsupported_interface_is_reported_with_its_missing_counters(monkeypatch: pytest.MonkeyPatch) -> None:
    interfaces = iter(["ens5", "lo", "nothere"])
    monkeypatch.setattr(nic, "find_default_interface", lambda: next(interfaces))
    monkeypatch.setattr(nic, "read_counters", lambda _: {"peer_ifindex": 3})
    with pytest.raises(SourceError, match="ens5 is no ENA interface, or its driver is too old: no bw_in_allowance"):
        await NicSource().read()
    monkeypatch.setattr(nic, "read_counters", COUNTERS)
    with pytest.raises(SourceError, match="lo tells no counters: "):
        await NicSource().read()
    with pytest.raises(SourceError, match="nothere tells no counters: No such device"):
        await NicSource().read()
