"""An actual Redis for each replication group, if a rehearsal has a folder for them, so that its data can be restored.

Its socket is ``<group>.sock`` in that folder. A snapshot is the file that the process saves, from which a new group
starts.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

_START_TIMEOUT_S = 60
_running: dict[str, subprocess.Popen[bytes]] = {}
_folder: Path | None = None


def open_in(folder: Path) -> None:
    """Start a process for each group from now on."""
    global _folder  # noqa: PLW0603  set once, when the server starts
    _folder = folder


def start(group: str, snapshot: str | None) -> None:
    """Start a group's process with the data of a snapshot."""
    if _folder is None:
        return
    data = _folder / f"{group}.rdb"
    data.unlink(missing_ok=True)
    if snapshot:
        shutil.copy(_snapshot_file(snapshot), data)
    options = ["--port", "0", "--unixsocket", str(_folder / f"{group}.sock"), "--dir", str(_folder), "--save", ""]
    command = ["redis-server", *options, "--dbfilename", data.name]
    _running[group] = subprocess.Popen(command, stdout=subprocess.DEVNULL)  # noqa: S603  Redis
    end = time.monotonic() + _START_TIMEOUT_S
    while _command(group, "PING").strip() != "PONG":
        if time.monotonic() > end:
            raise RuntimeError(f"the store of {group} did not start")
        time.sleep(0.05)


def save(group: str, snapshot: str) -> None:
    """Save a group's data as a snapshot."""
    if _folder and group in _running:
        _command(group, "SAVE")
        data = _folder / f"{group}.rdb"
        shutil.copy(data, _snapshot_file(snapshot))


def copy(snapshot: str, name: str) -> None:
    """Copy a snapshot to another name."""
    if _folder:
        shutil.copy(_snapshot_file(snapshot), _snapshot_file(name))


def fail_over(group: str) -> None:
    """Stop a group's process, and start another one with the replicated data.

    All data has been replicated, since there are no concurrent writes.
    """
    if group in _running:
        save(group, f"replica-of-{group}")
        stop(group)
        start(group, f"replica-of-{group}")


def stop(group: str) -> None:
    """Stop a group's process."""
    if process := _running.pop(group, None):
        process.kill()
        process.wait()


def stop_all() -> None:
    """Stop all processes."""
    for group in list(_running):
        stop(group)


def _snapshot_file(snapshot: str) -> Path:
    assert _folder is not None  # noqa: S101  asked before
    return _folder / f"snapshot-{snapshot}.rdb"


def _command(group: str, command: str) -> str:
    assert _folder is not None  # noqa: S101  asked before
    cli = ["redis-cli", "-s", str(_folder / f"{group}.sock"), command]
    return subprocess.run(cli, capture_output=True, text=True, check=False).stdout  # noqa: S603  Redis's own
