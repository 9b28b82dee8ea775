"""Reads how many packets EC2 queued or dropped at the host's network interface.

The ENA driver counts these packets, and `ethtool -S` prints the counters.
"""

import ctypes
import fcntl
import socket
import struct
from pathlib import Path

from voice_blueprint.contract.metrics import NetworkAllowance
from voice_telemetry.sample import Sample
from voice_telemetry.sources import SourceError

# linux/sockios.h, linux/ethtool.h. Reading requires no privileges.
_SIOCETHTOOL = 0x8946
_GSTRINGS, _GSTATS, _GSSET_INFO = 0x1B, 0x1D, 0x37
_STATS_STRING_SET_ID = 1
_STAT_NAME_BYTES = 32
ROUTES_FILE = Path("/proc/net/route")


def read_counters(interface: str) -> dict[str, int]:
    """Return all counters from an interface's driver, by name.

    Raises:
        OSError: The interface does not exist, or its driver has no counters.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:

        def ioctl(request: bytes) -> bytes:
            memory = ctypes.create_string_buffer(request, len(request))
            fcntl.ioctl(probe, _SIOCETHTOOL, struct.pack("16sP16x", interface.encode()[:15], ctypes.addressof(memory)))
            return memory.raw

        count = struct.unpack("IIQI", ioctl(struct.pack("IIQI", _GSSET_INFO, 0, 1 << _STATS_STRING_SET_ID, 0)))[3]
        head = struct.pack("III", _GSTRINGS, _STATS_STRING_SET_ID, count)
        strings = ioctl(head + bytes(count * _STAT_NAME_BYTES))[len(head) :]
        head = struct.pack("II", _GSTATS, count)
        values = struct.unpack(f"{count}Q", ioctl(head + bytes(count * 8))[len(head) :])
    names = (
        strings[at : at + _STAT_NAME_BYTES].split(b"\0")[0].decode() for at in range(0, len(strings), _STAT_NAME_BYTES)
    )
    return dict(zip(names, values, strict=True))


def find_default_interface() -> str:
    """Return the interface of the default route, which is the host's first one, even if DPDK owns another.

    Raises:
        SourceError: There is no default route.
    """
    for line in ROUTES_FILE.read_text(encoding="ascii").splitlines():
        interface, destination, *_ = line.split()
        if destination == "00000000":
            return interface
    raise SourceError("no default route leads to an interface")


class NicSource:
    """Source of the increments in ENA's allowance counters."""

    def __init__(self) -> None:
        self._previous: dict[str, int] | None = None

    async def read(self) -> list[Sample]:
        """Return the number of queued or dropped packets by allowance, or no values at the first reading."""
        interface = find_default_interface()
        try:
            now = read_counters(interface)
        except OSError as error:
            raise SourceError(f"{interface} tells no counters: {error.strerror}") from None
        if missing := set(NetworkAllowance) - now.keys():
            raise SourceError(f"{interface} is no ENA interface, or its driver is too old: no {min(missing)}")
        before, self._previous = self._previous, now
        if before is None:
            return []
        return [
            Sample("AllowanceExceeded", max(0, now[allowance] - before[allowance]), allowance)
            for allowance in NetworkAllowance
        ]

    async def close(self) -> None:
        """Do nothing, since nothing stays open between readings."""
