"""Preflight checks for AWS, which use boto3 with the operator's credentials."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from voice_blueprint.file.model.deployment import Deployment
from voice_ops.aws.account import REPORT_AREA, Account, create_deployment_session
from voice_ops.aws.refusals import AWS_ERRORS, explain_error
from voice_ops.preflight.aws import fleets, identity, machines, quotas, registry, setup
from voice_ops.preflight.questions import report_skipped_checks, run_checks
from voice_ops.preflight.quota import QUOTA_TOPIC_SUFFIX
from voice_ops.preflight.report import CheckResult

CHECKS_BY_TOPIC: dict[str, Callable[[Account], Iterable[CheckResult]]] = {
    "identity": identity.check_identity,
    "CDK bootstrap": setup.check_bootstrap,
    "permissions of the deploy": identity.check_permissions,
    f"service {QUOTA_TOPIC_SUFFIX}": quotas.compare_quotas,
    "instance types in each zone": fleets.check_offerings,
    "instance types against the catalogue": fleets.check_catalogue_drift,
    "container images": registry.check_registry_images,
    "machine images": machines.check_machine_images,
    "capacity reservations": machines.check_reservations,
    "artifacts": fleets.check_artifacts,
    "RunInstances dry run": fleets.check_host_launches,
    "domain and certificate": setup.check_domain,
    "version of the state store": machines.check_state_store_version,
    "secrets that must exist": setup.check_secrets,
}
"""All checks by topic, in the order in which they run."""


def run_preflight(deployment: Deployment, templates: dict[str, dict[str, Any]]) -> Iterator[CheckResult]:
    """Run all preflight checks for AWS, and list those that were skipped.

    Args:
        deployment: A deployment that has passed its checks.
        templates: CloudFormation templates of the deployment by stack name.
    """
    try:
        account = Account(deployment, templates, create_deployment_session(deployment))
    except AWS_ERRORS as error:
        refusal = explain_error(error)
        yield from report_skipped_checks(REPORT_AREA, CHECKS_BY_TOPIC, refusal.result, refusal.remedy)
        return
    questions = {topic: partial(rows_for, account) for topic, rows_for in CHECKS_BY_TOPIC.items()}
    yield from run_checks(REPORT_AREA, questions, AWS_ERRORS, explain_error)
