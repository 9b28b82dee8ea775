"""A real Redis behind each replication group, where a rehearsal has a folder for them: what is in it can be restored.

Its socket is ``<group>.sock`` in that folder. A snapshot is the file that the process saves, and a group that is made
from one starts with that file.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

_PATIENCE_S = 60
_running: dict[str, subprocess.Popen[bytes]] = {}
_folder: Path | None = None


def open_in(folder: Path) -> None:
    """Have a process for each group from now on."""
    global _folder  # noqa: PLW0603  set once, when the server starts
    _folder = folder


def start(group: str, snapshot: str | None) -> None:
    """Start a group's process, with what a snapshot holds."""
    if _folder is None:
        return
    data = _folder / f"{group}.rdb"
    data.unlink(missing_ok=True)
    if snapshot:
        shutil.copy(_of(snapshot), data)
    options = ["--port", "0", "--unixsocket", str(_folder / f"{group}.sock"), "--dir", str(_folder), "--save", ""]
    command = ["redis-server", *options, "--dbfilename", data.name]
    _running[group] = subprocess.Popen(command, stdout=subprocess.DEVNULL)  # noqa: S603  Redis
    end = time.monotonic() + _PATIENCE_S
    while _say(group, "PING").strip() != "PONG":
        if time.monotonic() > end:
            raise RuntimeError(f"the store of {group} does not start")
        time.sleep(0.05)


def save(group: str, snapshot: str) -> None:
    """Keep what a group holds as a snapshot."""
    if _folder and group in _running:
        _say(group, "SAVE")
        data = _folder / f"{group}.rdb"
        shutil.copy(data, _of(snapshot))


def copy(snapshot: str, name: str) -> None:
    """Keep a snapshot under another name too."""
    if _folder:
        shutil.copy(_of(snapshot), _of(name))


def fail_over(group: str) -> None:
    """End a group's process, and start another with what had been replicated: all of it, as nobody writes meanwhile."""
    if group in _running:
        save(group, f"replica-of-{group}")
        stop(group)
        start(group, f"replica-of-{group}")


def stop(group: str) -> None:
    """End a group's process."""
    if process := _running.pop(group, None):
        process.kill()
        process.wait()


def stop_all() -> None:
    """End every process."""
    for group in list(_running):
        stop(group)


def _of(snapshot: str) -> Path:
    assert _folder is not None  # noqa: S101  asked before
    return _folder / f"snapshot-{snapshot}.rdb"


def _say(group: str, command: str) -> str:
    assert _folder is not None  # noqa: S101  asked before
    cli = ["redis-cli", "-s", str(_folder / f"{group}.sock"), command]
    return subprocess.run(cli, capture_output=True, text=True, check=False).stdout  # noqa: S603  Redis's own
