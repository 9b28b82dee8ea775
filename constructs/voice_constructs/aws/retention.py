"""Retention of resources when a stack is deleted, by environment."""

from dataclasses import dataclass

from aws_cdk import RemovalPolicy

from voice_blueprint.file.model.deployment import Environment


@dataclass(frozen=True)
class Retention:
    """Retention of an environment's resources.

    Attributes:
        keys: Removal policy of keys and image repositories; a snapshot is useless without its key.
        store: Removal policy of the state store.
        logs: Removal policy of log groups.
    """

    keys: RemovalPolicy
    store: RemovalPolicy
    logs: RemovalPolicy


RETAIN = RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE
"""CloudFormation only deletes such a resource after a failed creation, so that the next attempt succeeds."""

_RETENTION_BY_ENVIRONMENT = {
    Environment.SANDBOX: Retention(keys=RemovalPolicy.DESTROY, store=RemovalPolicy.DESTROY, logs=RemovalPolicy.DESTROY),
    Environment.STAGING: Retention(keys=RETAIN, store=RemovalPolicy.SNAPSHOT, logs=RemovalPolicy.DESTROY),
    Environment.PRODUCTION: Retention(keys=RETAIN, store=RemovalPolicy.SNAPSHOT, logs=RETAIN),
}


def get_retention(environment: Environment) -> Retention:
    """Return the retention of an environment's resources."""
    return _RETENTION_BY_ENVIRONMENT[environment]
