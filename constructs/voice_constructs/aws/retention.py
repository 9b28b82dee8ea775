"""What survives the deletion of a stack, by environment."""

from dataclasses import dataclass

from aws_cdk import RemovalPolicy

from blueprint.file.model.deployment import Environment


@dataclass(frozen=True)
class Retention:
    """Deletion behaviour of one environment.

    Attributes:
        keys: For keys and image repositories; a snapshot is worth nothing without its key.
        store: For the state store.
        logs: For log groups.
    """

    keys: RemovalPolicy
    store: RemovalPolicy
    logs: RemovalPolicy


KEPT = RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE
"""Kept but for a create that fails: what it left behind would be in the way of the next try."""

_BY_ENVIRONMENT = {
    Environment.SANDBOX: Retention(keys=RemovalPolicy.DESTROY, store=RemovalPolicy.DESTROY, logs=RemovalPolicy.DESTROY),
    Environment.STAGING: Retention(keys=KEPT, store=RemovalPolicy.SNAPSHOT, logs=RemovalPolicy.DESTROY),
    Environment.PRODUCTION: Retention(keys=KEPT, store=RemovalPolicy.SNAPSHOT, logs=KEPT),
}


def retention(environment: Environment) -> Retention:
    """Return the deletion behaviour of an environment."""
    return _BY_ENVIRONMENT[environment]
