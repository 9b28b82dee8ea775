"""ECS: services that store all settings and are immediately stable, and lists without deleted resources."""

from __future__ import annotations

from moto.core.responses import ActionResult
from moto.ecs import urls
from moto.ecs.models import Service
from moto.ecs.responses import EC2ContainerServiceResponse

from voice_sandbox.aws.patches.base import get_action_result, replace_response_class, store_parameters

# Fields that moto's services do not store.
_STORED_FIELDS = (
    "availabilityZoneRebalancing",
    "capacityProviderStrategy",
    "deploymentConfiguration",
    "enableECSManagedTags",
    "enableExecuteCommand",
    "healthCheckGracePeriodSeconds",
    "loadBalancers",
    "networkConfiguration",
    "placementConstraints",
    "placementStrategy",
    "platformVersion",
    "serviceRegistries",
)


class PatchedEcs(EC2ContainerServiceResponse):
    """moto's ECS API, extended with the operations that moto lacks."""

    def create_service(self) -> ActionResult:
        answer = super().create_service()
        self._mark_stable(get_action_result(answer)["service"])
        return answer

    def update_service(self) -> ActionResult:
        answer = super().update_service()
        self._mark_stable(get_action_result(answer)["service"])
        return answer

    def list_clusters(self) -> ActionResult:
        """Handle ListClusters without deleted clusters, which only DescribeClusters still returns."""
        clusters = self.ecs_backend.clusters.values()
        return ActionResult({"clusterArns": [item.arn for item in clusters if item.status != "INACTIVE"]})

    def list_services(self) -> ActionResult:
        """Handle ListServices without deleted services."""
        answer = super().list_services()
        inactive = {item.arn for item in self.ecs_backend.services.values() if item.status == "INACTIVE"}
        get_action_result(answer)["serviceArns"] = [
            arn for arn in get_action_result(answer)["serviceArns"] if arn not in inactive
        ]
        return answer

    def _mark_stable(self, service: Service) -> None:
        """Store the request's settings, and count all desired tasks as running, although none runs."""
        store_parameters(service, self._get_params(), *_STORED_FIELDS)
        service.running_count, service.pending_count = service.desired_count, 0
        for deployment in service.deployments:
            deployment.update(
                desiredCount=service.desired_count,
                runningCount=service.desired_count,
                pendingCount=0,
                rolloutState="COMPLETED",
                rolloutStateReason=f"ECS deployment {deployment['id']} completed.",
            )


def install() -> None:
    """Install the patch."""
    replace_response_class(urls, EC2ContainerServiceResponse, PatchedEcs)
