"""Generator for the table of API calls that CloudFormation makes for each resource type.

The calls are those of the handlers in CloudFormation's schemas.

`python -m voice_ops.preflight.aws.permission_table` regenerates the table from the installed cfn-lint, which contains
those schemas.
"""

import json
import re
from collections.abc import Iterable
from pathlib import Path

from voice_sandbox.aws.adapters.schemas import load_resource_schema

PERMISSION_TABLE_FILE = Path(__file__).with_name("permissions.json")
SCHEMA_HANDLERS = ("create", "read", "update", "delete")
"""Handlers for a resource type. A deploy calls the first three, and a rollback calls the last one."""
ACTION_PATTERN = re.compile(r"[a-z0-9-]+:[A-Za-z]+\*?")
"""Pattern for IAM actions; a few schemas contain other names."""


def derive_permission_table(types: Iterable[str]) -> dict[str, list[str]]:
    """Return the sorted actions for each type from the cfn-lint schemas.

    Raises:
        ValueError: A type's schema defines no handlers.
    """
    table: dict[str, list[str]] = {}
    for kind in sorted(types):
        handlers = load_resource_schema(kind).get("handlers")
        if not handlers:
            raise ValueError(f"the schema of {kind} lists no handlers")
        actions = {action for name in SCHEMA_HANDLERS for action in handlers.get(name, {}).get("permissions", ())}
        table[kind] = sorted(action for action in actions if ACTION_PATTERN.fullmatch(action))
    return table


def main() -> None:
    """Write the table for all deployed resource types, which are those with an adapter in the local AWS."""
    from voice_sandbox.aws.adapters.table import RESOURCE_KINDS  # noqa: PLC0415  imports moto

    PERMISSION_TABLE_FILE.write_text(
        json.dumps(derive_permission_table(RESOURCE_KINDS), indent=1) + "\n", encoding="utf-8"
    )


if __name__ == "__main__":
    main()
