"""KEDA scaling based on Prometheus metrics."""

from collections.abc import Sequence

import pulumi
import pulumi_kubernetes as k8s

from voice_blueprint.azure.names import ClusterOutput
from voice_blueprint.file.model.base import HostCount
from voice_blueprint.observability.azure.scaling import (
    SCALE_DOWN_BEHAVIOR,
    SCALE_UP_BEHAVIOR,
    ScalingBehavior,
    ScalingTrigger,
    add_zero_default,
)
from voice_constructs.azure.kubernetes.context import COMPONENT_TYPE_PREFIX, ClusterContext, create_metadata

TRIGGER_AUTHENTICATION_NAME = "prometheus"
POLL_INTERVAL_S = 30
FALLBACK_FAILURE_THRESHOLD = 4
"""Number of failed polls after which KEDA keeps the current number of replicas. If a metric cannot be read, the load is
unknown."""


class Scaling(pulumi.ComponentResource):
    """KEDA's access to the managed Prometheus, with its workload identity.

    Attributes:
        context: Context of the deployed objects.
    """

    def __init__(
        self,
        name: str,
        *,
        context: ClusterContext,
        cluster: pulumi.StackReference,
        opts: pulumi.ResourceOptions,
    ) -> None:
        super().__init__(f"{COMPONENT_TYPE_PREFIX}:Scaling", name, None, opts)
        self.context = context
        self._endpoint = cluster.require_output(ClusterOutput.PROMETHEUS_QUERY_ENDPOINT)
        self._authentication = k8s.apiextensions.CustomResource(
            TRIGGER_AUTHENTICATION_NAME,
            api_version="keda.sh/v1alpha1",
            kind="TriggerAuthentication",
            metadata=create_metadata(TRIGGER_AUTHENTICATION_NAME, context.namespace),
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

    def create_scaled_object(
        self,
        deployment: k8s.apps.v1.Deployment,
        name: str,
        *,
        replica_bounds: HostCount,
        triggers: Sequence[ScalingTrigger],
        must_wait_for_image: bool,
        parent: pulumi.Resource,
    ) -> k8s.apiextensions.CustomResource:
        """Scale a Deployment between bounds. A Deployment that waits for its image stays at 0 replicas."""
        return k8s.apiextensions.CustomResource(
            f"{name}-scaling",
            api_version="keda.sh/v1alpha1",
            kind="ScaledObject",
            metadata=create_metadata(
                name,
                self.context.namespace,
                annotations={"autoscaling.keda.sh/paused-replicas": "0"} if must_wait_for_image else None,
            ),
            spec={
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": deployment.metadata.name},
                "minReplicaCount": replica_bounds.min,
                "maxReplicaCount": replica_bounds.max,
                "pollingInterval": POLL_INTERVAL_S,
                "cooldownPeriod": SCALE_DOWN_BEHAVIOR.stabilization_window_s,
                # KEDA requires the number, but only `static` uses it.
                "fallback": {
                    "failureThreshold": FALLBACK_FAILURE_THRESHOLD,
                    "behavior": "currentReplicas",
                    "replicas": replica_bounds.max,
                },
                "advanced": {
                    "horizontalPodAutoscalerConfig": {
                        "behavior": {
                            "scaleUp": _build_behavior(SCALE_UP_BEHAVIOR),
                            "scaleDown": _build_behavior(SCALE_DOWN_BEHAVIOR),
                        }
                    }
                },
                "triggers": [
                    self._build_trigger(trigger, trigger.query, silent_is_idle=True)
                    if replica_bounds.min == 0
                    else self._build_trigger(trigger, add_zero_default(trigger.query, name), silent_is_idle=False)
                    for trigger in triggers
                ],
            },
            opts=pulumi.ResourceOptions(parent=parent, depends_on=[deployment, self._authentication]),
        )

    def _build_trigger(
        self, trigger: ScalingTrigger, query: str, *, silent_is_idle: bool
    ) -> dict[str, pulumi.Input[object]]:
        return {
            "type": "prometheus",
            "name": trigger.name,
            # The value is per replica; KEDA supports a fallback only for this type.
            "metricType": "AverageValue",
            "metadata": {
                "serverAddress": self._endpoint,
                "query": query,
                "threshold": f"{trigger.target_per_replica:g}",
                # KEDA interprets an empty result as 0, which is only correct if the minimum is 0.
                "ignoreNullValues": "true" if silent_is_idle else "false",
            },
            "authenticationRef": {"name": TRIGGER_AUTHENTICATION_NAME},
        }


def _build_behavior(pace: ScalingBehavior) -> dict[str, object]:
    # https://kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale/#configurable-scaling-behavior
    values = {"Percent": pace.percent, "Pods": pace.pods}
    return {
        "stabilizationWindowSeconds": pace.stabilization_window_s,
        "policies": [
            {"type": kind, "value": value, "periodSeconds": pace.period_s} for kind, value in values.items() if value
        ],
    }
