"""Separate namespaces for a test, created as root, or as an ordinary user if the kernel allows it."""

import functools
import os
import shutil
import subprocess

import pytest


def unshare(*kinds: str) -> list[str]:
    """Return a command prefix that runs as root in separate namespaces, such as ``--net``; or skip the test."""
    reason = _refusal(kinds)
    if reason:
        pytest.skip(reason)
    return _command(kinds)


def _command(kinds: tuple[str, ...]) -> list[str]:
    # In a container root may be unable to create a user namespace, and does not need one.
    return ["unshare", *([] if os.geteuid() == 0 else ["--map-root-user"]), *kinds]


@functools.cache
def _refusal(kinds: tuple[str, ...]) -> str:
    if shutil.which("unshare") is None:
        return "needs unshare(1) of Linux"
    probe = ["mount", "-t", "tmpfs", "none", "/mnt"] if "--mount" in kinds else ["true"]
    done = subprocess.run([*_command(kinds), *probe], capture_output=True, text=True, check=False)  # noqa: S603
    who = "root" if os.geteuid() == 0 else "an ordinary user"
    return f"this machine gives {who} no namespaces ({done.stderr.strip()}); run it as root" if done.returncode else ""
