"""`voice status`: what runs of a deployment, against its file."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial

import typer

from blueprint.file.model.deployment import Deployment
from ops.aws.account import AREA, Account, sign_in
from ops.aws.refusals import ERRORS, explain
from ops.exits import FAILED
from ops.findings import load_region
from ops.options import DeploymentFile, Json, Region
from ops.output import err, out, print_json
from ops.preflight.aws import fleets as catalogue
from ops.preflight.questions import ask_all, not_asked
from ops.preflight.report import Row, Status, print_report, summary
from ops.progress import Progress
from ops.status import account as whole
from ops.status import fleets
from ops.synthesis import templates

AZURE = Row(
    "Azure",
    "cluster and services",
    Status.NOT_ASKED,
    "voice status reads AWS only",
    remedy="see the Grafana of the deployment, or `kubectl get pods --namespace voice`",
)


def status(file: DeploymentFile, region: Region = None, as_json: Json = False) -> None:
    """Show fleets, alarms, drift, image versions, protection and cost so far of a deployed file.

    Reads its account with credentials that may read; what one may not read is said. Changes nothing but
    CloudFormation's record of the drift, and Cost Explorer charges 0.01 USD a call. Exits with 1 when something
    differs from the file, is in alarm, or when nothing could be asked.

    Example: voice status deployments/production-us-east-1.yaml
    """
    deployment = load_region(file, region)
    with Progress(err).phase("ask AWS"):
        rows = list(_rows(deployment))
    if as_json:
        print_json({"answers": [row.as_dict() for row in rows]}, deployment.name)
    else:
        print_report(out, rows)
        out.print(summary(rows))
    if not healthy(rows):
        raise typer.Exit(FAILED)


def healthy(rows: list[Row]) -> bool:
    """Whether something was answered and nothing is wrong; an answer that a cloud refused is not a fault."""
    wrong = {Status.WARNING, Status.BLOCKS}
    return any(row.status is Status.FINE for row in rows) and not any(row.status in wrong for row in rows)


def aws_rows(account: Account) -> Iterator[Row]:
    """Ask the account everything; what it refuses becomes an answer."""
    topics: dict[str, Callable[[Account], Iterable[Row]]] = {
        "stacks": whole.stack_rows,
        "deletion protection": whole.protection_rows,
        "hosts and tasks": fleets.fleet_rows,
        "calls that these carry": fleets.calls_row,
        "alarms": whole.alarm_rows,
        "images": fleets.image_rows,
        "drift of the stacks": whole.drift_rows,
        "instance types against the catalogue": catalogue.drift_rows,
        "cost so far this month": whole.cost_rows,
    }
    questions = {about: partial(rows, account) for about, rows in topics.items()}
    yield from ask_all(AREA, questions, ERRORS, explain)


def _rows(deployment: Deployment) -> Iterator[Row]:
    if deployment.aws_half:
        try:
            session = sign_in(deployment)
        except ERRORS as error:
            refusal = explain(error)
            yield from not_asked(AREA, ["everything"], refusal.found, refusal.remedy)
        else:
            yield from aws_rows(Account(deployment, templates(deployment), session))
    if deployment.azure_half:
        yield AZURE
