"""Networks of the program and its callers."""

import contextlib
import ctypes
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

_CLONE_NEWNET = 0x40000000
_THIS_THREADS = Path("/proc/thread-self/ns/net")
_libc = ctypes.CDLL(None, use_errno=True)


def _enter(file: int) -> None:
    if _libc.setns(file, _CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "entering a network namespace")


QUEUES = 2
"""Receive queues, each polled by its own thread."""


class Namespace:
    """An unnamed network namespace, which disappears with this process, however that ends."""

    def __init__(self) -> None:
        home = os.open(_THIS_THREADS, os.O_RDONLY)
        if _libc.unshare(_CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "a network namespace of its own needs root")
        self._file = os.open(_THIS_THREADS, os.O_RDONLY)
        _enter(home)
        os.close(home)
        self.path = f"/proc/{os.getpid()}/fd/{self._file}"

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """Run the calling thread in the namespace: its new sockets and processes belong to it."""
        home = os.open(_THIS_THREADS, os.O_RDONLY)
        _enter(self._file)
        try:
            yield
        finally:
            _enter(home)
            os.close(home)

    def close(self) -> None:
        os.close(self._file)


def ip(*words: str) -> None:
    """Run ip(8) in the calling thread's namespace."""
    subprocess.run(["ip", *words], check=True)


class Network:
    """Loopback: program and callers share the namespace of the tests."""

    interface = "lo"
    near_address = "127.0.0.1"
    far_address = "127.0.0.1"
    other_address = "127.0.0.3"
    """Second address of callers."""

    def near(self) -> contextlib.AbstractContextManager[None]:
        """Return a scope whose sockets and processes are in the program's network."""
        return contextlib.nullcontext()

    def far(self) -> contextlib.AbstractContextManager[None]:
        """Return a scope whose sockets and processes are in the callers' network."""
        return contextlib.nullcontext()

    def close(self) -> None:
        pass


class Veth(Network):
    """Two namespaces connected by a pair of interfaces."""

    interface = "voice0"
    near_address = "10.7.0.1"
    far_address = "10.7.0.2"
    other_address = "10.7.0.3"

    def __init__(self, queues: int = QUEUES) -> None:
        self._near, self._far = Namespace(), Namespace()
        with self.near():
            ip("link", "set", "lo", "up")
            # XDP needs at least as many receive queues as the peer has transmit queues.
            each = ("numrxqueues", str(queues), "numtxqueues", str(queues))
            peer = ("peer", "name", "voice1", *each, "netns", self._far.path)
            ip("link", "add", self.interface, *each, "type", "veth", *peer)
            ip("address", "add", f"{self.near_address}/24", "dev", self.interface)
            ip("link", "set", self.interface, "up")
        with self.far():
            for address in (self.far_address, self.other_address):
                ip("address", "add", f"{address}/24", "dev", "voice1")
            ip("link", "set", "voice1", "up")

    def near(self) -> contextlib.AbstractContextManager[None]:
        return self._near.inside()

    def far(self) -> contextlib.AbstractContextManager[None]:
        return self._far.inside()

    def close(self) -> None:
        self._near.close()
        self._far.close()
