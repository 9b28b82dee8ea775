"""The rules on runbooks bite: one thing is changed by hand, and a violation must come of it."""

from collections.abc import Mapping

import pytest

from tests.contract import runbook_rules
from tests.contract.sources import RUNBOOKS, deployment
from tests.contract.templates import Template, properties_of

Mutable = dict[str, Template]


def runbook_problems(templates: Mutable, runbooks: Mapping[str, str]) -> list[str]:
    url = deployment("sandbox").aws.observability.runbook_url
    return runbook_rules.violations(templates, runbooks, url, [])


def without(*gone: str) -> dict[str, str]:
    return {id_: text for id_, text in RUNBOOKS.items() if id_ not in gone}


@pytest.mark.parametrize("id_", sorted(set(RUNBOOKS) - {runbook_rules.INDEX}))
def test_runbook_deleted(id_: str, templates: Mutable) -> None:
    assert any(f"has no runbook docs/runbooks/{id_}.md" in p for p in runbook_problems(templates, without(id_)))


def test_runbook_without_alarm(templates: Mutable) -> None:
    problems = runbook_problems(templates, {**RUNBOOKS, "old": RUNBOOKS["budget"]})
    assert "docs/runbooks/old.md belongs to no alarm" in problems
    assert "docs/runbooks/README.md does not list old" in problems


def test_runbook_without_a_section(templates: Mutable) -> None:
    shortened = {**RUNBOOKS, "budget": RUNBOOKS["budget"].replace("## What to do", "What to do")}
    assert any("budget.md has the sections" in problem for problem in runbook_problems(templates, shortened))


def test_runbook_links_to_nothing(templates: Mutable) -> None:
    broken = {**RUNBOOKS, "budget": RUNBOOKS["budget"] + "\n[see](nowhere.md)\n"}
    assert "docs/runbooks/budget.md links to nowhere.md, which is not there" in runbook_problems(templates, broken)


@pytest.mark.parametrize("description", ["", "It fires.", "Runbook: https://example.com/elsewhere.md"])
def test_alarm_without_a_link_to_a_runbook(description: str, templates: Mutable) -> None:
    alarms = {each["AlarmName"]: each for each in properties_of(templates, "CloudWatch::Alarm")}
    alarms["sandbox-alert-vad-ring-full"]["AlarmDescription"] = description
    assert any("sandbox-alert-vad-ring-full links to" in p for p in runbook_problems(templates, RUNBOOKS))


def test_composite_alarm_is_held_to_the_alerts(templates: Mutable) -> None:
    (composite,) = properties_of(templates, "CloudWatch::CompositeAlarm")
    composite["AlarmRule"] = 'ALARM("sandbox-alert-gone") OR ALARM("sandbox-alert-vad-ring-full")'
    url = deployment("sandbox").aws.observability.runbook_url
    problems = runbook_rules.violations(templates, RUNBOOKS, url, ["sandbox-alert-sessions-refused"])
    assert [problem.partition(" ")[2] for problem in problems] == [
        "watches sandbox-alert-gone, which is no alarm",
        "forgets sandbox-alert-sessions-refused",
        "watches sandbox-alert-vad-ring-full, which callers do not notice",
    ]
