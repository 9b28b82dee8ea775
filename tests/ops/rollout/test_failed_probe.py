"""After a failed probe, the update in progress is cancelled, and no further stack is deployed."""

import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from voice_ops.rollout import aws as command
from voice_ops.rollout import follow
from voice_ops.rollout.aws import deploy_and_monitor
from voice_sandbox.rehearsals.cdk import CdkError

PROBLEM = "half of the words are wrong"
PATIENCE_S = 10.0


class CloudFormation:
    """Fake CloudFormation and CDK with two stacks, whose groups make progress in one refresh each.

    Attributes:
        pauses: Stacks whose deploy makes progress and then waits, before, during or after the update.
        ends_early: Whether an update ends between the description of a stack and the cancel.
        foreign: Stack that someone else updates when a deploy makes progress, or empty.
    """

    def __init__(self) -> None:
        self.states = {"a": "UPDATE_COMPLETE", "b": "UPDATE_COMPLETE"}
        self.pauses: dict[str, str] = {}
        self.ends_early = False
        self.foreign = ""
        self.begun: list[str] = []
        self.cancelled: list[str] = []
        self.has_read_states, self.progress = threading.Event(), threading.Event()

    def deploy_only(self, stack: str) -> None:
        self.begun.append(stack)
        if self.pauses.get(stack) == "before":
            self.progress.set()
            assert self.has_read_states.wait(PATIENCE_S)
        self.states[stack] = "UPDATE_IN_PROGRESS"
        if self.pauses.get(stack) == "after":
            self.states[stack] = "UPDATE_COMPLETE_CLEANUP_IN_PROGRESS"
            self.progress.set()
            assert self.has_read_states.wait(PATIENCE_S)
        elif stack in self.pauses:
            if self.foreign:
                self.states[self.foreign] = "UPDATE_IN_PROGRESS"
            self.progress.set()
            for _ in range(int(PATIENCE_S / 0.01)):
                if self.states[stack] != "UPDATE_IN_PROGRESS":
                    break
                threading.Event().wait(0.01)
            if self.states[stack].startswith("UPDATE_ROLLBACK"):
                raise CdkError(f"{stack}: UPDATE_ROLLBACK_COMPLETE")
        self.states[stack] = "UPDATE_COMPLETE"

    def cancel_update_stack(self, *, StackName: str) -> None:  # noqa: N803
        if self.ends_early:
            self.states[StackName] = "UPDATE_COMPLETE"
            message = f"CancelUpdateStack cannot be called from current stack status: {StackName}"
            raise ClientError({"Error": {"Code": "ValidationError", "Message": message}}, "CancelUpdateStack")
        self.cancelled.append(StackName)
        self.states[StackName] = "UPDATE_ROLLBACK_COMPLETE"

    def describe_instance_refreshes(self, **_: object) -> dict[str, Any]:
        refresh = {"InstanceRefreshId": "1", "Status": "InProgress", "PercentageComplete": 50}
        return {"InstanceRefreshes": [refresh] if self.progress.is_set() else []}

    def fetch_stack_statuses(self) -> dict[str, str]:
        """Return the states of the stacks, which are read only after a failed probe."""
        states = dict(self.states)
        self.has_read_states.set()
        return states


Deploy = Callable[[CloudFormation], str]


@pytest.fixture
def deploy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Deploy:
    """Return a function that deploys both stacks, with a probe that fails at the first progress."""

    def run(aws: CloudFormation) -> str:
        cdk = SimpleNamespace(use_assembly=lambda _: None, deploy_only=aws.deploy_only)
        monkeypatch.setattr(command, "Cdk", lambda *_: cdk)
        monkeypatch.setattr(command, "OperatorAccount", lambda *_: None)
        monkeypatch.setattr(command, "synthesize", lambda *_: SimpleNamespace(directory=str(tmp_path)))
        monkeypatch.setattr(command, "find_newest_refresh_ids", lambda *_: {})
        monkeypatch.setattr(follow, "POLL_INTERVAL_S", 0.01)
        account: Any = SimpleNamespace(
            caller_identity={"Account": "1"},
            region="us-east-1",
            deployment=None,
            fetch_stack_statuses=aws.fetch_stack_statuses,
            session=SimpleNamespace(client=lambda _: aws),
        )
        rolls: Any = [SimpleNamespace(stack=stack, group=f"group-{stack}") for stack in ("a", "b")]
        return deploy_and_monitor(account, rolls, lambda: PROBLEM)

    return run


def test_an_update_in_progress_is_rolled_back(deploy: Deploy) -> None:
    aws = CloudFormation()
    aws.pauses = {"a": "during"}
    assert deploy(aws) == f"the rollout was rolled back: {PROBLEM}"
    assert (aws.begun, aws.cancelled) == (["a"], ["a"])


def test_a_complete_stack_keeps_the_new_release_and_the_next_one_is_not_deployed(deploy: Deploy) -> None:
    aws = CloudFormation()
    aws.pauses = {"a": "after"}
    told = deploy(aws)
    assert (aws.begun, aws.cancelled) == (["a"], [])
    assert "rolled back" not in told
    assert f"the probe failed: {PROBLEM}" in told
    assert "these stacks keep the new release: a; deploy the previous revision of the file" in told


def test_a_stack_whose_update_begins_after_the_probe_is_rolled_back(deploy: Deploy) -> None:
    """The CDK publishes assets for about a minute before the update begins."""
    aws = CloudFormation()
    aws.pauses = {"b": "before"}
    told = deploy(aws)
    assert (aws.begun, aws.cancelled) == (["a", "b"], ["b"])
    assert f"the rollout was rolled back: {PROBLEM}" in told
    assert "these stacks keep the new release: a;" in told


def test_an_update_that_has_just_ended_is_not_an_error(deploy: Deploy) -> None:
    aws = CloudFormation()
    aws.pauses, aws.ends_early = {"a": "during"}, True
    told = deploy(aws)
    assert aws.begun == ["a"]
    assert "these stacks keep the new release: a;" in told


@pytest.mark.parametrize("ours", ["a", "b"])
def test_an_update_that_the_command_did_not_start_continues(deploy: Deploy, ours: str) -> None:
    """A colleague or a pipeline may update a stack whose turn has not come, or is over."""
    aws = CloudFormation()
    aws.pauses, aws.foreign = {ours: "during"}, {"a": "b", "b": "a"}[ours]
    assert PROBLEM in deploy(aws)
    assert aws.cancelled == [ours]
    assert aws.states[aws.foreign] == "UPDATE_IN_PROGRESS"
