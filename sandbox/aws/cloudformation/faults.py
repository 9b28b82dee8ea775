"""Faults for drills: resources that cannot be created, as where a type is sold out or a quota is spent."""

from __future__ import annotations

from pathlib import Path

_files: list[Path] = []


def read_from(file: Path) -> None:
    """Take the faults from a file, which may change: one ``stack/logical id`` a line."""
    _files.append(file)


def raise_for(stack: str, logical_id: str) -> None:
    """Fail where the file names the resource.

    Raises:
        RuntimeError: It does.
    """
    if any(file.exists() and f"{stack}/{logical_id}" in file.read_text().splitlines() for file in _files):
        raise RuntimeError("a fault that a drill asked for")
