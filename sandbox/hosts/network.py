"""A machine's network: a namespace with nothing else in it, a bridge with a VPC's addresses, DNS and DHCP."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

from sandbox.hosts.disk import run

BRIDGE = "vpc"
METADATA_ADDRESS = "169.254.169.254"
INTERNET = "203.0.113.1"
"""What is reached through a NAT gateway alone. It is of nobody: RFC 5737 keeps it for examples."""
MTU = 9001
"""Of EC2's interfaces, before a host sets its own."""
_CLONE_NEWNET = 0x40000000


@contextmanager
def namespace() -> Iterator[None]:
    """Run the block, its threads and its processes in a network namespace of their own, and come back.

    Raises:
        OSError: Without root.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    with Path("/proc/thread-self/ns/net").open("rb") as home:
        if libc.unshare(_CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "a network namespace of its own needs root")
        try:
            run("ip", "link", "set", "lo", "up")
            yield
        finally:
            libc.setns(home.fileno(), _CLONE_NEWNET)


class Network:
    """Bridge, routers, DNS and DHCP of a VPC, in the namespace of the calling thread.

    The rehearsal's servers have one address. Names that are private in the VPC lead there, all others of AWS to the
    internet, which is another address of theirs; no more names exist.

    Args:
        subnets: Whether each has a route to the internet.
        private: Names of interface endpoints and of the store, each with all names below it.

    Attributes:
        services: That address: the VPC's second, where AWS has its DNS.
        public: Where the load balancer takes callers' packets.
    """

    def __init__(
        self, folder: Path, vpc: IPv4Network, subnets: Mapping[IPv4Network, bool], private: Iterable[str]
    ) -> None:
        self.services, self.public = str(vpc[2]), str(vpc[3])
        self._folder = folder
        self._subnets = list(subnets)
        self._private = list(private)
        self._reserved: dict[str, str] = {}
        self._taps = 0
        self._log = (folder / "dnsmasq.log").open("w")
        self._dnsmasq: subprocess.Popen[bytes] | None = None
        run("ip", "link", "add", BRIDGE, "type", "bridge")
        run("ip", "link", "set", BRIDGE, "mtu", str(MTU), "up")
        routers = [f"{subnet[1]}/{subnet.prefixlen}" for subnet in self._subnets]
        own = (self.services, self.public, METADATA_ADDRESS, INTERNET)
        for address in (*routers, *(f"{each}/32" for each in own)):
            run("ip", "address", "add", address, "dev", BRIDGE)
        # Before the rule by which the kernel takes what is for its own addresses.
        run("ip", "rule", "add", "priority", "2", "lookup", "local")
        run("ip", "rule", "delete", "priority", "0")
        for subnet in (subnet for subnet, has_route in subnets.items() if not has_route):
            run("ip", "rule", "add", "priority", "1", "from", str(subnet), "to", INTERNET, "unreachable")
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1", encoding="ascii")

    def subnet_of(self, address: str) -> IPv4Network:
        (found,) = [subnet for subnet in self._subnets if IPv4Address(address) in subnet]
        return found

    def attach(self, mac: str, address: str, *, route: bool = True) -> str:
        """Return a new tap for a machine, which gets its address by DHCP."""
        tap = f"tap{self._taps}"
        self._taps += 1
        run("ip", "tuntap", "add", tap, "mode", "tap", "multi_queue")
        run("ip", "link", "set", tap, "mtu", str(MTU), "master", BRIDGE, "up")
        self.reserve(mac, address, route=route)
        return tap

    def reserve(self, mac: str, address: str, *, route: bool) -> None:
        """Let DHCP give an address to a machine whenever it asks from now on, and a route out of its subnet or none."""
        self._reserved[address] = f"{mac},{'' if route else 'set:lost,'}{address},ip-{address.replace('.', '-')}\n"
        self._serve()

    def detach(self, tap: str) -> None:
        run("ip", "link", "delete", tap)

    def _serve(self) -> None:
        """Start DNS and DHCP anew: a host may get the address of one that is gone, which dnsmasq would still hold."""
        self._stop_serving()
        hosts, leases = self._folder / "dhcp-hosts", self._folder / "dhcp-leases"
        hosts.write_text("".join(self._reserved.values()), encoding="utf-8")
        leases.unlink(missing_ok=True)
        self._dnsmasq = subprocess.Popen(  # noqa: S603
            [
                *("dnsmasq", "--no-daemon", "--conf-file=/dev/null", "--no-resolv", "--no-hosts", "--user=root"),
                *(f"--interface={BRIDGE}", "--bind-interfaces", "--log-dhcp"),
                *(f"--address=/amazonaws.com/{INTERNET}", "--local=/#/", "--local-ttl=60"),
                *(f"--address=/{name}/{self.services}" for name in self._private),
                *(f"--dhcp-range={subnet[0]},static,{subnet.netmask},1h" for subnet in self._subnets),
                *(f"--dhcp-hostsfile={hosts}", f"--dhcp-leasefile={leases}", "--domain=ec2.internal"),
                *(f"--dhcp-option=option:dns-server,{self.services}", f"--dhcp-option=option:mtu,{MTU}"),
                # A subnet whose route is gone still has its metadata service.
                "--dhcp-option=tag:lost,option:router",
                f"--dhcp-option=tag:lost,option:classless-static-route,{METADATA_ADDRESS}/32,0.0.0.0",
            ],
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )

    def _stop_serving(self) -> None:
        if self._dnsmasq:
            self._dnsmasq.terminate()
            self._dnsmasq.wait()

    def close(self) -> None:
        """End DNS and DHCP; the bridge goes with the namespace."""
        self._stop_serving()
        self._log.close()
