"""What AWS says to a deployment file, asked through boto3 with the operator's credentials."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from blueprint.file.model.deployment import Deployment
from ops.aws.account import AREA, Account, sign_in
from ops.aws.refusals import ERRORS, explain
from ops.preflight.aws import fleets, identity, quotas, setup
from ops.preflight.questions import ask_all, not_asked
from ops.preflight.quota import QUOTAS
from ops.preflight.report import Row

TOPICS: dict[str, Callable[[Account], Iterable[Row]]] = {
    "identity": identity.identity_rows,
    "CDK bootstrap": setup.bootstrap_rows,
    "permissions of the deploy": identity.permission_rows,
    f"service {QUOTAS}": quotas.quota_rows,
    "instance types in each zone": fleets.offering_rows,
    "instance types against the catalogue": fleets.drift_rows,
    "machine images": fleets.image_rows,
    "artifacts": fleets.artifact_rows,
    "RunInstances dry run": fleets.dry_run_rows,
    "domain and certificate": setup.domain_rows,
    "secrets that must exist": setup.secret_rows,
}
"""Everything that is asked, in this order."""


def examine(deployment: Deployment, templates: dict[str, dict[str, Any]]) -> Iterator[Row]:
    """Ask AWS everything that the deploy depends on, or say what was not asked.

    Args:
        deployment: A deployment that has passed its checks.
        templates: Its CloudFormation templates by stack name.
    """
    try:
        account = Account(deployment, templates, sign_in(deployment))
    except ERRORS as error:
        refusal = explain(error)
        yield from not_asked(AREA, TOPICS, refusal.found, refusal.remedy)
        return
    questions = {about: partial(ask, account) for about, ask in TOPICS.items()}
    yield from ask_all(AREA, questions, ERRORS, explain)
