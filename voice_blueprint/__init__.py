"""Model of a deployment: typed file, catalogue, checks and contract. Imports no cloud SDK."""

from voice_blueprint.file.errors import DeploymentFileError, FileProblem
from voice_blueprint.file.loading import load
from voice_blueprint.file.model.deployment import Deployment

__all__ = ["Deployment", "DeploymentFileError", "FileProblem", "load"]
