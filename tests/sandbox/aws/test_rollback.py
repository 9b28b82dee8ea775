"""Updates of a stack whose group uses instance refresh: replacements and rollbacks."""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.sandbox.aws.samples import IMAGE_PARAMETER, fleet
from tests.sandbox.aws.stacks import Deployed

LIMIT_S = 120
ALARM = "callers-affected"


def rolling_update_group(release: str, **preferences: object) -> dict[str, Any]:
    """Return the sample fleet with an update policy; the user data of its hosts identifies the release."""
    resources = {name: body for name, body in fleet().items() if name not in {"Mixed", "Policy"}}
    resources["Template"]["Properties"]["LaunchTemplateData"]["UserData"] = {"Fn::Base64": release}
    chosen = {"MinHealthyPercentage": 100, "MaxHealthyPercentage": 150, "SkipMatching": True, **preferences}
    resources["Fleet"]["UpdatePolicy"] = {"AutoScalingInstanceRefresh": {"Strategy": "Rolling", "Preferences": chosen}}
    return resources


def releases(stack: Deployed) -> list[str]:
    """Return the user data of each host in service and in the warm pool."""
    autoscaling, ec2 = stack.client("autoscaling"), stack.client("ec2")
    (group,) = autoscaling.describe_auto_scaling_groups(AutoScalingGroupNames=[stack["Fleet"]])["AutoScalingGroups"]
    pool = autoscaling.describe_warm_pool(AutoScalingGroupName=stack["Fleet"])["Instances"]
    found = []
    for host in [*group["Instances"], *pool]:
        attribute = ec2.describe_instance_attribute(InstanceId=host["InstanceId"], Attribute="userData")
        found.append(base64.b64decode(attribute["UserData"]["Value"]).decode())
    return found


@pytest.fixture
def deployed_stack(stack: Deployed) -> Deployed:
    """Deploy the stack in its first release, with an alarm in state OK."""
    stack.client("cloudwatch").put_metric_alarm(
        AlarmName=ALARM, MetricName="m", Namespace="n", Statistic="Sum", Period=60, EvaluationPeriods=1,
        Threshold=1, ComparisonOperator="GreaterThanThreshold",
    )  # fmt: skip
    stack.create(rolling_update_group("first"), Parameters=IMAGE_PARAMETER)
    assert set(releases(stack)) == {"first"}
    return stack


def test_a_changed_launch_template_replaces_group_and_warm_pool(deployed_stack: Deployed) -> None:
    hosts = len(releases(deployed_stack))
    deployed_stack.update(
        rolling_update_group("second", AlarmSpecification={"Alarms": [ALARM]}), Parameters=IMAGE_PARAMETER
    )
    assert releases(deployed_stack) == ["second"] * hosts


def test_an_alarm_rolls_back_an_update(deployed_stack: Deployed) -> None:
    deployed_stack.client("cloudwatch").set_alarm_state(AlarmName=ALARM, StateValue="ALARM", StateReason="a drill")
    watched = {"AlarmSpecification": {"Alarms": [ALARM]}}
    assert (
        deployed_stack.try_update(rolling_update_group("bad", **watched), Parameters=IMAGE_PARAMETER)
        == "UPDATE_ROLLBACK_COMPLETE"
    )
    assert any(ALARM in reason for reason in deployed_stack.reasons)
    assert set(releases(deployed_stack)) == {"first"}


def test_a_cancelled_update_rolls_back_and_rejects_another_update(deployed_stack: Deployed) -> None:
    held = rolling_update_group("second", CheckpointPercentages=[50, 100], CheckpointDelay=3600)
    update = threading.Thread(target=deployed_stack.try_update, args=(held,), kwargs={"Parameters": IMAGE_PARAMETER})
    update.start()
    autoscaling, limit = deployed_stack.client("autoscaling"), time.monotonic() + LIMIT_S
    while True:
        found = autoscaling.describe_instance_refreshes(AutoScalingGroupName=deployed_stack["Fleet"])[
            "InstanceRefreshes"
        ]
        if found and found[0]["PercentageComplete"] == 50:
            break
        assert time.monotonic() < limit
        time.sleep(0.05)
    assert set(releases(deployed_stack)) == {"first", "second"}
    # AWS rejects a second deployment immediately, since it would revert the first.
    busy = r"is in UPDATE_IN_PROGRESS state and can not be updated"
    commands: list[tuple[Callable[[], object], str]] = [
        (lambda: deployed_stack.try_update(rolling_update_group("third"), Parameters=IMAGE_PARAMETER), busy),
        (
            lambda: deployed_stack.try_create(rolling_update_group("third"), Parameters=IMAGE_PARAMETER),
            "already exists",
        ),
        (deployed_stack.delete, "cannot be deleted while in status UPDATE_IN_PROGRESS"),
        (lambda: deployed_stack.plan(rolling_update_group("third"), Parameters=IMAGE_PARAMETER), busy),
    ]
    for command, refusal in commands:
        with pytest.raises(ClientError, match=refusal):
            command()
    assert update.is_alive()
    deployed_stack.cloudformation.cancel_update_stack(StackName=deployed_stack.name)
    update.join(LIMIT_S)
    assert deployed_stack.status == "UPDATE_ROLLBACK_COMPLETE"
    assert set(releases(deployed_stack)) == {"first"}
