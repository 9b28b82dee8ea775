"""What wakes people stands twice: in ``blueprint.aws.alerts``, and in the table of docs/runbooks/README.md.

The table is compared with synthesized templates, so neither can change alone.
"""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from blueprint.contract.metrics import DEPLOYMENT_DIMENSION, FLEET_DIMENSION, NAMESPACE
from tests.contract.sources import DECLARED
from tests.synthesized import ROOT, Properties, Stacks, edited_sandbox

HEADER = "| Runbook | Watches | Fires when it is | Datapoints | No data | Callers notice |"
SYMBOLS = {"GreaterThanThreshold": "above", "LessThanThreshold": "below"}
UNITS = {"Percent": " %", "Milliseconds": " ms", "Seconds": " s", "Count": "", "None": ""}
UNIT_OF = {metric.name: metric.unit for metric in DECLARED}
OURS = {DEPLOYMENT_DIMENSION, FLEET_DIMENSION}

Row = tuple[str, ...]


@pytest.fixture(scope="module")
def every_alert(tmp_path_factory: pytest.TempPathFactory) -> Stacks:
    """The sandbox with a second GPU fleet, so that alerts over all fleets of a kind have several."""
    folder = tmp_path_factory.mktemp("alerts")
    p5 = {"name": "p5-more", "instance_type": "p5.4xlarge", "hosts": {"min": 1, "max": 4}, "scaling": []}
    return edited_sandbox({"aws.asr.3": p5}, folder)


def test_table_of_alerts_says_what_is_deployed(every_alert: Stacks) -> None:
    index = (ROOT / "docs/runbooks/README.md").read_text(encoding="utf-8")
    table = index.partition(HEADER + "\n")[2].partition("\n\n")[0]
    written = {row.partition(" | ")[0]: row for row in table.splitlines()[1:]}
    deployed = {row[0]: f"{' | '.join(row)} |" for row in rows(every_alert)}
    assert written == deployed, "\n".join(["the templates say:", HEADER, *deployed.values()])


def rows(stacks: Stacks) -> Iterator[Row]:
    observability = stacks["observability"]
    composite = observability.the("CloudWatch::CompositeAlarm")
    noticed = set(re.findall(r'ALARM\("([^"]+)"\)', composite["AlarmRule"]))
    yield (link(composite["AlarmDescription"]), 'alarms of alerts with "yes"', "any in alarm", "", "", "yes")
    limits = {each["AutoScalingGroupName"]: int(each["MaxSize"]) for tier in stacks
              for each in stacks[tier].properties("AutoScaling::AutoScalingGroup")}  # fmt: skip
    seen: dict[str, list[Row]] = {}
    for alarm in observability.properties("CloudWatch::Alarm"):
        row = (link(alarm["AlarmDescription"]), watched(alarm), condition(alarm, limits), datapoints(alarm),
               "fires" if alarm["TreatMissingData"] == "breaching" else "",
               "yes" if alarm["AlarmName"] in noticed else "")  # fmt: skip
        assert alarm["TreatMissingData"] in {"breaching", "notBreaching"}
        seen.setdefault(row[0], []).append(row)
    for id_, same in seen.items():
        merged = tuple(", ".join(dict.fromkeys(column)) for column in zip(*same, strict=True))
        assert merged[2:] == same[0][2:], f"{id_} differs between its alarms"
        yield merged
    budget = observability.the("Budgets::Budget")
    limits_of = [each["Notification"] for each in budget["NotificationsWithSubscribers"]]
    assert {(each["ComparisonOperator"], each["ThresholdType"]) for each in limits_of} == {
        ("GREATER_THAN", "PERCENTAGE")
    }
    shares = ", ".join(f"{each['NotificationType'].lower()} above {each['Threshold']:g} %" for each in limits_of)
    (runbook,) = (tag["Value"] for tag in budget["ResourceTags"] if tag["Key"] == "voice-serve:runbook")
    yield (link(f"Runbook: {runbook}"), "cost of the month", shares, "", "", "")


def link(description: str) -> str:
    found = re.search(r"Runbook: \S+/([\w-]+)\.md$", description)
    assert found
    return f"| [{found[1]}]({found[1]}.md)"


def watched(alarm: Properties) -> str:
    """One series, or several with what folds them into one."""
    if "MetricName" in alarm:
        return f"{alarm.get('Statistic') or alarm['ExtendedStatistic']} of {metric(alarm)}"
    folded, *series = alarm["Metrics"]
    ids = ",".join(query["Id"] for query in series)
    (kinds,) = {f"{query['MetricStat']['Stat']} of {metric(query['MetricStat']['Metric'])}" for query in series}
    function = folded["Expression"].removesuffix(f"([{ids}])")
    return f"{function} over fleets: {kinds}"


def metric(of: dict[str, Any]) -> str:
    part = [each["Value"] for each in of["Dimensions"] if of["Namespace"] == NAMESPACE and each["Name"] not in OURS]
    return f"`{of['MetricName']}`" + "".join(f" ({value})" for value in part)


def name(alarm: Properties) -> str:
    return str(alarm.get("MetricName") or alarm["Metrics"][1]["MetricStat"]["Metric"]["MetricName"])


def condition(alarm: Properties, limits: dict[str, int]) -> str:
    value = f"{alarm['Threshold']:g}{UNITS[UNIT_OF[name(alarm)]]}"
    for dimension in alarm.get("Dimensions", []):
        if dimension["Name"] == "AutoScalingGroupName":
            assert alarm["Threshold"] == limits[dimension["Value"]] - 1
            value = "the group's maximum less 1"
    return f"{SYMBOLS[alarm['ComparisonOperator']]} {value}"


def datapoints(alarm: Properties) -> str:
    (period,) = (
        {alarm["Period"]} if "Period" in alarm else {query["MetricStat"]["Period"] for query in alarm["Metrics"][1:]}
    )
    return f"{alarm['DatapointsToAlarm']} of {alarm['EvaluationPeriods']}, {period} s each"
