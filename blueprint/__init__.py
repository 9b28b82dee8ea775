"""What a deployment is: the typed model, catalogues, checks and the contract. Imports no cloud SDK."""

from blueprint.errors import DeploymentFileError, Problem
from blueprint.loading import load
from blueprint.model.deployment import Deployment

__all__ = ["Deployment", "DeploymentFileError", "Problem", "load"]
