"""What survives a teardown, by environment."""

from dataclasses import dataclass

import pulumi

from blueprint.file.model.deployment import Environment


@dataclass(frozen=True)
class Retention:
    """Deletion behaviour of one environment.

    Attributes:
        keep: Whether registry, vault, logs and metrics, and the resource group around them, stay in Azure when
            Pulumi forgets them.
        protected: Whether Pulumi refuses to delete them at all until someone lifts the protection.
    """

    keep: bool
    protected: bool

    def data(self, parent: pulumi.Resource) -> pulumi.ResourceOptions:
        """Return the options of a resource that holds data."""
        return pulumi.ResourceOptions(parent=parent, protect=self.protected, retain_on_delete=self.keep)


_BY_ENVIRONMENT = {
    Environment.SANDBOX: Retention(keep=False, protected=False),
    Environment.STAGING: Retention(keep=True, protected=False),
    Environment.PRODUCTION: Retention(keep=True, protected=True),
}


def retention(environment: Environment) -> Retention:
    """Return the deletion behaviour of an environment."""
    return _BY_ENVIRONMENT[environment]
