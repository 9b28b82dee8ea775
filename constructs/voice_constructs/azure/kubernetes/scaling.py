"""KEDA: how many replicas the engines' own figures ask for."""

from collections.abc import Sequence

import pulumi
import pulumi_kubernetes as k8s

from blueprint.azure.names import ClusterOutput
from blueprint.file.model.base import HostCount
from blueprint.observability.azure_scaling import SCALE_DOWN, SCALE_UP, Pace, Trigger
from voice_constructs.azure.kubernetes.context import TYPE_PREFIX, ClusterContext, metadata

AUTHENTICATION = "prometheus"
POLL_S = 30
FAILED_POLLS = 4
"""Then the fallback holds: the replicas that there are. A metric that fails says nothing about callers."""


class Scaling(pulumi.ComponentResource):
    """How KEDA reads the managed Prometheus: as its workload identity.

    Attributes:
        context: What everything is deployed into.
    """

    def __init__(
        self,
        name: str,
        *,
        context: ClusterContext,
        cluster: pulumi.StackReference,
        opts: pulumi.ResourceOptions,
    ) -> None:
        super().__init__(f"{TYPE_PREFIX}:Scaling", name, None, opts)
        self.context = context
        self._endpoint = cluster.require_output(ClusterOutput.PROMETHEUS_QUERY_ENDPOINT)
        self._authentication = k8s.apiextensions.CustomResource(
            AUTHENTICATION,
            api_version="keda.sh/v1alpha1",
            kind="TriggerAuthentication",
            metadata=metadata(AUTHENTICATION, context.namespace),
            spec={
                "podIdentity": {
                    "provider": "azure-workload",
                    "identityId": cluster.require_output(ClusterOutput.KEDA_CLIENT_ID),
                    "identityTenantId": cluster.require_output(ClusterOutput.TENANT_ID),
                }
            },
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.register_outputs({})

    def scale(
        self,
        deployment: k8s.apps.v1.Deployment,
        name: str,
        *,
        bounds: HostCount,
        triggers: Sequence[Trigger],
        held: bool,
        parent: pulumi.Resource,
    ) -> k8s.apiextensions.CustomResource:
        """Scale a Deployment between bounds; one that is held stays at 0 replicas."""
        return k8s.apiextensions.CustomResource(
            f"{name}-scaling",
            api_version="keda.sh/v1alpha1",
            kind="ScaledObject",
            metadata=metadata(
                name,
                self.context.namespace,
                annotations={"autoscaling.keda.sh/paused-replicas": "0"} if held else None,
            ),
            spec={
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": deployment.metadata.name},
                "minReplicaCount": bounds.min,
                "maxReplicaCount": bounds.max,
                "pollingInterval": POLL_S,
                "cooldownPeriod": SCALE_DOWN.settle_s,
                # The number is for `static` only, but KEDA wants one.
                "fallback": {
                    "failureThreshold": FAILED_POLLS,
                    "behavior": "currentReplicas",
                    "replicas": bounds.max,
                },
                "advanced": {
                    "horizontalPodAutoscalerConfig": {
                        "behavior": {"scaleUp": _behavior(SCALE_UP), "scaleDown": _behavior(SCALE_DOWN)}
                    }
                },
                "triggers": [self._trigger(trigger, silent_is_idle=not bounds.min) for trigger in triggers],
            },
            opts=pulumi.ResourceOptions(parent=parent, depends_on=[deployment, self._authentication]),
        )

    def _trigger(self, trigger: Trigger, *, silent_is_idle: bool) -> dict[str, pulumi.Input[object]]:
        return {
            "type": "prometheus",
            "name": trigger.name,
            # Per replica; a fallback exists for this kind alone.
            "metricType": "AverageValue",
            "metadata": {
                "serverAddress": self._endpoint,
                "query": trigger.query,
                "threshold": f"{trigger.per_replica:g}",
                # KEDA takes an empty answer for 0. Only where nothing need run is that nobody's silence.
                "ignoreNullValues": "true" if silent_is_idle else "false",
            },
            "authenticationRef": {"name": AUTHENTICATION},
        }


def _behavior(pace: Pace) -> dict[str, object]:
    # https://kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale/#configurable-scaling-behavior
    values = {"Percent": pace.percent, "Pods": pace.pods}
    return {
        "stabilizationWindowSeconds": pace.settle_s,
        "policies": [
            {"type": kind, "value": value, "periodSeconds": pace.period_s} for kind, value in values.items() if value
        ],
    }
