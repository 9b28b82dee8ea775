"""The pages of docs/reference, from the code itself: ``make reference`` writes them anew."""

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from typer._click import Command, Context  # typer carries a click of its own
from typer.core import TyperArgument, TyperGroup, TyperOption

import blueprint
from blueprint.checks import CHECKS
from blueprint.contract import session_api
from blueprint.contract.images import Image
from blueprint.contract.openapi import ROUTES
from blueprint.observability.azure_alerts import BUDGET, FORECAST_PERCENT, SPENT_PERCENT, Alert, alerts
from ops.cli import COMMANDS, load_command
from ops.schema.document import Schema

FOLDER = Path(__file__).parents[1] / "docs/reference"


def main() -> None:
    """Write every page anew."""
    for name, render in PAGES.items():
        (FOLDER / f"{name}.md").write_text(render(), encoding="utf-8")


def commands() -> str:
    """Return every command with its arguments and options, as its own help has them."""
    lines = [
        "# Every option of `voice`",
        "",
        "As `voice COMMAND --help` says it; what each is for: [the voice command]",
    ]
    lines[-1] += "(../commands.md)."
    for name in COMMANDS:
        for title, command in _leaves(name, load_command(name)):
            lines += ["", f"## voice {title}", "", _prose(command.help or ""), ""]
            rows = [
                _parameter(each, Context(command))
                for each in command.params
                if isinstance(each, TyperArgument | TyperOption) and not each.hidden
            ]
            lines += _table(("Argument or option", "What it is"), rows)
    return "\n".join(lines) + "\n"


def checks() -> str:
    """Return every check with its level, its rule and its source."""
    lines = [
        "# Checks",
        "",
        "What must hold before a file is deployed. `voice plan` says where it does not, and what to do. An error",
        "refuses the file, unless it names the check and a reason under `accepted_checks`, where that is possible.",
        "",
    ]
    rows = [
        (
            f"`{check.id}`",
            f"{check.level}" + ("" if check.acceptable else ", not acceptable"),
            check.about,
            check.source,
        )
        for check in CHECKS
    ]
    return "\n".join([*lines, *_table(("Check", "Level", "What must hold", "Source"), rows)]) + "\n"


def api() -> str:
    """Return the session API's routes, and what its bodies hold."""
    lines = [
        "# Session API",
        "",
        f"Callers authorise as `edge.authorizer` says. `{session_api.TOKEN_HEADER}` carries the session's token where",
        "`Authorization` is taken. An event stream goes on behind the event that",
        f"`{session_api.LAST_EVENT_ID_HEADER}` names.",
        "",
    ]
    lines += _table(
        ("Method", "Path", "What it does"), [(each.method, f"`{each.path}`", each.summary) for each in ROUTES]
    )
    for title, schema in (
        ("Request of a session", session_api.SESSION_REQUEST),
        ("Session", session_api.SESSION),
        ("Error", session_api.ERROR),
    ):
        lines += ["", f"## {title}", "", *_table(("Field", "Type", "Required", "What it is"), list(_fields(schema)))]
    return "\n".join(lines) + "\n"


def azure_alerts() -> str:
    """Return every alert of an Azure half that has each kind of service, and callers."""
    images = dict.fromkeys(Image, "sha256:...")
    found: dict[str, Alert] = {}
    for name in ("production-azure", "cells"):
        shipped = blueprint.load(FOLDER.parents[1] / f"deployments/{name}.yaml")
        found |= {alert.name: alert for alert in alerts(shipped.model_copy(update={"images": images}))}
    lines = [
        "# Alerts on Azure",
        "",
        "Rules of the managed Prometheus, as `deployments/cells.yaml` and `production-azure.yaml` deploy them once",
        "their images have digests; each service has its own. A value that equals its threshold does not fire. The",
        "name begins with the runbook's.",
        f"Where there is a budget, it reports at {SPENT_PERCENT} % of it spent and at {FORECAST_PERCENT} % forecast:",
        f"[{BUDGET}](../runbooks/azure/{BUDGET}.md).",
        "",
    ]
    rows = [
        (
            f"[{alert.name}](../runbooks/azure/{alert.id}.md)",
            f"{alert.comparison} {alert.threshold:g}{alert.unit}",
            f"{alert.minutes} min",
            "yes" if alert.callers_affected else "",
            f"`{alert.query}`",
        )
        for alert in found.values()
    ]
    return "\n".join([*lines, *_table(("Alert", "Fires when it is", "For", "Callers notice", "Watches"), rows)]) + "\n"


def _leaves(title: str, command: Command) -> Iterator[tuple[str, Command]]:
    if isinstance(command, TyperGroup):
        for name, part in command.commands.items():
            yield from _leaves(f"{title} {name}", part)
    else:
        yield title, command


def _prose(text: str) -> str:
    example = re.compile(r"^Example: (.+)$", re.MULTILINE)
    return example.sub(r"Example: `\1`", text.replace("\b", "").strip())


def _parameter(parameter: TyperArgument | TyperOption, within: Context) -> tuple[str, str]:
    shown, about = parameter.get_help_record(within) or ("", "")
    return f"`{shown}`", about.replace("[", "(").replace("]", ")")  # brackets are links to Markdown


def _fields(schema: Schema, prefix: str = "") -> Iterator[tuple[str, str, str, str]]:
    for name, field in schema["properties"].items():
        kind = (
            ", ".join(f"`{value}`" for value in field["enum"])
            if "enum" in field
            else field.get("format", field["type"])
        )
        required = "yes" if name in schema.get("required", ()) else "no"
        yield f"`{prefix}{name}`", kind, required, field.get("description", "")
        if "properties" in field:
            yield from _fields(field, f"{prefix}{name}.")


def _table(headings: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    cells = [[" ".join(str(cell).split()).replace("|", "\\|") for cell in row] for row in (headings, *rows)]
    return [f"| {' | '.join(row)} |" for row in (cells[0], ["---"] * len(headings), *cells[1:])]


PAGES: dict[str, Callable[[], str]] = {
    "azure-alerts": azure_alerts,
    "checks": checks,
    "commands": commands,
    "session-api": api,
}

if __name__ == "__main__":
    main()
