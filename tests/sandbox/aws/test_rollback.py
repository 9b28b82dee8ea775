"""Updates of a stack whose group rolls by instance refresh: what they replace, and how they are taken back."""

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


def rolling(release: str, **preferences: object) -> dict[str, Any]:
    """The fleet of the samples with a policy; its hosts' user data is the release."""
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
def deployed(stack: Deployed) -> Deployed:
    """The stack in its first release, with an alarm that is not on."""
    stack.client("cloudwatch").put_metric_alarm(
        AlarmName=ALARM, MetricName="m", Namespace="n", Statistic="Sum", Period=60, EvaluationPeriods=1,
        Threshold=1, ComparisonOperator="GreaterThanThreshold",
    )  # fmt: skip
    stack.create(rolling("first"), Parameters=IMAGE_PARAMETER)
    assert set(releases(stack)) == {"first"}
    return stack


def test_a_changed_launch_template_replaces_group_and_warm_pool(deployed: Deployed) -> None:
    hosts = len(releases(deployed))
    deployed.update(rolling("second", AlarmSpecification={"Alarms": [ALARM]}), Parameters=IMAGE_PARAMETER)
    assert releases(deployed) == ["second"] * hosts


def test_an_alarm_takes_an_update_back(deployed: Deployed) -> None:
    deployed.client("cloudwatch").set_alarm_state(AlarmName=ALARM, StateValue="ALARM", StateReason="a drill")
    watched = {"AlarmSpecification": {"Alarms": [ALARM]}}
    assert deployed.try_update(rolling("bad", **watched), Parameters=IMAGE_PARAMETER) == "UPDATE_ROLLBACK_COMPLETE"
    assert any(ALARM in reason for reason in deployed.reasons)
    assert set(releases(deployed)) == {"first"}


def test_an_update_that_is_cancelled_goes_back_and_takes_no_second_one_on_the_way(deployed: Deployed) -> None:
    held = rolling("second", CheckpointPercentages=[50, 100], CheckpointDelay=3600)
    update = threading.Thread(target=deployed.try_update, args=(held,), kwargs={"Parameters": IMAGE_PARAMETER})
    update.start()
    autoscaling, limit = deployed.client("autoscaling"), time.monotonic() + LIMIT_S
    while True:
        found = autoscaling.describe_instance_refreshes(AutoScalingGroupName=deployed["Fleet"])["InstanceRefreshes"]
        if found and found[0]["PercentageComplete"] == 50:
            break
        assert time.monotonic() < limit
        time.sleep(0.05)
    assert set(releases(deployed)) == {"first", "second"}
    # As AWS says it, and at once: a second deploy does not wait for the first, whose work it would undo.
    busy = r"is in UPDATE_IN_PROGRESS state and can not be updated"
    commands: list[tuple[Callable[[], object], str]] = [
        (lambda: deployed.try_update(rolling("third"), Parameters=IMAGE_PARAMETER), busy),
        (lambda: deployed.try_create(rolling("third"), Parameters=IMAGE_PARAMETER), "already exists"),
        (deployed.delete, "cannot be deleted while in status UPDATE_IN_PROGRESS"),
        (lambda: deployed.plan(rolling("third"), Parameters=IMAGE_PARAMETER), busy),
    ]
    for command, refusal in commands:
        with pytest.raises(ClientError, match=refusal):
            command()
    assert update.is_alive()
    deployed.cloudformation.cancel_update_stack(StackName=deployed.name)
    update.join(LIMIT_S)
    assert deployed.status == "UPDATE_ROLLBACK_COMPLETE"
    assert set(releases(deployed)) == {"first"}
