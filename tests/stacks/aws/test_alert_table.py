"""Alerts in ``observability/aws/alerts`` match the table of docs/runbooks/README.md.

The table is compared with synthesized templates, so neither can change alone.
"""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.contract.sources import DECLARED_METRICS
from tests.nonempty import nonempty
from tests.synthesized import ROOT, Properties, Stacks, edited_sandbox
from voice_blueprint.contract.metrics import DEPLOYMENT_DIMENSION, FLEET_DIMENSION, NAMESPACE

HEADER = "| Runbook | Watches | Fires when it is | Datapoints | No data | Pages |"
SYMBOLS = {"GreaterThanThreshold": "above", "LessThanThreshold": "below"}
UNITS = {"Percent": " %", "Milliseconds": " ms", "Seconds": " s", "Count": "", "None": ""}
UNIT_BY_METRIC = {metric.name: metric.unit for metric in DECLARED_METRICS}
COMMON_DIMENSIONS = {DEPLOYMENT_DIMENSION, FLEET_DIMENSION}

Row = tuple[str, ...]


@pytest.fixture(scope="module")
def every_alert(tmp_path_factory: pytest.TempPathFactory) -> Stacks:
    """Return the sandbox with a second GPU fleet, so that alerts over all fleets of a kind cover several."""
    folder = tmp_path_factory.mktemp("alerts")
    p5 = {"name": "p5-more", "instance_type": "p5.4xlarge", "hosts": {"min": 1, "max": 4}, "scaling": []}
    return edited_sandbox({"aws.asr.3": p5}, folder)


def test_table_of_alerts_matches_the_deployment(every_alert: Stacks) -> None:
    index = (ROOT / "docs/runbooks/README.md").read_text(encoding="utf-8")
    table = index.partition(HEADER + "\n")[2].partition("\n\n")[0]
    written = {row.partition(" | ")[0]: row for row in table.splitlines()[1:]}
    deployed = {row[0]: f"{' | '.join(row)} |" for row in rows(every_alert)}
    assert written == deployed, "\n".join(["the templates say:", HEADER, *deployed.values()])


def test_no_alarm_waits_for_many_samples(every_alert: Stacks) -> None:
    """With 'ignore', an alarm on a p95 keeps its state in each period of fewer than 200 samples."""
    for alarm in nonempty(every_alert["observability"].properties("CloudWatch::Alarm")):
        assert alarm.get("EvaluateLowSampleCountPercentile") != "ignore", alarm["AlarmName"]


def rows(stacks: Stacks) -> Iterator[Row]:
    observability = stacks["observability"]
    composites = {each["AlarmName"]: each for each in observability.properties("CloudWatch::CompositeAlarm")}
    composite = composites.pop("sandbox-alert-callers-affected")
    noticed = set(re.findall(r'ALARM\("([^"]+)"\)', composite["AlarmRule"]))
    yield (link(composite["AlarmDescription"]), 'alarms of alerts with "yes"', "any in alarm", "", "", "yes")
    limits = {each["AutoScalingGroupName"]: int(each["MaxSize"]) for tier in stacks
              for each in stacks[tier].properties("AutoScaling::AutoScalingGroup")}  # fmt: skip
    for tier in ("edge", "agents"):
        for policy in stacks[tier].properties("ApplicationAutoScaling::ScalingPolicy"):
            tracked = policy["TargetTrackingScalingPolicyConfiguration"]
            if custom := tracked.get("CustomizedMetricSpecification"):
                limits[custom["MetricName"]] = tracked["TargetValue"]
    seen: dict[str, list[Row]] = {}
    deployed = (each for tier in ("observability", "network") for each in stacks[tier].properties("CloudWatch::Alarm"))
    alarms = {each["AlarmName"]: each for each in deployed}
    for paired in composites.values():
        long, short = (alarms.pop(part) for part in re.findall(r'ALARM\("([^"]+)"\)', paired["AlarmRule"]))
        assert paired["AlarmRule"] == f'ALARM("{long["AlarmName"]}") AND ALARM("{short["AlarmName"]}")'
        assert all(long[key] == short[key] for key in ("Threshold", "ComparisonOperator", "AlarmDescription"))
        assert alarm_series(long) == alarm_series(short)
        target = paired["AlarmName"].partition("error-budget-burns-")[2]
        row = (link(paired["AlarmDescription"]), alarm_series(long), f"{target}: above {long['Threshold']:g} %",
               f"1 of 1, {period(long)} s and {period(short)} s", "",
               target if paired["AlarmName"] in noticed else "")  # fmt: skip
        seen.setdefault(row[0], []).append(row)
    for alarm in alarms.values():
        row = (link(alarm["AlarmDescription"]), alarm_series(alarm), condition(alarm, limits), datapoints(alarm),
               "fires" if alarm["TreatMissingData"] == "breaching" else "",
               "yes" if alarm["AlarmName"] in noticed else "")  # fmt: skip
        assert alarm["TreatMissingData"] in {"breaching", "notBreaching"}
        seen.setdefault(row[0], []).append(row)
    for id_, same in seen.items():
        merged = tuple(", ".join(dict.fromkeys(filter(None, column))) for column in zip(*same, strict=True))
        assert merged[2:] == same[0][2:] or "error-budget" in id_, f"{id_} differs between its alarms"
        yield merged
    budget = observability.only("Budgets::Budget")
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


def alarm_series(alarm: Properties) -> str:
    """Return the series of an alarm, combined by their expression if there are several."""
    if "MetricName" in alarm:
        return f"{alarm['Statistic']} of {metric(alarm)}"
    folded, *series = alarm["Metrics"]
    ids = ",".join(query["Id"] for query in series)
    kinds = [f"{query['MetricStat']['Stat']} of {metric(query['MetricStat']['Metric'])}" for query in series]
    if folded["Expression"].startswith("IF("):
        part, rest = kinds
        least = re.fullmatch(r"IF\(m0>=(\d+),100\*m0/SUM\(\[m0,m1\]\),0\)", folded["Expression"])
        if least:
            return f"share of {part} in that and {rest}, of {least[1]} or more"
        late = re.fullmatch(r"IF\(m1\*\(100-m0\)/100>=(\d+),100-m0,0\)", folded["Expression"])
        assert late
        return f"{part} less than 100 %, of {late[1]} or more"
    (kind,) = set(kinds)
    function = folded["Expression"].removesuffix(f"([{ids}])")
    return f"{function} over fleets: {kind}"


def metric(of: dict[str, Any]) -> str:
    part = [
        each["Value"]
        for each in of["Dimensions"]
        if of["Namespace"] == NAMESPACE and each["Name"] not in COMMON_DIMENSIONS
    ]
    return f"`{of['MetricName']}`" + "".join(f" ({value})" for value in part)


def name(alarm: Properties) -> str:
    return str(alarm.get("MetricName") or alarm["Metrics"][1]["MetricStat"]["Metric"]["MetricName"])


def condition(alarm: Properties, limits: dict[str, int]) -> str:
    unit = " %" if is_share(alarm) else UNITS[UNIT_BY_METRIC[name(alarm)]]
    value = f"{alarm['Threshold']:g}{unit}"
    for dimension in alarm.get("Dimensions", []):
        if dimension["Name"] == "AutoScalingGroupName":
            assert alarm["Threshold"] == limits[dimension["Value"]] - 1
            value = "the group's maximum less 1"
    if alarm["AlarmName"].rpartition("-")[0].endswith("service-saturated"):
        # The scaling target of tasks is 70 % of their capacity.
        assert alarm["Threshold"] / 0.9 * 0.7 == pytest.approx(limits[name(alarm)], abs=0.6)
        value = "90 % of a task's room"
    return f"{SYMBOLS[alarm['ComparisonOperator']]} {value}"


def is_share(alarm: Properties) -> bool:
    return "Metrics" in alarm and str(alarm["Metrics"][0]["Expression"]).startswith("IF(")


def period(alarm: Properties) -> int:
    (found,) = (
        {alarm["Period"]} if "Period" in alarm else {query["MetricStat"]["Period"] for query in alarm["Metrics"][1:]}
    )
    return int(found)


def datapoints(alarm: Properties) -> str:
    return f"{alarm['DatapointsToAlarm']} of {alarm['EvaluationPeriods']}, {period(alarm)} s each"
