"""What CloudFormation calls for each resource type, from the handlers in CloudFormation's own schemas.

`python -m ops.preflight.aws.permission_table` writes the table again from the installed cfn-lint, which carries those
schemas.
"""

import re
from collections.abc import Iterable
from pathlib import Path

import yaml

from sandbox.aws.adapters.schemas import schema


class _Indented(yaml.SafeDumper):
    """Lists stand further in than their keys, as everywhere in this project."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002
        """Indent lists too."""
        super().increase_indent(flow, False)


TABLE = Path(__file__).with_name("permissions.yaml")
HANDLERS = ("create", "read", "update", "delete")
"""A deploy calls the first three, a rollback the last."""
ACTION = re.compile(r"[a-z0-9-]+:[A-Za-z]+\*?")
"""What IAM takes for an action; a few schemas hold names of other kinds."""


def derive(types: Iterable[str]) -> dict[str, list[str]]:
    """Return the actions of each type, sorted, as cfn-lint's schemas have them.

    Raises:
        ValueError: A type's schema names no handlers.
    """
    table: dict[str, list[str]] = {}
    for kind in sorted(types):
        handlers = schema(kind).get("handlers")
        if not handlers:
            raise ValueError(f"the schema of {kind} names no handlers")
        actions = {action for name in HANDLERS for action in handlers.get(name, {}).get("permissions", ())}
        table[kind] = sorted(action for action in actions if ACTION.fullmatch(action))
    return table


def main() -> None:
    """Write the table for every resource type that the local AWS has an adapter for: all that this project deploys."""
    from sandbox.aws.adapters.table import KINDS  # noqa: PLC0415  imports moto

    header = "# Written by python -m ops.preflight.aws.permission_table from the schemas in cfn-lint; do not edit.\n"
    text = yaml.dump(derive(KINDS), Dumper=_Indented, default_flow_style=False)
    TABLE.write_text(header + text, encoding="utf-8")


if __name__ == "__main__":
    main()
