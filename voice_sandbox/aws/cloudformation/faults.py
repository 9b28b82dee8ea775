"""Faults for drills: resources that cannot be created, for example because of missing capacity or quota."""

from __future__ import annotations

from pathlib import Path

_fault_files: list[Path] = []


def add_fault_file(file: Path) -> None:
    """Read the faults from a file with one ``stack/logical id`` per line. Later changes also take effect."""
    _fault_files.append(file)


def raise_for_injected_fault(stack: str, logical_id: str) -> None:
    """Raise an error if a fault file contains the resource.

    Raises:
        RuntimeError: A fault file contains the resource.
    """
    if any(file.exists() and f"{stack}/{logical_id}" in file.read_text().splitlines() for file in _fault_files):
        raise RuntimeError("a fault injected by a drill")
