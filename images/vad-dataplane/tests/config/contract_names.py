"""Compares the names in the program with the contract: ``contract_names.py NAMES_PROGRAM BLUEPRINT/contract``."""

import importlib
import subprocess
import sys
import types
from pathlib import Path


def main() -> str | None:
    """Return the differences."""
    program, contract_folder = sys.argv[1:]
    # Skips voice_blueprint/__init__.py, whose dependencies are not installed where the program is built.
    blueprint = types.ModuleType("voice_blueprint")
    blueprint.__path__ = [str(Path(contract_folder).parent)]
    sys.modules["voice_blueprint"] = blueprint
    environment = importlib.import_module("voice_blueprint.contract.environment")
    images = importlib.import_module("voice_blueprint.contract.images")
    metrics = importlib.import_module("voice_blueprint.contract.metrics")

    printed = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    names: dict[str, set[str]] = {"contract": set(), "own": set(), "drop": set()}
    for line in printed.splitlines():
        kind, name = line.split()
        names[kind].add(name)

    expected = {variable.name for variable in environment.VARIABLES_BY_IMAGE[images.Image.VAD_DATAPLANE]}
    if names["contract"] != expected:
        return f"variables differ from the contract: {sorted(names['contract'] ^ expected)}"
    declared = {value.name for value in vars(environment).values() if isinstance(value, environment.Variable)}
    if clash := (names["own"] & declared) - expected:
        return f"variables of our own are others' in the contract: {sorted(clash)}"
    if missing := {reason.value for reason in metrics.DropReason} - names["drop"]:
        return f"drop reasons of the contract that the program does not tell: {sorted(missing)}"
    return None


if __name__ == "__main__":
    sys.exit(main())
