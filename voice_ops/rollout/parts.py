"""Runs a rollout on AWS in time-limited parts, each in a separate command."""

import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import typer

from voice_blueprint.file.model.deployment import Deployment
from voice_ops.aws.account import Account, create_deployment_session
from voice_ops.aws.refusals import AWS_ERRORS, report_aws_error
from voice_ops.exits import FAILED, IN_PROGRESS, INVALID_INPUT
from voice_ops.output import create_exit, err, out
from voice_ops.progress import print_heartbeats
from voice_ops.rollout.follow import POLL_INTERVAL_S
from voice_ops.rollout.plan import find_missing_artifacts, find_quota_shortages, plan_rollouts
from voice_ops.rollout.resume import (
    PartTimeLimit,
    RolloutOutcome,
    StoredRollout,
    advance_rollout,
    hash_templates,
    load_rollout,
    record_rollout_start,
)
from voice_ops.synthesis import synthesize, synthesize_templates
from voice_ops.teardown.removal import OperatorAccount
from voice_sandbox.rehearsals.cdk import Cdk, CdkError

CLI_EXIT_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class RolloutPart:
    """Options of a time-limited part of a rollout, which later parts continue.

    Attributes:
        label: Label of a new rollout, or empty to continue the current rollout.
        minutes: Maximum duration of this part, less than the lifetime of the credentials.
    """

    label: str
    minutes: float


def run_part_on_aws(regions: Sequence[Deployment], part: RolloutPart) -> None:
    """Start or continue a rollout, region by region.

    Raises:
        typer.Exit: The rollout is still in progress, was rolled back, or failed.
    """
    try:
        accounts = [Account(each, synthesize_templates(each), create_deployment_session(each)) for each in regions]
        current_rollouts = [load_rollout(account) for account in accounts]
        _validate_part(accounts, current_rollouts, part)
        if part.label:
            for account in accounts:
                if short := "\n".join(
                    [*find_quota_shortages(result := plan_rollouts(account)), *find_missing_artifacts(account, result)]
                ):
                    raise create_exit(short, FAILED)
            now = datetime.now(UTC)
            current_rollouts = [record_rollout_start(account, part.label, now) for account in accounts]
        deadline_s = time.monotonic() + part.minutes * 60
        clock = PartTimeLimit(time.monotonic, lambda: time.sleep(POLL_INTERVAL_S), deadline_s)
        for account, rollout in zip(accounts, current_rollouts, strict=True):
            outcome = _advance_region(account, rollout, clock) if rollout else RolloutOutcome.DONE
            if outcome is RolloutOutcome.UNFINISHED:
                raise typer.Exit(IN_PROGRESS)
            if outcome is RolloutOutcome.ROLLED_BACK:
                raise create_exit(f"{account.region}: the rollout was rolled back", FAILED)
    except AWS_ERRORS as error:
        raise report_aws_error(error) from None
    except CdkError as error:
        raise create_exit(str(error), FAILED) from None


def find_current_rollout_label(regions: Sequence[Deployment]) -> str:
    """Return the label of the current rollout, or an empty string if there is none."""
    try:
        accounts = [Account(each, {}, create_deployment_session(each)) for each in regions]
        labels = [
            rollout.label
            for account in accounts
            if (rollout := load_rollout(account)) and not rollout.rolled_back_region
        ]
    except AWS_ERRORS as error:
        raise report_aws_error(error) from None
    return next(iter(labels), "")


def _validate_part(accounts: list[Account], current_rollouts: list[StoredRollout | None], part: RolloutPart) -> None:
    """Exit if the part conflicts with the current rollout. Print a note if there is no rollout to continue."""
    rolled_back = next((each for each in current_rollouts if each and each.rolled_back_region), None)
    if rolled_back and not part.label:
        raise create_exit(
            f"the rollout {rolled_back.label} was rolled back: {rolled_back.rolled_back_region}; "
            "start another with --start",
            FAILED,
        )
    for account, each in zip(accounts, current_rollouts, strict=True):
        if each and not rolled_back and each.templates != hash_templates(account.templates):
            raise create_exit(
                f"{account.region}: the rollout {each.label}, started at {each.at}, is in progress, and this file "
                "makes other templates: continue from its revision with --resume, or cancel it with "
                "`aws cloudformation cancel-update-stack` and resume once more, which records that it was rolled back",
                INVALID_INPUT,
            )
    if not part.label and not any(current_rollouts):
        out.print("no rollout is in progress")


def _advance_region(account: Account, rollout: StoredRollout, clock: PartTimeLimit) -> RolloutOutcome:
    with TemporaryDirectory(prefix="voice-rollout-") as home, print_heartbeats(err, "rollout"):
        cdk = Cdk(OperatorAccount(account.caller_identity["Account"], account.region), account.deployment, Path(home))
        cdk.use_assembly(Path(synthesize(account.deployment, Path(home) / "cdk.out").directory))
        report = partial(err.print, soft_wrap=True)
        return advance_rollout(account, rollout, partial(BackgroundDeploy, cdk), clock, report)


class BackgroundDeploy:
    """Deploys one stack with the CDK CLI, in another thread."""

    def __init__(self, cdk: Cdk, stack: str) -> None:
        self._cdk, self._done = cdk, Future[None]()
        threading.Thread(target=self._run, args=[stack], daemon=True).start()

    def _run(self, stack: str) -> None:
        try:
            self._cdk.deploy_only(stack)
            self._done.set_result(None)
        except BaseException as error:  # noqa: BLE001  passed to the thread that waits
            self._done.set_exception(error)

    def has_ended(self) -> bool:
        """Return True if the deploy has ended.

        Raises:
            CdkError: The deploy failed.
        """
        if self._done.done():
            self._done.result()
            return True
        return False

    def stop_cli(self) -> None:
        """Stop the CLI, while CloudFormation continues."""
        self._cdk.stop_command()
        # Read the output to its end before the CLI's folder is deleted.
        wait([self._done], CLI_EXIT_TIMEOUT_S)
