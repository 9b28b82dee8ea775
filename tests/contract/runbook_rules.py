"""Rule that alarms and runbooks match, and that the composite alarm refers to existing alarms."""

import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from tests.contract.templates import Templates, resources_by_type

SECTIONS = ("What it means", "How to see it", "What to do", "How to know it is over")
RUNBOOK_TAG = "voice-serve:runbook"
INDEX = "README"

Runbooks = Mapping[str, str]
"""Text of ``docs/runbooks/<id>.md`` by id."""


def read(folder: Path) -> dict[str, str]:
    """Read every runbook of a folder, including its index."""
    return {file.stem: file.read_text(encoding="utf-8") for file in folder.glob("*.md")}


def violations(templates: Templates, runbooks: Runbooks, base_url: str, callers_affected: Collection[str]) -> list[str]:
    """Return alarms without a runbook, runbooks without an alarm or section, and an incomplete composite alarm.

    Args:
        callers_affected: Names of the composite alarm's alarms.
    """
    linked: set[str] = set()
    found: list[str] = []
    for where, address in _links(templates):
        if address is None:
            found.append(f"{where} links to no runbook")
        elif not address.startswith(f"{base_url}/"):
            found.append(f"{where} links to {address}, which is not below {base_url}")
        else:
            linked.add(address.removeprefix(f"{base_url}/").removesuffix(".md"))
            if linked - set(runbooks):
                found += [f"{where} has no runbook docs/runbooks/{id_}.md" for id_ in linked - set(runbooks)]
                linked &= set(runbooks)
    found += [f"docs/runbooks/{id_}.md belongs to no alarm" for id_ in sorted(set(runbooks) - linked - {INDEX})]
    return [*found, *_missing_runbooks(runbooks), *_composite_alarm_problems(templates, callers_affected)]


def _links(templates: Templates) -> Iterator[tuple[str, str | None]]:
    for kind in ("CloudWatch::Alarm", "CloudWatch::CompositeAlarm"):
        for alarm in resources_by_type(templates, kind):
            link = re.search(r"Runbook: (\S+)$", alarm.properties.get("AlarmDescription", ""))
            yield f"alarm {alarm.properties.get('AlarmName', alarm)}", link[1] if link else None
    for budget in resources_by_type(templates, "Budgets::Budget"):
        tags = {tag["Key"]: tag["Value"] for tag in budget.properties.get("ResourceTags", [])}
        yield f"budget {budget}", tags.get(RUNBOOK_TAG)


def _missing_runbooks(runbooks: Runbooks) -> Iterator[str]:
    index = runbooks.get(INDEX, "")
    for id_, text in runbooks.items():
        if id_ != INDEX:
            headings = tuple(re.findall(r"^## (.+)$", text, re.MULTILINE))
            if headings != SECTIONS:
                yield f"docs/runbooks/{id_}.md has the sections {list(headings)}"
            if not names_a_time_to_escalate(text):
                yield f"docs/runbooks/{id_}.md names no time after which to escalate"
            if f"({id_}.md)" not in index:
                yield f"docs/runbooks/README.md does not list {id_}"
        for target in re.findall(r"\]\((\w[\w-]*)\.md[)#]", text):
            if target not in runbooks:
                yield f"docs/runbooks/{id_}.md links to {target}.md, which is not there"


def names_a_time_to_escalate(text: str) -> bool:
    """Return True if a step of "What to do" escalates after a time; steps may span several lines."""
    steps = text.partition("## What to do")[2].partition("\n## ")[0]
    return any(
        re.search(r"\b(?:minutes|hours|days|at once)\b", step)
        for step in re.split(r"\n(?=\d+\. |\n)", steps)
        if "escalate" in step.lower()
    )


def _composite_alarm_problems(templates: Templates, callers_affected: Collection[str]) -> Iterator[str]:
    composites = list(resources_by_type(templates, "CloudWatch::CompositeAlarm"))
    alarms = {
        alarm.properties["AlarmName"] for alarm in (*resources_by_type(templates, "CloudWatch::Alarm"), *composites)
    }
    for composite in composites:
        rule = composite.properties["AlarmRule"]
        named = set(re.findall(r'ALARM\("([^"]+)"\)', rule))
        yield from (f"{composite} watches {name}, which is no alarm" for name in sorted(named - alarms))
        if " AND " in rule:
            continue  # the windows of one alert
        yield from (f"{composite} forgets {name}" for name in sorted(set(callers_affected) - named))
        yield from (f"{composite} watches {name}, which callers do not notice" for name in sorted(
            (named & alarms) - set(callers_affected)))  # fmt: skip
