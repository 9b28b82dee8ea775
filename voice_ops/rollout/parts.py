"""Parts of a rollout on AWS, which later commands continue."""

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
from voice_ops.aws.account import Account, sign_in
from voice_ops.aws.refusals import ERRORS, failed
from voice_ops.exits import CONTINUES, FAILED, REFUSED
from voice_ops.output import err, out, stop
from voice_ops.progress import heartbeat
from voice_ops.rollout.follow import POLL_S
from voice_ops.rollout.plan import rolls, shortages, unprepared
from voice_ops.rollout.resume import Begun, Clock, Outcome, advance, begin, begun, digest
from voice_ops.synthesis import synthesize, templates
from voice_ops.teardown.removal import OperatorsAws
from voice_sandbox.rehearsals.cdk import Cdk, CdkError

LEAVES_WITHIN_S = 30.0


@dataclass(frozen=True)
class Part:
    """A time-limited part of a rollout, which later parts continue.

    Attributes:
        label: Label of a new rollout; empty to continue one.
        minutes: Maximum duration of this part, less than the lifetime of the credentials.
    """

    label: str
    minutes: float


def roll_part_on_aws(regions: Sequence[Deployment], part: Part) -> None:
    """Start or continue a rollout, region by region; exit with its state."""
    try:
        accounts = [Account(each, templates(each), sign_in(each)) for each in regions]
        under_way = [begun(account) for account in accounts]
        _check_part(accounts, under_way, part)
        if part.label:
            for account in accounts:
                if short := "\n".join([*shortages(result := rolls(account)), *unprepared(account, result)]):
                    raise stop(short, FAILED)
            now = datetime.now(UTC)
            under_way = [begin(account, part.label, now) for account in accounts]
        until_s = time.monotonic() + part.minutes * 60
        clock = Clock(time.monotonic, lambda: time.sleep(POLL_S), until_s)
        for account, rollout in zip(accounts, under_way, strict=True):
            outcome = _advance(account, rollout, clock) if rollout else Outcome.DONE
            if outcome is Outcome.CONTINUES:
                raise typer.Exit(CONTINUES)
            if outcome is Outcome.TAKEN_BACK:
                raise stop(f"{account.region}: the rollout was taken back", FAILED)
    except ERRORS as error:
        raise failed(error) from None
    except CdkError as error:
        raise stop(str(error), FAILED) from None


def label_on_aws(regions: Sequence[Deployment]) -> str:
    """Return the label of the current rollout; empty if there is none."""
    try:
        accounts = [Account(each, {}, sign_in(each)) for each in regions]
        labels = [
            rollout.label for account in accounts if (rollout := begun(account)) and not rollout.rolled_back_region
        ]
    except ERRORS as error:
        raise failed(error) from None
    return next(iter(labels), "")


def _check_part(accounts: list[Account], under_way: list[Begun | None], part: Part) -> None:
    """Exit if another rollout is in progress, or if there is none to continue."""
    back = next((each for each in under_way if each and each.rolled_back_region), None)
    if back and not part.label:
        raise stop(
            f"the rollout {back.label} was taken back: {back.rolled_back_region}; begin another with --start", FAILED
        )
    for account, each in zip(accounts, under_way, strict=True):
        if each and not back and each.templates != digest(account.templates):
            raise stop(
                f"{account.region}: the rollout {each.label}, begun at {each.at}, is under way, and this file makes "
                "other templates: continue from its revision with --resume, or cancel it with "
                "`aws cloudformation cancel-update-stack` and resume once more, which records that it was taken back",
                REFUSED,
            )
    if not part.label and not any(under_way):
        out.print("no rollout is under way")


def _advance(account: Account, rollout: Begun, clock: Clock) -> Outcome:
    with TemporaryDirectory(prefix="voice-rollout-") as home, heartbeat(err, "rollout"):
        cdk = Cdk(OperatorsAws(account.caller["Account"], account.region), account.deployment, Path(home))
        cdk.take(Path(synthesize(account.deployment, Path(home) / "cdk.out").directory))
        tell = partial(err.print, soft_wrap=True)
        return advance(account, rollout, partial(Deploy, cdk), clock, tell)


class Deploy:
    """The deploy of one stack by the CDK CLI."""

    def __init__(self, cdk: Cdk, stack: str) -> None:
        self._cdk, self._done = cdk, Future[None]()
        threading.Thread(target=self._run, args=[stack], daemon=True).start()

    def _run(self, stack: str) -> None:
        try:
            self._cdk.deploy_only(stack)
            self._done.set_result(None)
        except BaseException as error:  # noqa: BLE001  passed to the thread that waits
            self._done.set_exception(error)

    def ended(self) -> bool:
        """Return True if it has ended.

        Raises:
            CdkError: It failed.
        """
        if self._done.done():
            self._done.result()
            return True
        return False

    def leave(self) -> None:
        """Stop the CLI; CloudFormation continues."""
        self._cdk.leave()
        # Its output is read to the end before its folder is deleted.
        wait([self._done], LEAVES_WITHIN_S)
