"""Compares stacks, deletion protection, alarms, drift and cost for a deployment with its file."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from voice_blueprint.aws import names
from voice_blueprint.contract.metrics import FLEET_DIMENSION, NAMESPACE
from voice_ops.aws.account import REPORT_AREA, Account
from voice_ops.aws.regions import find_removed_region_accounts
from voice_ops.preflight.report import CheckResult, CheckStatus, create_check_result
from voice_ops.status.fleets import count_hosts_in_service

if TYPE_CHECKING:
    from types_boto3_cloudformation import CloudFormationClient

COST_EXPLORER_REGION = "us-east-1"
"""Region whose Cost Explorer endpoint serves all regions."""

DETECTION_TIMEOUT_S = 300.0
_POLL_INTERVAL_S = 2.0
_COMPLETE_STATES = {"CREATE_COMPLETE", "UPDATE_COMPLETE", "IMPORT_COMPLETE"}
_MAX_ALARMS_PER_CALL = 100
SCALING_POLICY_TYPE = "AWS::AutoScaling::ScalingPolicy"
DELETION_PROTECTION_ATTRIBUTE = {"Key": "deletion_protection.enabled", "Value": "true"}


def compare_stacks(account: Account) -> Iterator[CheckResult]:
    """Compare the stacks in the file with the existing stacks."""
    live = account.fetch_stack_statuses()
    for stack in account.templates:
        state = live.get(stack, "not deployed")
        remedy = "deploy the file" if stack not in live else "see the events of the stack"
        yield create_check_result(
            REPORT_AREA, f"stack {stack}", state, warns="" if state in _COMPLETE_STATES else remedy
        )
    prune = f"run `voice prune {account.deployment.source.file}` to drain and delete what was removed from the file"
    for stack in sorted(live.keys() - account.templates.keys()):
        yield create_check_result(REPORT_AREA, f"stack {stack}", live[stack], "not in the file", warns=prune)
    for regional in find_removed_region_accounts(account) if account.deployment.is_first_region else ():
        result = f"{len(regional.fetch_stack_statuses())} stacks of {regional.deployment.name}"
        yield create_check_result(REPORT_AREA, f"region {regional.region}", result, "not in the file", warns=prune)


def compare_deletion_protection(account: Account) -> Iterator[CheckResult]:
    """Compare the deletion protection on stacks and load balancers with the file."""
    result = account.iter_paginated_items(
        "cloudformation", "describe_stacks", "Stacks[?StackStatus != 'DELETE_COMPLETE']"
    )
    live = {each["StackName"]: bool(each.get("EnableTerminationProtection")) for each in result}
    is_protected = {stack: live[stack] for stack in account.templates if stack in live}
    elbv2 = account.session.client("elbv2")
    balancer_stacks = (names.build_stack_name(account.deployment, tier) for tier in ("edge", "agents"))
    for stack in [stack for stack in balancer_stacks if stack in is_protected]:
        for arn in (each for each in account.fetch_physical_ids(stack).values() if ":loadbalancer/" in each):
            attributes = elbv2.describe_load_balancer_attributes(LoadBalancerArn=arn)["Attributes"]
            is_protected[f"load balancer {arn.split('/')[2]}"] = DELETION_PROTECTION_ATTRIBUTE in attributes
    if is_protected:
        desired = account.deployment.aws.deletion_protection
        unexpected = ", ".join(name for name, refused in is_protected.items() if refused != desired)
        yield create_check_result(
            REPORT_AREA,
            "refuse deletion",
            f"{sum(is_protected.values())} of {len(is_protected)} stacks and load balancers",
            "all" if desired else "none",
            warns=f"deploy the file again; it changes {unexpected}" if unexpected else "",
        )


def check_alarms(account: Account) -> Iterator[CheckResult]:
    """Report each alarm in ALARM, the missing metrics of hosts in service, and the number of alarms by state."""
    desired = [
        resource["Properties"]["AlarmName"]
        for resource in account.iter_resources("AWS::CloudWatch::Alarm", "AWS::CloudWatch::CompositeAlarm")
    ]
    scaling = set(_iter_scaling_alarms(account))
    states: Counter[str] = Counter()
    silent: dict[str, set[str]] = {}
    client = account.session.client("cloudwatch")
    for start in range(0, len(desired), _MAX_ALARMS_PER_CALL):
        subject = desired[start : start + _MAX_ALARMS_PER_CALL]
        result = client.describe_alarms(
            AlarmNames=subject, AlarmTypes=["MetricAlarm", "CompositeAlarm"], MaxRecords=_MAX_ALARMS_PER_CALL
        )
        for alarm in (*result["MetricAlarms"], *result.get("CompositeAlarms", [])):
            states[alarm["StateValue"]] += 1
            if alarm["StateValue"] == "ALARM":
                name, reason = alarm["AlarmName"], alarm.get("StateReason", "")
                if name in scaling:
                    yield create_check_result(
                        REPORT_AREA, f"alarm {name}", "in alarm", "may be in alarm: it scales a fleet"
                    )
                else:
                    yield create_check_result(
                        REPORT_AREA, f"alarm {name}", "in alarm", warns=reason or "see its runbook"
                    )
            if alarm["StateValue"] == "INSUFFICIENT_DATA":
                for fleet, metric in _iter_own_metrics(alarm):
                    silent.setdefault(fleet, set()).add(metric)
    yield from _report_missing_metrics(account, silent)
    missing = len(desired) - states.total()
    yield create_check_result(
        REPORT_AREA,
        "alarms",
        f"{states['ALARM']} in alarm, {states['OK']} fine, {states['INSUFFICIENT_DATA']} without data",
        f"{len(desired)} alarms",
        warns=f"{missing} are not deployed: deploy the file" if missing else "",
    )


def _iter_scaling_alarms(account: Account) -> Iterator[str]:
    """Yield the names of the alarms that trigger a scaling policy.

    A scale-in alarm stays in ALARM as long as its fleet is at the minimum, so its state is not a problem.
    """
    for template in account.templates.values():
        resources = template["Resources"]
        policies = [name for name, resource in resources.items() if resource["Type"] == SCALING_POLICY_TYPE]
        for resource in resources.values():
            if resource["Type"] == "AWS::CloudWatch::Alarm":
                actions = resource["Properties"].get("AlarmActions", [])
                if any({"Ref": policy} in actions for policy in policies):
                    yield resource["Properties"]["AlarmName"]


def _iter_own_metrics(alarm: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the fleet and name of each metric that an alarm reads and that hosts publish themselves."""
    stats = [part["MetricStat"]["Metric"] for part in alarm.get("Metrics", []) if "MetricStat" in part]
    for metric in (alarm, *stats):
        if metric.get("Namespace") == NAMESPACE:
            fleets = [each["Value"] for each in metric["Dimensions"] if each["Name"] == FLEET_DIMENSION]
            yield from ((fleet, metric["MetricName"]) for fleet in fleets)


def _report_missing_metrics(account: Account, silent: Mapping[str, set[str]]) -> Iterator[CheckResult]:
    in_service = count_hosts_in_service(account) if silent else {}
    for fleet, metrics in silent.items():
        if hosts := in_service.get(fleet, 0):
            result = f"{hosts} in service, but no data for {', '.join(sorted(metrics))}"
            remedy = "check the telemetry container in the hosts' log group: without its data, the fleet does not scale"
            yield create_check_result(REPORT_AREA, f"metrics of {fleet}", result, "data of every metric", warns=remedy)


def detect_drift(account: Account) -> Iterator[CheckResult]:
    """Run CloudFormation's drift detection for each stack, which takes some seconds per stack."""
    client = account.session.client("cloudformation")
    live = account.fetch_stack_statuses()
    runs = {
        stack: client.detect_stack_drift(StackName=stack)["StackDriftDetectionId"]
        for stack in account.templates
        if stack in live
    }
    for stack, run in runs.items():
        yield _report_stack_drift(client, stack, run)


def report_costs(account: Account) -> Iterator[CheckResult]:
    """Report the cost of the current month. The request to Cost Explorer costs 0.01 USD."""
    today = datetime.now(UTC).date()
    answer = account.session.client("ce", region_name=COST_EXPLORER_REGION).get_cost_and_usage(
        TimePeriod={"Start": today.replace(day=1).isoformat(), "End": (today + timedelta(days=1)).isoformat()},
        Granularity="MONTHLY",
        Metrics=["UnblendedCost"],
        Filter={"Tags": {"Key": names.DEPLOYMENT_TAG, "Values": [account.deployment.name]}},
    )
    costs = [period["Total"]["UnblendedCost"] for period in answer["ResultsByTime"] if period.get("Total")]
    usd = sum(float(cost["Amount"]) for cost in costs)
    remedy = "" if usd else f"activate the cost allocation tag {names.DEPLOYMENT_TAG}; costs appear a day later"
    budget = f"budget {account.deployment.aws.observability.monthly_budget_usd:,.0f} USD"
    result = f"{usd:,.2f} USD" if usd else "no resource has the tag yet"
    yield CheckResult(
        REPORT_AREA,
        "cost so far this month",
        CheckStatus.PASSED if usd else CheckStatus.SKIPPED,
        result,
        budget,
        remedy,
    )


def _report_stack_drift(client: CloudFormationClient, stack: str, run: str) -> CheckResult:
    subject = f"drift of {stack}"
    deadline = time.monotonic() + DETECTION_TIMEOUT_S
    while (state := client.describe_stack_drift_detection_status(StackDriftDetectionId=run)).get(
        "DetectionStatus"
    ) == "DETECTION_IN_PROGRESS":
        if time.monotonic() > deadline:
            return CheckResult(
                REPORT_AREA,
                subject,
                CheckStatus.UNKNOWN,
                f"not detected in {DETECTION_TIMEOUT_S:.0f} s",
                remedy="run it again",
            )
        time.sleep(_POLL_INTERVAL_S)
    if state["DetectionStatus"] == "DETECTION_FAILED":
        return CheckResult(
            REPORT_AREA,
            subject,
            CheckStatus.UNKNOWN,
            state.get("DetectionStatusReason", "failed"),
            remedy="run it again",
        )
    drifts = client.describe_stack_resource_drifts(
        StackName=stack, StackResourceDriftStatusFilters=["MODIFIED", "DELETED"]
    )["StackResourceDrifts"]
    drifted = ", ".join(f"{each['LogicalResourceId']} {each['StackResourceDriftStatus'].lower()}" for each in drifts)
    remedy = "add the change to the file or revert it; a deploy does not revert it" if drifts else ""
    return create_check_result(REPORT_AREA, subject, drifted or "in sync", "in sync", warns=remedy)
