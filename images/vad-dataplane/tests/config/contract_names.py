"""Compares the names in the program with the contract: ``contract_names.py NAMES_PROGRAM BLUEPRINT/contract.py``."""

import importlib.util
import subprocess
import sys


def main() -> str | None:
    """Return what differs."""
    program, contract_file = sys.argv[1:]
    # By its path: the package's own imports are not installed where the image is built.
    spec = importlib.util.spec_from_file_location("contract", contract_file)
    if spec is None or spec.loader is None:
        return f"{contract_file} cannot be read"
    contract = importlib.util.module_from_spec(spec)
    sys.modules["contract"] = contract
    spec.loader.exec_module(contract)

    printed = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    names: dict[str, set[str]] = {"contract": set(), "own": set(), "drop": set()}
    for line in printed.splitlines():
        kind, name = line.split()
        names[kind].add(name)

    expected = {variable.name for variable in contract.ENVIRONMENT[contract.Image.VAD_DATAPLANE]}
    if names["contract"] != expected:
        return f"variables differ from the contract: {sorted(names['contract'] ^ expected)}"
    declared = {value.name for value in vars(contract).values() if isinstance(value, contract.Variable)}
    if clash := (names["own"] & declared) - expected:
        return f"variables of our own are others' in the contract: {sorted(clash)}"
    if missing := {reason.value for reason in contract.DropReason} - names["drop"]:
        return f"drop reasons of the contract that the program does not tell: {sorted(missing)}"
    return None


if __name__ == "__main__":
    sys.exit(main())
