"""What both Pulumi programs begin with: the deployment file that their configuration names, checked."""

from pathlib import Path

import pulumi

import blueprint
from blueprint import checks
from blueprint.file.model.deployment import Deployment

DEPLOYMENT_KEY = "deployment"


def configured_deployment(project: Path) -> Deployment:
    """Load the deployment file that ``<project>:deployment`` names and let the checks look at it.

    Warnings of the checks are logged unless the file accepts them.

    Args:
        project: Folder of the project; a relative path in the configuration starts there.

    Raises:
        pulumi.RunError: The file cannot be read, a check refuses it, or it deploys nothing to Azure. Pulumi shows
            the text without a traceback.
    """
    file = (project / pulumi.Config().require(DEPLOYMENT_KEY)).resolve()
    try:
        deployment = blueprint.load(file)
    except blueprint.DeploymentFileError as error:
        raise pulumi.RunError(str(error)) from None
    if deployment.azure_half is None:
        raise pulumi.RunError(f"{file}: deployment {deployment.name} has no section `azure`; there is nothing to make")
    blocking = []
    for finding in checks.run(deployment):
        text = finding.text(deployment.source)
        if finding.blocks:
            blocking.append(text)
        elif finding.accepted_because is None and finding.check.level is not checks.Level.INFO:
            pulumi.log.warn(text)
    if blocking:
        raise pulumi.RunError("\n".join(blocking))
    return deployment
