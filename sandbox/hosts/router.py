"""A network that loses packets: a small machine on their way to a host, whose kernel has ``sch_netem``.

The kernel of the machine that rehearses may have none.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from blueprint.contract import network as contract
from sandbox.hosts.cloud import Cloud, Host
from sandbox.hosts.disk import run
from sandbox.hosts.machine import Hardware, Link, Machine
from sandbox.hosts.network import BRIDGE

IMPAIRMENT = "delay 30ms reorder 5% loss random 3%"
"""Reordered are those that are not delayed: they overtake the one before them."""
_HARDWARE = Hardware(memory_mib=512, cpus=1)
_MAC = "02:00:00:00:00:fe"
_IMPAIR = f"""sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.send_redirects=0 net.ipv4.conf.ens5.send_redirects=0
tc qdisc add dev ens5 root handle 1: prio bands 4
tc qdisc add dev ens5 parent 1:4 netem {IMPAIRMENT}
tc filter add dev ens5 parent 1: protocol ip u32 match ip dport {contract.RTP.number} 0xffff flowid 1:4"""
"""The audio alone; health checks pass through the other bands, one of which no packet chooses by itself."""


class Router:
    """The machine, as long as it is on the way."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def lost(self) -> int:
        """Return how many packets of audio it has lost."""
        queues = json.loads(self._machine.run("tc -statistics -json qdisc show dev ens5"))
        (lost,) = [int(queue["drops"]) for queue in queues if queue["kind"] == "netem"]
        return lost


@contextmanager
def lossy(cloud: Cloud, host: Host) -> Iterator[Router]:
    """Let all that is sent to a host pass a router that harms its audio."""
    address = str(cloud.network.subnet_of(host.address)[-2])
    tap = cloud.network.attach(_MAC, address)
    machine = Machine("router", cloud.disk, _HARDWARE, link=Link(tap, _MAC), is_instance=False, folder=cloud.folder)
    way = (f"{host.address}/32", "via", address, "dev", BRIDGE)
    try:
        machine.run("networkctl up ens5; /usr/lib/systemd/systemd-networkd-wait-online --interface=ens5")
        machine.run(_IMPAIR)
        run("ip", "route", "add", *way)
        yield Router(machine)
        run("ip", "route", "delete", *way)
    finally:
        machine.stop()
        cloud.network.detach(tap)
