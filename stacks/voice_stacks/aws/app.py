"""The CDK app, which synthesizes a cloud assembly from a deployment file."""

import sys
from typing import NoReturn

from aws_cdk import Annotations, App

import voice_blueprint
from voice_blueprint import checks
from voice_blueprint.checks import Finding, Severity
from voice_blueprint.file.model.deployment import Deployment
from voice_constructs.aws.acknowledge import pop_acknowledgments
from voice_stacks.aws import build_stacks

DEPLOYMENT_CONTEXT_KEY = "deployment"
VALIDATE_CONTEXT_KEY = "validate"
INVALID_DEPLOYMENT_EXIT_CODE = 2
"""Exit code for a deployment file that cannot be deployed."""


def create_app(deployment: Deployment, *, validate: bool = False, outdir: str | None = None) -> App:
    """Create the CDK app for a deployment that has passed its checks.

    Args:
        deployment: The deployment.
        validate: Whether the synth also runs CloudFormation's schema validation and cdk-nag's AwsSolutions rules, which
            take several times as long as the synth itself.
        outdir: Directory of the cloud assembly; the CDK CLI sets it in the environment.
    """
    app = App(
        outdir=outdir,
        builtin_cloud_formation_validation=validate,
        analytics_reporting=False,
        # The tree metadata, which consoles read, requires a traversal of the app and is not used here.
        tree_metadata=False,
        # jsii's stack traces only point into the jsii kernel. If cdk.json contained this key, the CLI would print a
        # warning for each command.
        context={"aws:cdk:disable-creation-stack-traces": True},
    )
    first, *_ = [stack for regional in deployment.split_by_region() for stack in build_stacks(app, regional)]
    acknowledgments = pop_acknowledgments()
    if validate:
        # Imported here, since importing the rules takes as long as a synth.
        from aws_cdk import Validations  # noqa: PLC0415
        from cdk_nag import AwsSolutionsChecks  # noqa: PLC0415

        Validations.of(app).add_plugins(AwsSolutionsChecks(app))
        for construct, acknowledgment in acknowledgments:
            Validations.of(construct).acknowledge(acknowledgment)
    annotations = Annotations.of(first)
    for finding in checks.run_checks(deployment):
        _add_annotation(annotations, finding)
    return app


def _add_annotation(annotations: Annotations, finding: Finding) -> None:
    text = f"{finding.violation.message}. {finding.violation.remedy}"
    if finding.check.level is Severity.INFO:
        annotations.add_info_v2(finding.check.id, text)
    elif finding.acceptance_reason is None:
        annotations.add_warning_v2(finding.check.id, text)


def synthesize() -> None:
    """Synthesize the deployment file that the CDK context specifies. With ``-c validate=true``, also validate it.

    Raises:
        SystemExit: The file is invalid or a check fails. The exit status is 2, and the reasons are written to stderr.
    """
    context = App().node
    path = context.try_get_context(DEPLOYMENT_CONTEXT_KEY)
    if path is None:
        _exit_with_reasons(["no deployment file: run `cdk synth -c deployment=deployments/<name>.yaml`"])
    try:
        deployment = voice_blueprint.load(path)
    except voice_blueprint.DeploymentFileError as error:
        _exit_with_reasons([str(problem) for problem in error.problems])
    if deployment.aws_section is None:
        _exit_with_reasons(
            [f"{path}: has no section `aws`; deploy its section `azure` with pulumi (stacks/voice_stacks/azure)"]
        )
    reasons = checks.format_blocking_findings(deployment)
    if reasons:
        _exit_with_reasons(reasons)
    create_app(deployment, validate=context.try_get_context(VALIDATE_CONTEXT_KEY) == "true").synth()


def _exit_with_reasons(reasons: list[str]) -> NoReturn:
    sys.stderr.writelines(f"{reason}\n" for reason in reasons)
    raise SystemExit(INVALID_DEPLOYMENT_EXIT_CODE)
