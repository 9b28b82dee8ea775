"""Compares an AWS section with its account, in all topics of `voice status`."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial

from voice_blueprint.file.model.deployment import Deployment
from voice_ops.aws.account import REPORT_AREA, Account, create_deployment_session
from voice_ops.aws.refusals import AWS_ERRORS, explain_error
from voice_ops.preflight.aws import fleets as catalogue
from voice_ops.preflight.questions import report_skipped_checks, run_checks
from voice_ops.preflight.report import CheckResult
from voice_ops.status import account as whole
from voice_ops.status import fleets
from voice_ops.synthesis import synthesize_templates


def check_deployment_account(deployment: Deployment) -> Iterator[CheckResult]:
    """Compare the account for a deployment with the file. Missing credentials are reported as a result."""
    try:
        session = create_deployment_session(deployment)
    except AWS_ERRORS as error:
        refusal = explain_error(error)
        yield from report_skipped_checks(REPORT_AREA, ["everything"], refusal.result, refusal.remedy)
    else:
        yield from check_account(Account(deployment, synthesize_templates(deployment), session))


def check_account(account: Account) -> Iterator[CheckResult]:
    """Compare an account with the file in all topics. AWS errors are reported as results."""
    topics: dict[str, Callable[[Account], Iterable[CheckResult]]] = {
        "stacks": whole.compare_stacks,
        "deletion protection": whole.compare_deletion_protection,
        "hosts and tasks": fleets.check_fleets,
        "calls that these support": fleets.check_serving_capacity,
        "alarms": whole.check_alarms,
        "images": fleets.compare_image_digests,
        "drift of the stacks": whole.detect_drift,
        "instance types against the catalogue": catalogue.check_catalogue_drift,
        "cost so far this month": whole.report_costs,
    }
    questions = {topic: partial(rows, account) for topic, rows in topics.items()}
    yield from run_checks(REPORT_AREA, questions, AWS_ERRORS, explain_error)
