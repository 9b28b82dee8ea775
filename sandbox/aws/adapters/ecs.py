"""ECS: clusters, task definitions and services. moto runs no tasks; a service reports its desired count as running."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sandbox.aws.adapters.base import Adapter, Properties, only, without


class Cluster(Adapter):
    """A cluster."""

    resource_type = "AWS::ECS::Cluster"
    service = "ecs"
    name = "ClusterName"
    name_limit = 255

    def create(self, properties: Properties) -> str:
        """Create the cluster."""
        self.call("create_cluster", self._renamed(properties))
        return str(properties["ClusterName"])

    def update(self, new: Properties) -> None:
        """Change settings and configuration, then capacity providers."""
        changed = without(
            self._renamed(new), "ClusterName", "CapacityProviders", "DefaultCapacityProviderStrategy", "Tags"
        )
        if changed:
            self.call("update_cluster", changed, cluster=self.id)
        providers = ("CapacityProviders", "DefaultCapacityProviderStrategy")
        if only(self.properties, *providers) != only(new, *providers):
            wanted = {name: new.get(name, []) for name in providers}
            self.call("put_cluster_capacity_providers", wanted, cluster=self.id)

    def delete(self) -> None:
        """Delete the cluster."""
        self.call("delete_cluster", cluster=self.id)

    def attributes(self) -> Mapping[str, Any]:
        """Return the ARN."""
        return {"Arn": self.call("describe_clusters", clusters=[self.id])["clusters"][0]["clusterArn"]}

    @staticmethod
    def _renamed(properties: Properties) -> Properties:
        return {"settings" if key == "ClusterSettings" else key: value for key, value in properties.items()}


class ClusterCapacityProviders(Adapter):
    """The capacity providers of a cluster."""

    resource_type = "AWS::ECS::ClusterCapacityProviderAssociations"
    service = "ecs"
    replaced_by = frozenset({"Cluster"})

    def create(self, properties: Properties) -> str:
        """Set the providers."""
        self.update(properties)
        return str(properties["Cluster"])

    def update(self, new: Properties) -> None:
        """Set the providers again."""
        self.call("put_cluster_capacity_providers", new)

    def delete(self) -> None:
        """Take the providers from the cluster."""
        self.call(
            "put_cluster_capacity_providers",
            cluster=self.properties["Cluster"],
            capacityProviders=[],
            defaultCapacityProviderStrategy=[],
        )


class TaskDefinition(Adapter):
    """A task definition; each change is a new revision."""

    resource_type = "AWS::ECS::TaskDefinition"
    service = "ecs"

    def create(self, properties: Properties) -> str:
        """Register the definition; its id is its ARN."""
        family = {"family": self.generate_name(self.scope)} if "Family" not in properties else {}
        made = self.call("register_task_definition", properties, family)
        return str(made["taskDefinition"]["taskDefinitionArn"])

    def delete(self) -> None:
        """Deregister the definition, which stays readable as INACTIVE, as in AWS."""
        self.call("deregister_task_definition", taskDefinition=self.id)

    def attributes(self) -> Mapping[str, Any]:
        """Return the ARN."""
        return {"TaskDefinitionArn": self.id}


class Service(Adapter):
    """A service."""

    resource_type = "AWS::ECS::Service"
    service = "ecs"
    name = "ServiceName"
    name_limit = 255
    replaced_by = frozenset({"Cluster", "LaunchType", "SchedulingStrategy", "Role"})

    def create(self, properties: Properties) -> str:
        """Create the service; its id is its ARN."""
        return str(self.call("create_service", properties)["service"]["serviceArn"])

    def update(self, new: Properties) -> None:
        """Change the service."""
        changed = without(new, "Tags", "ServiceName", "EnableECSManagedTags", *self.replaced_by)
        self.call("update_service", changed, self._place(new), service=self.id)

    def delete(self) -> None:
        """Delete the service with its tasks."""
        self.call("delete_service", self._place(self.properties), service=self.id, force=True)

    def attributes(self) -> Mapping[str, Any]:
        """Return ARN and name."""
        return {"ServiceArn": self.id, "Name": self.properties["ServiceName"]}

    @staticmethod
    def _place(properties: Properties) -> dict[str, Any]:
        return {"cluster": properties["Cluster"]} if "Cluster" in properties else {}
