"""Free ports for programs on this machine, and access to these programs without the operator's proxies."""

import random
import socket
from collections.abc import Iterable, MutableMapping

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
"""Names that the programs in a rehearsal use to reach each other; ``localhost`` includes its subdomains."""
_PORT_RANGE = range(10_000, 32_768)
"""Below the ephemeral ports of Linux and macOS, so that no other connection or program gets a program's port during a
restart."""
_offered_ports: set[int] = set()
_PROXY_VARIABLES = ("http_proxy", "https_proxy", "all_proxy", "grpc_proxy")


def bypass_proxy_for_loopback(environment: MutableMapping[str, str], addresses: Iterable[str] = ()) -> None:
    """Add this machine's names to ``NO_PROXY`` if the environment contains a proxy.

    boto3, the CDK CLI, gRPC and curl all read this variable, some only in upper case and some only in lower case.

    Args:
        environment: Variables of a process.
        addresses: Further loopback addresses, since few clients support networks such as 127.0.0.0/8.
    """
    if not any(environment.get(name) or environment.get(name.upper()) for name in _PROXY_VARIABLES):
        return
    values = [environment.get(name, "") for name in ("no_proxy", "NO_PROXY")]
    names = dict.fromkeys(each.strip() for value in values for each in value.split(",") if each.strip())
    if "*" not in names:  # which matches every name
        names |= dict.fromkeys((*LOOPBACK_NAMES, *addresses))
    environment["NO_PROXY"] = environment["no_proxy"] = ",".join(names)


def find_free_port(kind: socket.SocketKind = socket.SOCK_STREAM) -> int:
    """Return a port that is free on every IPv4 address of this machine.

    A process gets each port once, since a program may need several before it listens on the first.

    Raises:
        OSError: All of the hundred ports that were tried are in use.
    """
    for port in random.sample(_PORT_RANGE, 100):
        if port in _offered_ports:
            continue
        with socket.socket(socket.AF_INET, kind) as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
        _offered_ports.add(port)
        return port
    raise OSError("no free port found: all of 100 tested ports between 10000 and 32767 are in use")
