"""Continues a rollout that is stored in the account, so that any process can monitor the next part."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Protocol

from botocore.exceptions import ClientError

from voice_blueprint.aws import names
from voice_ops.aws.account import NOT_DEPLOYED_STATES, Account
from voice_ops.aws.refusals import get_error_code
from voice_sandbox.rehearsals.cdk import CdkError

MIN_REMAINING_S = 120.0
"""Minimum remaining time to start a stack. Publishing the assets and creating the change set takes about a
minute."""
START_TIMEOUT_S = 300.0
"""Maximum time from the start of a stack deploy to the start of the stack update."""
_FAILED_STATUS_SUFFIXES = ("ROLLBACK_COMPLETE", "ROLLBACK_FAILED", "CREATE_FAILED", "UPDATE_FAILED")


class RolloutOutcome(StrEnum):
    """State of a rollout at the end of a part."""

    DONE = "done"
    """Every stack matches the file."""
    UNFINISHED = "continues"
    """CloudFormation is still working, or stacks have not been started."""
    ROLLED_BACK = "taken back"
    """A stack was rolled back; no further stack is started."""


@dataclass(frozen=True)
class StoredRollout:
    """A rollout in progress, which is stored in a parameter in the account.

    Attributes:
        templates: Hash of the templates.
        label: Label given by the operator or pipeline, such as a revision.
        at: Start time, ISO 8601.
        rolled_back_region: Reason for a rollback, or empty.
    """

    templates: str
    label: str
    at: str
    rolled_back_region: str = ""


def hash_templates(templates: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a short hash of templates."""
    return hashlib.sha256(json.dumps(templates, sort_keys=True, default=str).encode()).hexdigest()[:16]


def load_rollout(account: Account) -> StoredRollout | None:
    """Return the rollout that is stored in the account, or ``None`` if no rollout is in progress."""
    try:
        result = account.session.client("ssm").get_parameter(
            Name=names.build_rollout_parameter_name(account.deployment)
        )
    except ClientError as error:
        if get_error_code(error) != "ParameterNotFound":
            raise
        return None
    return StoredRollout(**json.loads(result["Parameter"]["Value"]))


def store_rollout(account: Account, rollout: StoredRollout) -> None:
    """Store a rollout in the account, and replace any earlier one."""
    account.session.client("ssm").put_parameter(
        Name=names.build_rollout_parameter_name(account.deployment),
        Value=json.dumps(asdict(rollout)),
        Type="String",
        Overwrite=True,
        Description="The rollout that `voice rollout --resume` follows; deleted when it is done",
    )


def delete_rollout(account: Account) -> None:
    """Delete the record of the rollout from the account."""
    account.session.client("ssm").delete_parameter(Name=names.build_rollout_parameter_name(account.deployment))


def record_rollout_start(account: Account, label: str, now: datetime) -> StoredRollout:
    """Record in the account that the rollout of the templates for the file has started."""
    rollout = StoredRollout(hash_templates(account.templates), label, now.astimezone(UTC).isoformat(timespec="seconds"))
    store_rollout(account, rollout)
    return rollout


class RunningDeploy(Protocol):
    """A deploy of a stack that runs in the background."""

    def has_ended(self) -> bool:
        """Return True if the deploy has ended. Raise ``CdkError`` if it failed."""

    def stop_cli(self) -> None:
        """Stop the CLI without stopping CloudFormation."""


@dataclass(frozen=True)
class PartTimeLimit:
    """Time limit of a part of a rollout.

    Attributes:
        get_time_s: Function that returns the time, seconds.
        wait: Function that waits until the next poll.
        deadline_s: End of this part.
    """

    get_time_s: Callable[[], float]
    wait: Callable[[], None]
    deadline_s: float

    def remaining_s(self) -> float:
        return self.deadline_s - self.get_time_s()


def advance_rollout(
    account: Account,
    rollout: StoredRollout,
    deploy: Callable[[str], RunningDeploy],
    clock: PartTimeLimit,
    report: Callable[[str], None],
) -> RolloutOutcome:
    """Deploy the file's stacks one after another, and monitor them.

    The function returns when all stacks are deployed, a stack was rolled back, or the time limit is reached.

    Each call reads the state from the account, so that the next call can be made by another process.

    Args:
        deploy: Function that starts the deploy of a stack.

    Raises:
        CdkError: A deploy failed before CloudFormation started.
    """
    for stack in account.templates:
        while (state := _describe_stack_state(account, stack, rollout)) != "deployed":
            if state.startswith("rolled back"):
                report(f"{stack}: {state}")
                store_rollout(account, StoredRollout(**{**asdict(rollout), "rolled_back_region": f"{stack} {state}"}))
                return RolloutOutcome.ROLLED_BACK
            if clock.remaining_s() <= (MIN_REMAINING_S if state == "pending" else 0):
                report(f"{stack}: {state}; the rollout continues with `voice rollout FILE --resume`")
                return RolloutOutcome.UNFINISHED
            if state != "pending":
                clock.wait()
                continue
            report(f"{stack}: begins")
            try:
                has_ended = _wait_for_start(account, stack, deploy(stack), clock)
            except CdkError:
                # After CloudFormation has started, the status of the stack contains the reason for a rollback.
                if _describe_stack_state(account, stack, rollout) == "pending":
                    raise
                continue
            if has_ended and _describe_stack_state(account, stack, rollout) == "pending":
                break  # CloudFormation found no changes, and keeps the current template
        report(f"{stack}: deployed")
    delete_rollout(account)
    return RolloutOutcome.DONE


def _wait_for_start(account: Account, stack: str, deploying: RunningDeploy, clock: PartTimeLimit) -> bool:
    """Wait until CloudFormation has started, or the deploy has ended.

    Once CloudFormation has started, the process of the deploy is no longer needed.

    Returns:
        Whether the deploy has ended.
    """
    last_s = clock.get_time_s() + START_TIMEOUT_S
    try:
        while not deploying.has_ended() and clock.get_time_s() < last_s:
            status = account.fetch_stack_statuses().get(stack, "")
            if status.endswith("_IN_PROGRESS") and status != "REVIEW_IN_PROGRESS":
                return False
            clock.wait()
        return deploying.has_ended()
    finally:
        deploying.stop_cli()


def _describe_stack_state(account: Account, stack: str, rollout: StoredRollout) -> str:
    """Return the state of a stack, which is ``deployed``, ``pending``, ``in progress ...`` or ``rolled back ...``."""
    client = account.session.client("cloudformation")
    status = account.fetch_stack_statuses().get(stack)
    if status in {None, "REVIEW_IN_PROGRESS"}:
        return "pending"
    status = str(status)
    if status.endswith("_IN_PROGRESS"):
        return f"in progress ({status})"
    if status.endswith(_FAILED_STATUS_SUFFIXES):
        (result,) = client.describe_stacks(StackName=stack)["Stacks"]
        changed = result.get("LastUpdatedTime", result["CreationTime"])
        if changed >= datetime.fromisoformat(rollout.at):
            return f"rolled back ({status}: {result.get('StackStatusReason', 'see the events of the stack')})"
    if status in NOT_DEPLOYED_STATES:
        return "pending"
    return "deployed" if account.fetch_live_template(stack) == account.templates[stack] else "pending"
