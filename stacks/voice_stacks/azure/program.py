"""Common start-up for both Pulumi programs, which loads and checks the configured deployment file."""

from pathlib import Path

import pulumi

import voice_blueprint
from voice_blueprint import checks
from voice_blueprint.file.model.deployment import Deployment

DEPLOYMENT_KEY = "deployment"


def load_configured_deployment() -> Deployment:
    """Load the deployment file that ``<project>:deployment`` specifies, and run the checks.

    Warnings are logged unless the file accepts them.

    A relative path in the configuration is relative to the project's folder.

    Raises:
        pulumi.RunError: The file is invalid, a check fails, or the file has no Azure section. Pulumi prints the message
            without a traceback.
    """
    file = (Path(pulumi.runtime.settings.get_root_directory()) / pulumi.Config().require(DEPLOYMENT_KEY)).resolve()
    try:
        deployment = voice_blueprint.load(file)
    except voice_blueprint.DeploymentFileError as error:
        raise pulumi.RunError(str(error)) from None
    if deployment.azure_section is None:
        raise pulumi.RunError(
            f"{file}: deployment {deployment.name} has no section `azure`, so there is nothing to deploy"
        )
    blocking = []
    for finding in checks.run_checks(deployment):
        text = finding.format_line(deployment.source)
        if finding.is_blocking:
            blocking.append(text)
        elif finding.acceptance_reason is None and finding.check.level is not checks.Severity.INFO:
            pulumi.log.warn(text)
    if blocking:
        raise pulumi.RunError("\n".join(blocking))
    return deployment
