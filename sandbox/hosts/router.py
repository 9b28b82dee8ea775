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
    """The machine, in the subnet of a host; it boots while others do."""

    def __init__(self, cloud: Cloud, host: Host) -> None:
        self._address = str(cloud.network.subnet_of(host.address)[-2])
        self._host = host.address
        self._network = cloud.network
        self._tap = cloud.network.attach(_MAC, self._address)
        link = Link(self._tap, _MAC)
        self._machine = Machine("router", cloud.disk, _HARDWARE, link=link, is_instance=False, folder=cloud.folder)

    @contextmanager
    def on_the_way(self) -> Iterator[None]:
        """Let all that is sent to the host pass the machine, which harms its audio."""
        self._machine.run("networkctl up ens5; /usr/lib/systemd/systemd-networkd-wait-online --interface=ens5")
        self._machine.run(_IMPAIR)
        way = (f"{self._host}/32", "via", self._address, "dev", BRIDGE)
        run("ip", "route", "add", *way)
        yield
        run("ip", "route", "delete", *way)

    def lost(self) -> int:
        """Return how many packets of audio it has lost."""
        queues = json.loads(self._machine.run("tc -statistics -json qdisc show dev ens5"))
        (lost,) = [int(queue["drops"]) for queue in queues if queue["kind"] == "netem"]
        return lost

    def close(self) -> None:
        self._machine.stop()
        self._network.detach(self._tap)
