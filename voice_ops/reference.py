"""Generates documentation pages, for ``make generate``."""

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from typer._click import Command, Context  # typer contains a vendored click
from typer.core import TyperArgument, TyperGroup, TyperOption

import voice_blueprint
from voice_blueprint.checks import CHECKS
from voice_blueprint.contract import session_api
from voice_blueprint.contract.images import Image
from voice_blueprint.contract.openapi import ROUTES
from voice_blueprint.observability.azure.alerts import (
    BUDGET_RUNBOOK,
    MAX_BUDGET_FORECAST_PERCENT,
    MAX_BUDGET_SPENT_PERCENT,
    Alert,
    build_alerts,
)
from voice_blueprint.observability.azure.platform import PlatformAlert, build_platform_alerts
from voice_ops.cli import COMMANDS, load_command
from voice_ops.schema import markdown
from voice_ops.schema.document import Schema
from voice_ops.schema.document import build_schema as file_schema

DOCS_FOLDER = Path(__file__).parents[1] / "docs"


def main() -> None:
    """Write all pages, or print the pages that the command line specifies."""
    for name, text in render_pages().items():
        if not sys.argv[1:]:
            (DOCS_FOLDER / f"{name}.md").write_text(text, encoding="utf-8")
        elif name in sys.argv:
            sys.stdout.write(text)


def render_pages() -> dict[str, str]:
    """Return the text of each page, by path below ``docs`` without suffix."""
    return {f"reference/{name}": render() for name, render in PAGE_RENDERERS.items()} | markdown.render_schema_pages(
        file_schema()
    )


def render_commands_page() -> str:
    """Render the page that lists all commands, with their arguments and options as in the help."""
    lines = [
        "# Options of the `voice` command",
        "",
        "The output of `voice COMMAND --help`. [The voice command](../commands.md) is an overview.",
    ]
    for name in COMMANDS:
        for title, command in _list_leaf_commands(name, load_command(name)):
            lines += ["", f"## voice {title}", "", _to_markdown(command.help or ""), ""]
            rows = [
                _format_parameter_row(each, Context(command))
                for each in command.params
                if isinstance(each, TyperArgument | TyperOption) and not each.hidden
            ]
            lines += _render_markdown_table(("Argument or option", "Description"), rows) if rows else []
    return "\n".join(lines) + "\n"


def render_checks_page() -> str:
    """Render the page that lists all checks, with their level, condition and source."""
    lines = [
        "# Checks",
        "",
        "Conditions of a deployment. `voice plan` reports violations and their remedies. A file with an error is",
        "rejected, unless it contains the check and a reason under `accepted_checks`, where that is possible.",
        "",
    ]
    rows = [
        (
            f"`{check.id}`",
            f"{check.level}" + ("" if check.is_acceptable else ", not acceptable"),
            check.description,
            check.source,
        )
        for check in CHECKS
    ]
    return "\n".join([*lines, *_render_markdown_table(("Check", "Level", "Condition", "Source"), rows)]) + "\n"


def render_api_page() -> str:
    """Render the page for the session API, with its routes and the schemas of the bodies."""
    lines = [
        "# Session API",
        "",
        f"`edge.authorizer` specifies how callers authenticate. `{session_api.TOKEN_HEADER}` contains the session's",
        "token if `Authorization` is used otherwise. An event stream resumes after the event in",
        f"`{session_api.LAST_EVENT_ID_HEADER}`.",
        "",
    ]
    lines += _render_markdown_table(
        ("Method", "Path", "What it does"), [(each.method, f"`{each.path}`", each.summary) for each in ROUTES]
    )
    for title, part in (
        ("Request of a session", session_api.SESSION_REQUEST_SCHEMA),
        ("Session", session_api.SESSION_SCHEMA),
        ("Error", session_api.ERROR_SCHEMA),
    ):
        lines += [
            "",
            f"## {title}",
            "",
            *_render_markdown_table(("Field", "Type", "Required", "Description"), list(_list_field_rows(part))),
        ]
    return "\n".join(lines) + "\n"


def render_azure_alerts_page() -> str:
    """Render the page that lists all alerts on Azure, from shipped files that together deploy every kind of service."""
    images = dict.fromkeys(Image, "sha256:...")
    budget = f"{MAX_BUDGET_SPENT_PERCENT} % of actual and {MAX_BUDGET_FORECAST_PERCENT} % of forecast costs"
    results: dict[str, Alert] = {}
    platform: dict[str, PlatformAlert] = {}
    for name in ("production-azure", "cells"):
        example_deployment = voice_blueprint.load(DOCS_FOLDER.parent / f"deployments/{name}.yaml").model_copy(
            update={"images": images}
        )
        results |= {alert.name: alert for alert in build_alerts(example_deployment)}
        platform = {alert.id: alert for alert in build_platform_alerts(example_deployment)} | platform
    lines = [
        "# Alerts on Azure",
        "",
        "Rules of the managed Prometheus, as `deployments/cells.yaml` and `production-azure.yaml` deploy them once",
        "their images have digests; each service has separate rules. A value equal to its threshold does not fire.",
        "Each name starts with the name of the runbook.",
        f"A budget, if configured, notifies at {budget}:",
        f"[{BUDGET_RUNBOOK}](../runbooks/azure/{BUDGET_RUNBOOK}.md).",
        "",
    ]
    rows = [
        (
            f"[{alert.name}](../runbooks/azure/{alert.id}.md)",
            f"{alert.comparison} {alert.threshold:g}{alert.unit}",
            f"{alert.minutes} min",
            "yes" if alert.affects_callers else "",
            f"`{alert.query}`",
        )
        for alert in results.values()
    ]
    lines += [
        *_render_markdown_table(("Alert", "Fires when it is", "For", "Pages", "Watches"), rows),
        "",
        "## Services of Azure",
        "",
        "Metric alerts of Azure Monitor, since Prometheus does not contain the metrics of Azure's own services.",
        "`edge-errors` depends on the load in the file: 5 % of the calls that begin in five minutes at the peak.",
        "",
    ]
    rows = [
        (
            f"[{alert.id}](../runbooks/azure/{alert.id}.md)",
            f"above {alert.threshold:g}{alert.unit}",
            f"{alert.window_minutes} min",
            "yes" if alert.affects_callers else "",
            f"{alert.aggregation} of `{alert.metric}`"
            + (f" (`{'='.join(alert.dimension)}`)" if alert.dimension else "")
            + f", {alert.service}",
        )
        for alert in platform.values()
    ]
    return (
        "\n".join([*lines, *_render_markdown_table(("Alert", "Fires when it is", "Window", "Pages", "Watches"), rows)])
        + "\n"
    )


def _list_leaf_commands(title: str, command: Command) -> Iterator[tuple[str, Command]]:
    if isinstance(command, TyperGroup):
        for name, part in command.commands.items():
            yield from _list_leaf_commands(f"{title} {name}", part)
    else:
        yield title, command


def _to_markdown(text: str) -> str:
    example = re.compile(r"^Example: (.+)$", re.MULTILINE)
    return example.sub(r"Example: `\1`", text.replace("\b", "").strip())


def _format_parameter_row(parameter: TyperArgument | TyperOption, context: Context) -> tuple[str, str]:
    names, help_text = parameter.get_help_record(context) or ("", "")
    return f"`{names}`", help_text.replace("[", "(").replace("]", ")")  # brackets are links in Markdown


def _list_field_rows(schema: Schema, prefix: str = "") -> Iterator[tuple[str, str, str, str]]:
    for name, field in schema["properties"].items():
        kind = (
            ", ".join(f"`{value}`" for value in field["enum"])
            if "enum" in field
            else field.get("format", field["type"])
        )
        required = "yes" if name in schema.get("required", ()) else "no"
        yield f"`{prefix}{name}`", kind, required, field.get("description", "")
        if "properties" in field:
            yield from _list_field_rows(field, f"{prefix}{name}.")


def _render_markdown_table(headings: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    cells = [[" ".join(str(cell).split()).replace("|", "\\|") for cell in row] for row in (headings, *rows)]
    return [f"| {' | '.join(row)} |" for row in (cells[0], ["---"] * len(headings), *cells[1:])]


PAGE_RENDERERS: dict[str, Callable[[], str]] = {
    "azure-alerts": render_azure_alerts_page,
    "checks": render_checks_page,
    "commands": render_commands_page,
    "session-api": render_api_page,
}

if __name__ == "__main__":
    main()
