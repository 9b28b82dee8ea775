"""Simulates packet loss with ``sch_netem`` on a small machine in the path to a host.

The kernel of the machine that runs the rehearsal may lack this module.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from voice_blueprint.contract import network as contract
from voice_sandbox.hosts.cloud import Host, SimulatedCloud
from voice_sandbox.hosts.disk import run_command
from voice_sandbox.hosts.machine import Hardware, Machine, NetworkInterface
from voice_sandbox.hosts.network import BRIDGE_NAME

IMPAIRMENT_RULE = "delay 30ms reorder 5% loss random 3%"
"""Packets that are not delayed overtake the preceding packets and are therefore reordered."""
_ROUTER_HARDWARE = Hardware(memory_mib=512, cpu_count=1)
_MAC_ADDRESS = "02:00:00:00:00:fe"
_SETUP_SCRIPT = f"""sysctl -qw net.ipv4.ip_forward=1
sysctl -qw net.ipv4.conf.all.send_redirects=0 net.ipv4.conf.ens5.send_redirects=0
tc qdisc add dev ens5 root handle 1: prio bands 4
tc qdisc add dev ens5 parent 1:4 netem {IMPAIRMENT_RULE}
tc filter add dev ens5 parent 1: protocol ip u32 match ip dport {contract.RTP.number} 0xffff flowid 1:4"""
"""Only audio is affected; health checks use the other bands, one of which is not selected by any packet by default."""


class Router:
    """The machine that impairs audio, in the subnet of a host. It boots while other machines boot."""

    def __init__(self, cloud: SimulatedCloud, host: Host) -> None:
        self._address = str(cloud.network.find_subnet(host.address)[-2])
        self._host = host.address
        self._network = cloud.network
        self._tap = cloud.network.attach(_MAC_ADDRESS, self._address)
        link = NetworkInterface(self._tap, _MAC_ADDRESS)
        self._machine = Machine(
            "router", cloud.disk, _ROUTER_HARDWARE, link=link, is_instance=False, folder=cloud.folder
        )

    @contextmanager
    def impair_traffic(self) -> Iterator[None]:
        """Route all packets to the host through the machine, which impairs audio."""
        self._machine.run("networkctl up ens5; /usr/lib/systemd/systemd-networkd-wait-online --interface=ens5")
        self._machine.run(_SETUP_SCRIPT)
        route = (f"{self._host}/32", "via", self._address, "dev", BRIDGE_NAME)
        run_command("ip", "route", "add", *route)
        yield
        run_command("ip", "route", "delete", *route)

    def count_lost_packets(self) -> int:
        """Return the number of audio packets that the router has dropped."""
        queues = json.loads(self._machine.run("tc -statistics -json qdisc show dev ens5"))
        (lost,) = [int(queue["drops"]) for queue in queues if queue["kind"] == "netem"]
        return lost

    def close(self) -> None:
        self._machine.stop()
        self._network.detach(self._tap)
