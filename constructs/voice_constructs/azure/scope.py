"""Resource groups, names and tags for a deployment's Azure resources."""

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
from pulumi_azure_native import resources

from voice_blueprint.azure import names as azure_names
from voice_blueprint.file.model.deployment import Deployment, Environment


@dataclass(frozen=True)
class Retention:
    """Retention of one environment's resources after a teardown.

    Attributes:
        is_retained: Whether registry, vault, logs, metrics and their resource group remain in Azure when Pulumi deletes
            them from its state.
        is_protected: Whether Pulumi refuses to delete or replace these resources, the network, the cluster and the
            pools until an operator removes the protection.
    """

    is_retained: bool
    is_protected: bool

    def create_data_options(self, parent: pulumi.Resource) -> pulumi.ResourceOptions:
        """Return the options of a resource that stores data."""
        return pulumi.ResourceOptions(parent=parent, protect=self.is_protected, retain_on_delete=self.is_retained)

    def create_serving_options(self, parent: pulumi.Resource) -> pulumi.ResourceOptions:
        """Return the options of a resource that callers depend on."""
        return pulumi.ResourceOptions(parent=parent, protect=self.is_protected)


RETENTION_BY_ENVIRONMENT = {
    Environment.SANDBOX: Retention(is_retained=False, is_protected=False),
    Environment.STAGING: Retention(is_retained=True, is_protected=False),
    Environment.PRODUCTION: Retention(is_retained=True, is_protected=True),
}


@dataclass(frozen=True)
class Scope:
    """Context that every component requires to create resources.

    Attributes:
        deployment: The deployment.
        subscription: Id of the subscription.
        tenant: Id of its Microsoft Entra tenant.
        group: Name of the resource group.
        group_id: Id of the resource group.
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
        """Retention of resources after a teardown."""
        return RETENTION_BY_ENVIRONMENT[self.deployment.environment]

    @property
    def tags(self) -> Mapping[str, str]:
        """Tags for every resource that supports tags. They contain no colons, which Azure DNS rejects."""
        return build_tags(self.deployment)

    def build_name(self, role: str) -> str:
        """Return the name of a resource whose name is not globally unique."""
        return azure_names.build_resource_name(self.deployment, role)


def build_tags(deployment: Deployment) -> dict[str, str]:
    """Return the tags of a deployment's resources."""
    return {"deployment": deployment.name, "environment": deployment.environment, "managed-by": "pulumi"}


class DeploymentGroup(pulumi.ComponentResource):
    """The resource group of a deployment.

    Attributes:
        group: The resource group.
        scope: Context for other components.
    """

    def __init__(self, name: str, *, deployment: Deployment, subscription: str, tenant: str) -> None:
        super().__init__("voice:azure:DeploymentGroup", name)
        self.group = resources.ResourceGroup(
            name,
            resource_group_name=azure_names.build_resource_group_name(deployment),
            location=deployment.azure.location,
            tags=build_tags(deployment),
            opts=RETENTION_BY_ENVIRONMENT[deployment.environment].create_data_options(parent=self),
        )
        self.scope = Scope(deployment, subscription, tenant, self.group.name, self.group.id)
        self.register_outputs({})
