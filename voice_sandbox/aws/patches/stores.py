"""An actual Redis server for each replication group of a rehearsal, so that the group's data can be restored.

The servers are disabled unless the rehearsal provides a folder. A server's socket is ``<group>.sock`` in that folder.
A snapshot is a file that a server saves and that the server of a new group loads.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

_START_TIMEOUT_S = 60
_server_processes: dict[str, subprocess.Popen[bytes]] = {}
_data_folder: Path | None = None


def enable_servers(folder: Path) -> None:
    """Start a server for each group that is created from now on, with its files in a folder."""
    global _data_folder  # noqa: PLW0603  set once, when the server starts
    _data_folder = folder


def start_server(group: str, snapshot: str | None) -> None:
    """Start a group's server with the data of a snapshot, if one is given."""
    if _data_folder is None:
        return
    data = _data_folder / f"{group}.rdb"
    data.unlink(missing_ok=True)
    if snapshot:
        shutil.copy(_get_snapshot_file(snapshot), data)
    options = [
        "--port",
        "0",
        "--unixsocket",
        str(_data_folder / f"{group}.sock"),
        "--dir",
        str(_data_folder),
        "--save",
        "",
    ]
    command = ["redis-server", *options, "--dbfilename", data.name]
    _server_processes[group] = subprocess.Popen(command, stdout=subprocess.DEVNULL)  # noqa: S603  Redis
    end = time.monotonic() + _START_TIMEOUT_S
    while _run_command(group, "PING").strip() != "PONG":
        if time.monotonic() > end:
            raise RuntimeError(f"the store of {group} did not start")
        time.sleep(0.05)


def save_snapshot(group: str, snapshot: str) -> None:
    """Save a group's data as a snapshot."""
    if _data_folder and group in _server_processes:
        _run_command(group, "SAVE")
        data = _data_folder / f"{group}.rdb"
        shutil.copy(data, _get_snapshot_file(snapshot))


def copy_snapshot(snapshot: str, name: str) -> None:
    """Copy a snapshot to another name."""
    if _data_folder:
        shutil.copy(_get_snapshot_file(snapshot), _get_snapshot_file(name))


def fail_over_server(group: str) -> None:
    """Stop a group's server, and start another one with the replicated data.

    All data has been replicated, since there are no concurrent writes.
    """
    if group in _server_processes:
        save_snapshot(group, f"replica-of-{group}")
        stop_server(group)
        start_server(group, f"replica-of-{group}")


def stop_server(group: str) -> None:
    """Stop a group's server, if it runs."""
    if process := _server_processes.pop(group, None):
        process.kill()
        process.wait()


def stop_all_servers() -> None:
    """Stop the servers of all groups."""
    for group in list(_server_processes):
        stop_server(group)


def _get_snapshot_file(snapshot: str) -> Path:
    assert _data_folder is not None  # noqa: S101  checked before
    return _data_folder / f"snapshot-{snapshot}.rdb"


def _run_command(group: str, command: str) -> str:
    assert _data_folder is not None  # noqa: S101  checked before
    cli = ["redis-cli", "-s", str(_data_folder / f"{group}.sock"), command]
    return subprocess.run(cli, capture_output=True, text=True, check=False).stdout  # noqa: S603  Redis's own
