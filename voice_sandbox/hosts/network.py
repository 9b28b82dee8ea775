"""The network of the machines: an isolated namespace, and a bridge with a VPC's addresses, DNS and DHCP."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

from voice_sandbox.hosts.disk import run_command

BRIDGE_NAME = "vpc"
METADATA_ADDRESS = "169.254.169.254"
INTERNET_ADDRESS = "203.0.113.1"
"""Address that is only reachable through a NAT gateway. It is unassigned, since RFC 5737 reserves it for examples."""
MTU_BYTES = 9001
"""MTU of EC2's interfaces, before a host sets its own."""
CALLER_ADDRESSES = tuple(f"198.51.100.{number}" for number in range(1, 17))
"""Addresses of callers on the internet, which RFC 5737 also reserves for examples."""
_CLONE_NEWNET = 0x40000000


@contextmanager
def enter_isolated_namespace() -> Iterator[None]:
    """Run the `with` block, its threads and its processes in a new network namespace.

    Raises:
        OSError: The process is not root.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    with Path("/proc/thread-self/ns/net").open("rb") as home:
        if libc.unshare(_CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "creating a network namespace requires root")
        try:
            run_command("ip", "link", "set", "lo", "up")
            yield
        finally:
            libc.setns(home.fileno(), _CLONE_NEWNET)


class Network:
    """Bridge, routers, DNS and DHCP for a VPC, in the namespace of the calling thread.

    The rehearsal's servers have two addresses: one in the VPC, to which private names resolve, and one on the internet,
    to which all other AWS names resolve. No other names resolve.

    Args:
        subnets: Subnets; the value is True if a subnet has a route to the internet.
        private: Names of interface endpoints and of the store, including their subdomains.

    Attributes:
        services_address: Address of the servers in the VPC, which is the address of AWS's DNS server.
        public_address: Address of the load balancer.
    """

    def __init__(
        self, folder: Path, vpc: IPv4Network, subnets: Mapping[IPv4Network, bool], private: Iterable[str]
    ) -> None:
        self.services_address, self.public_address = str(vpc[2]), str(vpc[3])
        self._folder = folder
        self._subnets = list(subnets)
        self._private = list(private)
        self._reservations: dict[str, str] = {}
        self._taps = 0
        self._log = (folder / "dnsmasq.log").open("w")
        self._dnsmasq: subprocess.Popen[bytes] | None = None
        run_command("ip", "link", "add", BRIDGE_NAME, "type", "bridge")
        run_command("ip", "link", "set", BRIDGE_NAME, "mtu", str(MTU_BYTES), "up")
        routers = [f"{subnet[1]}/{subnet.prefixlen}" for subnet in self._subnets]
        addresses = (self.services_address, self.public_address, METADATA_ADDRESS, INTERNET_ADDRESS, *CALLER_ADDRESSES)
        for address in (*routers, *(f"{each}/32" for each in addresses)):
            run_command("ip", "address", "add", address, "dev", BRIDGE_NAME)
        # This rule precedes the one with which the kernel receives packets for its own addresses.
        run_command("ip", "rule", "add", "priority", "2", "lookup", "local")
        run_command("ip", "rule", "delete", "priority", "0")
        for subnet in (subnet for subnet, has_route in subnets.items() if not has_route):
            run_command(
                "ip", "rule", "add", "priority", "1", "from", str(subnet), "to", INTERNET_ADDRESS, "unreachable"
            )
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1", encoding="ascii")

    def find_subnet(self, address: str) -> IPv4Network:
        (network,) = [subnet for subnet in self._subnets if IPv4Address(address) in subnet]
        return network

    def attach(self, mac: str, address: str, *, route: bool = True) -> str:
        """Create a tap device for a machine, which gets its address through DHCP, and return the name of the device."""
        tap = f"tap{self._taps}"
        self._taps += 1
        run_command("ip", "tuntap", "add", tap, "mode", "tap", "multi_queue")
        run_command("ip", "link", "set", tap, "mtu", str(MTU_BYTES), "master", BRIDGE_NAME, "up")
        self.reserve_address(mac, address, route=route)
        return tap

    def reserve_address(self, mac: str, address: str, *, route: bool) -> None:
        """Configure DHCP to assign an address to a machine, and optionally a route to other subnets."""
        self._reservations[address] = f"{mac},{'' if route else 'set:lost,'}{address},ip-{address.replace('.', '-')}\n"
        self._restart_dnsmasq()

    def detach(self, tap: str) -> None:
        run_command("ip", "link", "delete", tap)

    def _restart_dnsmasq(self) -> None:
        """Restart DNS and DHCP. Otherwise, dnsmasq would not assign the address of a former host to another host."""
        self._stop_dnsmasq()
        hosts, leases = self._folder / "dhcp-hosts", self._folder / "dhcp-leases"
        hosts.write_text("".join(self._reservations.values()), encoding="utf-8")
        leases.unlink(missing_ok=True)
        self._dnsmasq = subprocess.Popen(  # noqa: S603
            [
                *("dnsmasq", "--no-daemon", "--conf-file=/dev/null", "--no-resolv", "--no-hosts", "--user=root"),
                *(f"--interface={BRIDGE_NAME}", "--bind-interfaces", "--log-dhcp"),
                *(f"--address=/amazonaws.com/{INTERNET_ADDRESS}", "--local=/#/", "--local-ttl=60"),
                *(f"--address=/{name}/{self.services_address}" for name in self._private),
                *(f"--dhcp-range={subnet[0]},static,{subnet.netmask},1h" for subnet in self._subnets),
                *(f"--dhcp-hostsfile={hosts}", f"--dhcp-leasefile={leases}", "--domain=ec2.internal"),
                *(f"--dhcp-option=option:dns-server,{self.services_address}", f"--dhcp-option=option:mtu,{MTU_BYTES}"),
                # The metadata service remains available in a subnet without a route.
                "--dhcp-option=tag:lost,option:router",
                f"--dhcp-option=tag:lost,option:classless-static-route,{METADATA_ADDRESS}/32,0.0.0.0",
            ],
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )

    def _stop_dnsmasq(self) -> None:
        if self._dnsmasq:
            self._dnsmasq.terminate()
            self._dnsmasq.wait()

    def close(self) -> None:
        """Stop DNS and DHCP. The bridge is deleted with the namespace."""
        self._stop_dnsmasq()
        self._log.close()
