"""The CDK app: one deployment file in, a cloud assembly out."""

import sys
from typing import NoReturn

from aws_cdk import Annotations, App

import blueprint
from blueprint import checks
from blueprint.checks import Finding, Level
from blueprint.file.model.deployment import Deployment
from stacks.aws import build
from voice_constructs.aws.acknowledge import acknowledged

DEPLOYMENT_CONTEXT = "deployment"
VALIDATE_CONTEXT = "validate"
REFUSED = 2
"""Exit code for a deployment file that cannot be deployed."""


def make_app(deployment: Deployment, *, validate: bool = False, outdir: str | None = None) -> App:
    """Make the CDK app of a deployment that has passed its checks.

    Args:
        deployment: The deployment.
        validate: Add CloudFormation's schema validation and cdk-nag's AwsSolutions rules to synth; they take
            several times as long as synth itself.
        outdir: Where the cloud assembly goes; the CDK CLI sets it through the environment.
    """
    app = App(
        outdir=outdir,
        builtin_cloud_formation_validation=validate,
        analytics_reporting=False,
        # Describes the app to consoles, and costs a walk over it; nothing here reads it.
        tree_metadata=False,
    )
    first, *_ = [stack for regional in deployment.in_regions() for stack in build(app, regional)]
    meant = acknowledged()
    if validate:
        # Imported here: the rules' module costs as much as a synth.
        from aws_cdk import Validations  # noqa: PLC0415
        from cdk_nag import AwsSolutionsChecks  # noqa: PLC0415

        Validations.of(app).add_plugins(AwsSolutionsChecks(app))
        for construct, acknowledgment in meant:
            Validations.of(construct).acknowledge(acknowledgment)
    annotations = Annotations.of(first)
    for finding in checks.run(deployment):
        _annotate(annotations, finding)
    return app


def _annotate(annotations: Annotations, finding: Finding) -> None:
    text = f"{finding.violation.message}. {finding.violation.remedy}"
    if finding.check.level is Level.INFO:
        annotations.add_info_v2(finding.check.id, text)
    elif finding.accepted_because is None:
        annotations.add_warning_v2(finding.check.id, text)


def synthesize() -> None:
    """Synthesize the deployment file that the CDK context names; ``-c validate=true`` validates it too.

    Raises:
        SystemExit: With code 2 when the file or a check refuses; the reasons are on stderr.
    """
    context = App().node
    path = context.try_get_context(DEPLOYMENT_CONTEXT)
    if path is None:
        _refuse(["no deployment file: run `cdk synth -c deployment=deployments/<name>.yaml`"])
    try:
        deployment = blueprint.load(path)
    except blueprint.DeploymentFileError as error:
        _refuse([str(problem) for problem in error.problems])
    if deployment.aws_half is None:
        _refuse([f"{path}: has no section `aws`; deploy its section `azure` with pulumi (stacks/azure)"])
    reasons = checks.refusals(deployment)
    if reasons:
        _refuse(reasons)
    make_app(deployment, validate=context.try_get_context(VALIDATE_CONTEXT) == "true").synth()


def _refuse(reasons: list[str]) -> NoReturn:
    sys.stderr.writelines(f"{reason}\n" for reason in reasons)
    raise SystemExit(REFUSED)
