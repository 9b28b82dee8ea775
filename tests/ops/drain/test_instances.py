"""`voice drain` of a fleet's host, with the real SDK against moto."""

import json

import boto3
import pytest

from tests.ops.drain.conftest import GROUP, Account, drain


def test_a_host_is_drained_and_followed_until_it_has_terminated(account: Account) -> None:
    result = drain(account.hosts[0])
    assert result.exit_code == 0, result.output
    assert account.asked == [(account.hosts[0], True)]
    assert account.desired_capacity == 1
    assert 1030 <= account.now < 1045
    assert f"{account.hosts[0]}: vad in us-east-1a, InService; runs vad-dataplane, telemetry" in result.stdout
    assert "2 of 2 desired hosts in service, minimum 1" in result.stdout
    assert "900 s to finish its sessions" in result.stdout


def test_a_replaced_host_does_not_change_the_desired_capacity(account: Account) -> None:
    assert drain(account.hosts[0], "--replace").exit_code == 0
    assert account.asked == [(account.hosts[0], False)]
    assert account.desired_capacity == 2


def test_draining_does_not_go_below_the_minimum(account: Account) -> None:
    account.client.update_auto_scaling_group(AutoScalingGroupName=GROUP, MinSize=2)
    result = drain(account.hosts[0])
    assert result.exit_code == 2
    assert f"{GROUP} has 2 hosts desired, which is its minimum: give --replace" in result.stderr
    assert account.asked == []
    assert drain(account.hosts[0], "--replace").exit_code == 0


def test_a_terminating_host_is_only_followed(account: Account) -> None:
    account.hold_at_hook(account.hosts[0], fewer=True)
    account.client.update_auto_scaling_group(AutoScalingGroupName=GROUP, MinSize=2)
    assert drain(account.hosts[0]).exit_code == 0
    assert len(account.asked) == 1


def test_a_stuck_hook_is_completed(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("voice_ops.drain.command.POLL_INTERVAL_S", 60.0)
    account.drains_for_s = None
    result = drain(account.hosts[0])
    assert result.exit_code == 1
    assert 2800 < account.now <= 2860  # the drain's budget and one heartbeat time-out
    assert f"the hook drain still blocks the termination of {account.hosts[0]} after 1800 s" in result.stderr
    assert "aws autoscaling complete-lifecycle-action --auto-scaling-group-name sandbox-vad-a" in result.stderr
    assert "--lifecycle-hook-name drain --lifecycle-action-result CONTINUE" in result.stderr


def test_a_dry_run_changes_nothing(account: Account) -> None:
    result = drain(account.hosts[0], "--dry-run", "--json")
    assert result.exit_code == 0
    told = json.loads(result.stdout)
    assert told["dry_run"]
    assert (told["host"]["state"], told["host"]["group"], told["host"]["budget_s"]) == ("InService", GROUP, 900)
    assert account.asked == []


def test_json_contains_the_result(account: Account) -> None:
    assert json.loads(drain(account.hosts[0], "--json").stdout)["host"]["state"] == "Terminated"


def test_a_group_without_a_termination_hook_is_refused(account: Account) -> None:
    account.client.delete_lifecycle_hook(LifecycleHookName="drain", AutoScalingGroupName=GROUP)
    result = drain(account.hosts[0])
    assert result.exit_code == 2
    assert "no lifecycle hook for termination, so calls would be interrupted" in result.stderr
    assert account.asked == []


def test_a_host_outside_the_deployment_is_refused(account: Account, other_group: str) -> None:
    result = drain(other_group)
    assert result.exit_code == 2
    assert f"{other_group} belongs to theirs, which is not a group of sandbox" in result.stderr
    assert account.asked == []


@pytest.mark.usefixtures("account")
def test_an_unknown_instance_is_refused() -> None:
    result = drain("i-00000000")
    assert result.exit_code == 2
    assert "i-00000000 is not in an Auto Scaling group in us-east-1" in result.stderr


@pytest.mark.parametrize("host", ["i-xyz", "i-0123456789abcdef0123", "vad", "../etc"])
def test_invalid_host_names_are_refused_locally(host: str) -> None:
    result = drain(host)
    assert result.exit_code == 2
    assert f"{host} is not a host of sandbox, which is on AWS" in result.stderr


def test_without_credentials_no_request_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boto3.Session, "get_credentials", lambda _: None)
    result = drain("i-00000000")
    assert result.exit_code == 1
    assert "sign in" in result.stderr
