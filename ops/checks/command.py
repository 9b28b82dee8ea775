"""`voice checks`: every check with its source."""

from rich.markup import escape

from blueprint.checks import CHECKS
from ops.findings import MARKS
from ops.options import Json
from ops.output import out, print_json


def checks(as_json: Json = False) -> None:
    """List every check: what must hold, how much it matters, where the rule comes from.

    A deployment file accepts a finding by naming the check's id and a reason under `accepted_checks`.

    Example: voice checks --json
    """
    if as_json:
        rows = [
            {"id": each.id, "level": each.level.value, "about": each.about, "source": each.source} for each in CHECKS
        ]
        print_json({"checks": rows})
        return
    for check in CHECKS:
        out.print(f"{MARKS[check.level]} [bold]{check.id}[/]")
        out.print(f"  {escape(check.about)}", soft_wrap=True)
        out.print(f"  [dim]{escape(check.source)}[/]", soft_wrap=True)
