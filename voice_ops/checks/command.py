"""`voice checks`: list all checks with their sources."""

from voice_blueprint.checks import CHECKS
from voice_ops.findings import LEVEL_MARKS
from voice_ops.options import JsonOption
from voice_ops.output import format_markup, out, print_json


def checks(as_json: JsonOption = False) -> None:
    """List all checks with their rules, levels and sources.

    To accept a finding, add the check's id and a reason to `accepted_checks` in the deployment file.

    Example: voice checks --json
    """
    if as_json:
        rows = [
            {"id": each.id, "level": each.level.value, "about": each.description, "source": each.source}
            for each in CHECKS
        ]
        print_json({"checks": rows})
        return
    for check in CHECKS:
        out.print(format_markup(f"{LEVEL_MARKS[check.level]} [bold]{{}}[/]", check.id))
        out.print(f"  {check.description}", soft_wrap=True)
        out.print(format_markup("  [dim]{}[/]", check.source), soft_wrap=True)
