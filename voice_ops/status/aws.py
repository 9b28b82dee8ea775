"""Compares an AWS section with its account, in all topics of `voice status`."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial

from voice_blueprint.file.model.deployment import Deployment
from voice_ops.aws.account import AREA, Account, sign_in
from voice_ops.aws.refusals import ERRORS, explain
from voice_ops.preflight.aws import fleets as catalogue
from voice_ops.preflight.questions import run_checks, skipped_rows
from voice_ops.preflight.report import Row
from voice_ops.status import account as whole
from voice_ops.status import fleets
from voice_ops.synthesis import templates


def deployment_rows(deployment: Deployment) -> Iterator[Row]:
    """Compare the account of a deployment with the file. Missing credentials become a result."""
    try:
        session = sign_in(deployment)
    except ERRORS as error:
        refusal = explain(error)
        yield from skipped_rows(AREA, ["everything"], refusal.result, refusal.remedy)
    else:
        yield from aws_rows(Account(deployment, templates(deployment), session))


def aws_rows(account: Account) -> Iterator[Row]:
    """Compare an account with the file in all topics. Errors of AWS become results."""
    topics: dict[str, Callable[[Account], Iterable[Row]]] = {
        "stacks": whole.stack_rows,
        "deletion protection": whole.protection_rows,
        "hosts and tasks": fleets.fleet_rows,
        "calls that these support": fleets.calls_row,
        "alarms": whole.alarm_rows,
        "images": fleets.image_rows,
        "drift of the stacks": whole.drift_rows,
        "instance types against the catalogue": catalogue.drift_rows,
        "cost so far this month": whole.cost_rows,
    }
    questions = {topic: partial(rows, account) for topic, rows in topics.items()}
    yield from run_checks(AREA, questions, ERRORS, explain)
