"""What a deployment is: the typed model, catalogues, checks and the contract. Imports no cloud SDK."""

from blueprint.file.errors import DeploymentFileError, Problem
from blueprint.file.loading import load
from blueprint.file.model.deployment import Deployment

__all__ = ["Deployment", "DeploymentFileError", "Problem", "load"]
