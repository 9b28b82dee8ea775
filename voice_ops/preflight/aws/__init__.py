"""Preflight checks of AWS, which use boto3 with the operator's credentials."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from voice_blueprint.file.model.deployment import Deployment
from voice_ops.aws.account import AREA, Account, sign_in
from voice_ops.aws.refusals import ERRORS, explain
from voice_ops.preflight.aws import fleets, identity, machines, quotas, registry, setup
from voice_ops.preflight.questions import run_checks, skipped_rows
from voice_ops.preflight.quota import QUOTA_TOPIC_SUFFIX
from voice_ops.preflight.report import Row

CHECKS_BY_TOPIC: dict[str, Callable[[Account], Iterable[Row]]] = {
    "identity": identity.identity_rows,
    "CDK bootstrap": setup.bootstrap_rows,
    "permissions of the deploy": identity.permission_rows,
    f"service {QUOTA_TOPIC_SUFFIX}": quotas.quota_rows,
    "instance types in each zone": fleets.offering_rows,
    "instance types against the catalogue": fleets.drift_rows,
    "container images": registry.registry_rows,
    "machine images": machines.image_rows,
    "capacity reservations": machines.reservation_rows,
    "artifacts": fleets.artifact_rows,
    "RunInstances dry run": fleets.dry_run_rows,
    "domain and certificate": setup.domain_rows,
    "version of the state store": machines.store_rows,
    "secrets that must exist": setup.secret_rows,
}
"""All checks by topic, in the order in which they run."""


def examine(deployment: Deployment, templates: dict[str, dict[str, Any]]) -> Iterator[Row]:
    """Run all preflight checks of AWS, and list those that were skipped.

    Args:
        deployment: A deployment that has passed its checks.
        templates: CloudFormation templates of the deployment by stack name.
    """
    try:
        account = Account(deployment, templates, sign_in(deployment))
    except ERRORS as error:
        refusal = explain(error)
        yield from skipped_rows(AREA, CHECKS_BY_TOPIC, refusal.result, refusal.remedy)
        return
    questions = {topic: partial(rows_for, account) for topic, rows_for in CHECKS_BY_TOPIC.items()}
    yield from run_checks(AREA, questions, ERRORS, explain)
