"""Describes the commit and the machine for a measurement."""

import os
import platform
import re
import subprocess
from pathlib import Path

REPO_ROOT = Path(__file__).parents[1]


def get_current_commit() -> str:
    """Return the hash of the checked-out commit, followed by ``with changes`` if tracked files differ."""
    head, changed = (
        subprocess.run(["git", *arguments], cwd=REPO_ROOT, capture_output=True, text=True, check=True).stdout.strip()  # noqa: S603, S607
        for arguments in (("rev-parse", "--short=8", "HEAD"), ("status", "--porcelain", "--untracked-files=no"))
    )
    return f"{head} with changes" if changed else head


def describe_machine() -> str:
    """Return a description of this machine, with its processor, cores and load."""
    cpus = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    named = re.search(r"^model name\s*: (.+)$", cpus, re.MULTILINE)
    return f"{os.cpu_count()} x {named[1] if named else platform.machine()}, load {os.getloadavg()[0]:.0f}"
