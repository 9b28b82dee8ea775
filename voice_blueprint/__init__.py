"""Model of a deployment: typed file, catalogue, checks and contract. Imports no cloud SDK."""

from voice_blueprint.file.errors import DeploymentFileError, Problem
from voice_blueprint.file.loading import load
from voice_blueprint.file.model.deployment import Deployment

__all__ = ["Deployment", "DeploymentFileError", "Problem", "load"]
