"""The rules on runbooks detect violations, each caused by a manual change."""

from collections.abc import Mapping

import pytest

from tests.contract import runbook_rules
from tests.contract.sources import RUNBOOKS, deployment
from tests.contract.templates import Template, properties_by_type

Mutable = dict[str, Template]


def runbook_problems(templates: Mutable, runbooks: Mapping[str, str]) -> list[str]:
    url = deployment("sandbox").aws.observability.runbook_url
    return runbook_rules.violations(templates, runbooks, url, [])


def runbooks_without(*gone: str) -> dict[str, str]:
    return {id_: text for id_, text in RUNBOOKS.items() if id_ not in gone}


@pytest.mark.parametrize("id_", sorted(set(RUNBOOKS) - {runbook_rules.INDEX}))
def test_a_deleted_runbook_is_reported(id_: str, templates: Mutable) -> None:
    assert any(
        f"has no runbook docs/runbooks/{id_}.md" in p for p in runbook_problems(templates, runbooks_without(id_))
    )


def test_a_runbook_without_an_alarm_is_reported(templates: Mutable) -> None:
    problems = runbook_problems(templates, {**RUNBOOKS, "old": RUNBOOKS["budget"]})
    assert "docs/runbooks/old.md belongs to no alarm" in problems
    assert "docs/runbooks/README.md does not list old" in problems


def test_a_runbook_without_a_section_is_reported(templates: Mutable) -> None:
    shortened = {**RUNBOOKS, "budget": RUNBOOKS["budget"].replace("## What to do", "What to do")}
    assert any("budget.md has the sections" in problem for problem in runbook_problems(templates, shortened))


def test_a_runbook_without_a_time_to_escalate_is_reported(templates: Mutable) -> None:
    patient = {**RUNBOOKS, "chunks-lost": RUNBOOKS["chunks-lost"].replace("30 minutes after these steps", "later")}
    assert "docs/runbooks/chunks-lost.md names no time after which to escalate" in runbook_problems(templates, patient)


def test_a_runbook_with_a_broken_link_is_reported(templates: Mutable) -> None:
    broken = {**RUNBOOKS, "budget": RUNBOOKS["budget"] + "\n[see](nowhere.md)\n"}
    assert "docs/runbooks/budget.md links to nowhere.md, which is not there" in runbook_problems(templates, broken)


@pytest.mark.parametrize("description", ["", "It fires.", "Runbook: https://example.com/elsewhere.md"])
def test_an_alarm_without_a_link_to_a_runbook_is_reported(description: str, templates: Mutable) -> None:
    alarms = {each["AlarmName"]: each for each in properties_by_type(templates, "CloudWatch::Alarm")}
    alarms["sandbox-alert-vad-ring-full"]["AlarmDescription"] = description
    assert any("sandbox-alert-vad-ring-full links to" in p for p in runbook_problems(templates, RUNBOOKS))


def test_a_composite_alarm_must_match_the_alerts(templates: Mutable) -> None:
    (composite,) = (
        each
        for each in properties_by_type(templates, "CloudWatch::CompositeAlarm")
        if each["AlarmName"] == "sandbox-alert-callers-affected"
    )
    composite["AlarmRule"] = 'ALARM("sandbox-alert-gone") OR ALARM("sandbox-alert-vad-ring-full")'
    url = deployment("sandbox").aws.observability.runbook_url
    problems = runbook_rules.violations(templates, RUNBOOKS, url, ["sandbox-alert-chunks-lost"])
    assert [problem.partition(" ")[2] for problem in problems] == [
        "watches sandbox-alert-gone, which is no alarm",
        "forgets sandbox-alert-chunks-lost",
        "watches sandbox-alert-vad-ring-full, which callers do not notice",
    ]
