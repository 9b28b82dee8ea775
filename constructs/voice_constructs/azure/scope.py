"""Where a deployment's Azure resources go and what all of them carry."""

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
from pulumi_azure_native import resources

from blueprint.azure import names as azure_names
from blueprint.file.model.deployment import Deployment, Environment


@dataclass(frozen=True)
class Retention:
    """What survives a teardown of one environment.

    Attributes:
        keep: Whether registry, vault, logs and metrics, and the resource group around them, stay in Azure when
            Pulumi forgets them.
        protected: Whether Pulumi refuses to delete or replace them, network, cluster and pools at all until someone
            lifts the protection.
    """

    keep: bool
    protected: bool

    def data(self, parent: pulumi.Resource) -> pulumi.ResourceOptions:
        """Return the options of a resource that holds data."""
        return pulumi.ResourceOptions(parent=parent, protect=self.protected, retain_on_delete=self.keep)

    def serving(self, parent: pulumi.Resource) -> pulumi.ResourceOptions:
        """Return the options of a resource that callers need at every moment."""
        return pulumi.ResourceOptions(parent=parent, protect=self.protected)


RETENTION = {
    Environment.SANDBOX: Retention(keep=False, protected=False),
    Environment.STAGING: Retention(keep=True, protected=False),
    Environment.PRODUCTION: Retention(keep=True, protected=True),
}


@dataclass(frozen=True)
class Scope:
    """What every component needs to make a resource.

    Attributes:
        deployment: The deployment.
        subscription: Id of the subscription that is deployed to.
        tenant: Id of its Microsoft Entra tenant.
        group: Name of the resource group.
        group_id: Its id.
    """

    deployment: Deployment
    subscription: str
    tenant: str
    group: pulumi.Input[str]
    group_id: pulumi.Input[str]

    @property
    def location(self) -> str:
        """The Azure region."""
        return self.deployment.azure.location

    @property
    def retention(self) -> Retention:
        """What survives a teardown."""
        return RETENTION[self.deployment.environment]

    @property
    def tags(self) -> Mapping[str, str]:
        """Tags of every resource that takes tags. No colons: Azure DNS refuses them."""
        return tags(self.deployment)

    def name(self, role: str) -> str:
        """Return the name of a resource that need not be unique in the world."""
        return azure_names.part(self.deployment, role)


def tags(deployment: Deployment) -> dict[str, str]:
    """Return the tags of a deployment's resources."""
    return {"deployment": deployment.name, "environment": deployment.environment, "managed-by": "pulumi"}


class DeploymentGroup(pulumi.ComponentResource):
    """The resource group of a deployment.

    Attributes:
        group: The resource group.
        scope: What other components are made with.
    """

    def __init__(self, name: str, *, deployment: Deployment, subscription: str, tenant: str) -> None:
        super().__init__("voice:azure:DeploymentGroup", name)
        self.group = resources.ResourceGroup(
            name,
            resource_group_name=azure_names.resource_group(deployment),
            location=deployment.azure.location,
            tags=tags(deployment),
            opts=RETENTION[deployment.environment].data(parent=self),
        )
        self.scope = Scope(deployment, subscription, tenant, self.group.name, self.group.id)
        self.register_outputs({})
