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
        protected: Whether stacks and load balancers refuse deletion.
    """

    keys: RemovalPolicy
    store: RemovalPolicy
    logs: RemovalPolicy
    protected: bool


_BY_ENVIRONMENT = {
    Environment.SANDBOX: Retention(
        keys=RemovalPolicy.DESTROY, store=RemovalPolicy.DESTROY, logs=RemovalPolicy.DESTROY, protected=False
    ),
    Environment.STAGING: Retention(
        keys=RemovalPolicy.RETAIN, store=RemovalPolicy.SNAPSHOT, logs=RemovalPolicy.DESTROY, protected=False
    ),
    Environment.PRODUCTION: Retention(
        keys=RemovalPolicy.RETAIN, store=RemovalPolicy.SNAPSHOT, logs=RemovalPolicy.RETAIN, protected=True
    ),
}


def retention(environment: Environment) -> Retention:
    """Return the deletion behaviour of an environment."""
    return _BY_ENVIRONMENT[environment]
