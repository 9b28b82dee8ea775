"""Commit and machine of a measurement, without which its figures cannot be compared."""

import os
import platform
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]


def commit() -> str:
    """Return the checked-out commit, and whether files differ from it."""
    head, changed = (
        subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()  # noqa: S603, S607
        for arguments in (("rev-parse", "--short=8", "HEAD"), ("status", "--porcelain", "--untracked-files=no"))
    )
    return f"{head} with changes" if changed else head


def machine() -> str:
    """Return processor, cores and load of this machine."""
    cpus = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    named = re.search(r"^model name\s*: (.+)$", cpus, re.MULTILINE)
    return f"{os.cpu_count()} x {named[1] if named else platform.machine()}, load {os.getloadavg()[0]:.0f}"
