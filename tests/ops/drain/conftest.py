"""An account in moto with a fleet of the sandbox deployment, and a clock that only advances when a test sleeps."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from moto import mock_aws
from moto.autoscaling.models import AutoScalingBackend, TerminateInstanceActivity, autoscaling_backends
from moto.core.models import DEFAULT_ACCOUNT_ID
from typer.testing import CliRunner, Result

from tests.synthesized import ROOT
from voice_ops.cli import app

if TYPE_CHECKING:
    from moto.ec2.models.instances import Instance
    from types_boto3_autoscaling import AutoScalingClient

REGION = "us-east-1"
GROUP = "sandbox-vad-a"


@dataclass
class Account:
    """The fleet's group with two hosts and a termination hook.

    Attributes:
        drains_for_s: Time until a terminating host completes its hook; ``None`` if it never does.
        asked: Hosts that were terminated, and whether the group's desired capacity was reduced.
    """

    hosts: list[str]
    drains_for_s: float | None = 30.0
    asked: list[tuple[str, bool]] = field(default_factory=list)
    now: float = 1000.0
    _leaves_at: dict[str, float] = field(default_factory=dict)
    _leave: Callable[[], object] = dict

    @property
    def client(self) -> AutoScalingClient:
        return boto3.client("autoscaling", region_name=REGION)

    @property
    def desired_capacity(self) -> int:
        group = self.client.describe_auto_scaling_groups(AutoScalingGroupNames=[GROUP])["AutoScalingGroups"][0]
        return int(group["DesiredCapacity"])

    def hold_at_hook(self, host: str, *, fewer: bool) -> Instance:
        """Let a host wait for its termination hook, which moto does not simulate, and return the instance."""
        self.asked.append((host, fewer))
        backend = autoscaling_backends[DEFAULT_ACCOUNT_ID][REGION]
        (state,) = [each for each in backend.autoscaling_groups[GROUP].instance_states if each.instance.id == host]
        state.lifecycle_state = "Terminating:Wait"
        if self.drains_for_s is not None:
            self._leaves_at[host] = self.now + self.drains_for_s
        self._leave = lambda: self.client.detach_instances(
            InstanceIds=[host], AutoScalingGroupName=GROUP, ShouldDecrementDesiredCapacity=fewer
        )
        instance: Instance = state.instance
        return instance

    def wait(self, seconds: float) -> None:
        """Advance the clock."""
        self.now += seconds
        for host, leaves_at in list(self._leaves_at.items()):
            if self.now >= leaves_at:
                del self._leaves_at[host]
                self._leave()


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Iterator[Account]:
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MOTO_EC2_LOAD_DEFAULT_AMIS", "false")
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    with mock_aws():
        account = Account(_group(GROUP, hooked=True))
        monkeypatch.setattr(time, "sleep", account.wait)
        monkeypatch.setattr(time, "monotonic", lambda: account.now)

        def terminate(_: AutoScalingBackend, instance: str, fewer: bool) -> TerminateInstanceActivity:
            return TerminateInstanceActivity(account.hold_at_hook(instance, fewer=fewer), 2)

        monkeypatch.setattr(AutoScalingBackend, "terminate_instance", terminate)
        yield account


def _group(name: str, *, hooked: bool) -> list[str]:
    ec2: Any = boto3.client("ec2", region_name=REGION)
    subnet = ec2.describe_subnets(Filters=[{"Name": "availability-zone", "Values": [f"{REGION}a"]}])["Subnets"][0]
    ec2.create_launch_template(
        LaunchTemplateName=name, LaunchTemplateData={"ImageId": "ami-0abc", "InstanceType": "c8g.large"}
    )
    client = boto3.client("autoscaling", region_name=REGION)
    client.create_auto_scaling_group(
        AutoScalingGroupName=name,
        LaunchTemplate={"LaunchTemplateName": name},
        MinSize=1,
        MaxSize=3,
        DesiredCapacity=2,
        VPCZoneIdentifier=subnet["SubnetId"],
    )
    if hooked:
        client.put_lifecycle_hook(
            LifecycleHookName="drain",
            AutoScalingGroupName=name,
            LifecycleTransition="autoscaling:EC2_INSTANCE_TERMINATING",
            HeartbeatTimeout=900,
        )
    found = client.describe_auto_scaling_groups(AutoScalingGroupNames=[name])["AutoScalingGroups"][0]
    return [instance["InstanceId"] for instance in found["Instances"]]


@pytest.fixture
def other_group(account: Account) -> str:
    """Create a host in a group outside the deployment."""
    del account
    return _group("theirs", hooked=False)[0]


def drain(host: str, *options: str, deployment: str = "sandbox") -> Result:
    """Run the command."""
    return CliRunner().invoke(app, ["drain", str(ROOT / f"tests/deployments/{deployment}.yaml"), host, *options])
