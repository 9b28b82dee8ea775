"""`voice checks`: every check with its source."""

from rich.table import Table

from blueprint.checks import CHECKS
from ops.output import out, print_json
from ops.plan import Json


def list_checks(as_json: Json = False) -> None:
    """List every check: what must hold, how much it matters, where the rule comes from.

    A deployment file accepts a finding by naming the check's id and a reason under `accepted_checks`.

    Example: voice checks --json
    """
    if as_json:
        print_json(
            [
                {"id": check.id, "level": check.level.value, "about": check.about, "source": check.source}
                for check in CHECKS
            ]
        )
        return
    table = Table(show_lines=True)
    for heading in ("check", "level", "what must hold", "source"):
        table.add_column(heading, overflow="fold")
    for check in CHECKS:
        table.add_row(check.id, check.level.value, check.about, check.source)
    out.print(table)
