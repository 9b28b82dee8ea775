"""Namespaces with the permissions and resource limits of their pods."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import pulumi
import pulumi_kubernetes as k8s

from voice_blueprint.azure.contract import GPU_NAMESPACE, GPU_RESOURCE, NAMESPACE
from voice_blueprint.file.model.deployment import Deployment
from voice_constructs.azure.kubernetes.context import (
    COMPONENT_TYPE_PREFIX,
    PART_OF_LABEL,
    ClusterContext,
    create_metadata,
)
from voice_constructs.azure.kubernetes.load_balancer import LoadBalancer

SIGNED_IMAGES_POLICY = "voice-signed-images"
"""Name of the policy that restricts pods to signed images."""

PodSecurity = Literal["restricted", "baseline", "privileged"]

POD_SECURITY_BY_NAMESPACE: dict[str, tuple[PodSecurity, str]] = {
    NAMESPACE: (
        "restricted",
        (
            "Engines run as an ordinary user without capabilities. Locked memory requires none: CUDA pins host memory "
            "through the driver, which RLIMIT_MEMLOCK does not limit; it only applies to InfiniBand, and cells "
            "stay inside a node. Processes of an ordinary user would not get a capability anyway."
        ),
    ),
    GPU_NAMESPACE: (
        "privileged",
        (
            "The device plugin registers at the kubelet's socket and allocates device nodes; DCGM reads hardware "
            "counters and the kubelet's list of pods: both mount the host's files."
        ),
    ),
}
"""Pod Security level of each namespace, and the reason why it is not stricter. Levels:
https://kubernetes.io/docs/concepts/security/pod-security-standards/"""


class Namespaces(pulumi.ComponentResource):
    """The namespaces for services and the GPU DaemonSets.

    Attributes:
        context: Context for objects in these namespaces.
    """

    def __init__(
        self, name: str, *, deployment: Deployment, registry: pulumi.Output[str], opts: pulumi.ResourceOptions
    ) -> None:
        super().__init__(f"{COMPONENT_TYPE_PREFIX}:Namespaces", name, None, opts)
        version = deployment.azure.kubernetes_version
        self.context = ClusterContext(
            deployment,
            registry,
            self._build_namespace(NAMESPACE, version),
            self._build_namespace(GPU_NAMESPACE, version),
        )
        self.register_outputs({})

    def _build_namespace(self, name: str, version: str) -> pulumi.Output[str]:
        level, _ = POD_SECURITY_BY_NAMESPACE[name]
        labels = {
            f"pod-security.kubernetes.io/{mode}{suffix}": value
            for mode in ("enforce", "audit", "warn")
            for suffix, value in (("", level), ("-version", f"v{version}"))
        }
        namespace_resource = k8s.core.v1.Namespace(
            name,
            metadata=create_metadata(name, None, labels=PART_OF_LABEL | labels),
            opts=pulumi.ResourceOptions(parent=self),
        )
        return namespace_resource.metadata.name


class SignedImagePolicy(pulumi.ComponentResource):
    """An admission policy that rejects pods with an image that is not signed with the key in ``image_signing``.

    The API server evaluates the policy itself, so the policy does not depend on a webhook that could be unavailable.
    https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy/
    """

    def __init__(self, name: str, *, context: ClusterContext, opts: pulumi.ResourceOptions) -> None:
        super().__init__(f"{COMPONENT_TYPE_PREFIX}:SignedImages", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        signed = pulumi.Output.all(*(context.get_image_uri(image) for image in context.deployment.images))
        policy = k8s.admissionregistration.v1.ValidatingAdmissionPolicy(
            "policy",
            metadata=create_metadata(SIGNED_IMAGES_POLICY, None),
            spec=k8s.admissionregistration.v1.ValidatingAdmissionPolicySpecArgs(
                failure_policy="Fail",
                match_constraints=k8s.admissionregistration.v1.MatchResourcesArgs(
                    namespace_selector=k8s.meta.v1.LabelSelectorArgs(match_labels=PART_OF_LABEL),
                    resource_rules=[
                        k8s.admissionregistration.v1.NamedRuleWithOperationsArgs(
                            api_groups=[""],
                            api_versions=["v1"],
                            operations=["CREATE", "UPDATE"],
                            resources=["pods", "pods/ephemeralcontainers"],
                        )
                    ],
                ),
                variables=[
                    k8s.admissionregistration.v1.VariableArgs(name="signed", expression=signed.apply(json.dumps))
                ],
                validations=[
                    k8s.admissionregistration.v1.ValidationArgs(
                        expression=f"!has({kind}) || {kind}.all(container, container.image in variables.signed)",
                        message="an image of the pod is not signed with the key of image_signing",
                    )
                    for kind in (
                        "object.spec.containers",
                        "object.spec.initContainers",
                        "object.spec.ephemeralContainers",
                    )
                ],
            ),
            opts=child,
        )
        k8s.admissionregistration.v1.ValidatingAdmissionPolicyBinding(
            "binding",
            metadata=create_metadata(SIGNED_IMAGES_POLICY, None),
            spec=k8s.admissionregistration.v1.ValidatingAdmissionPolicyBindingSpecArgs(
                policy_name=policy.metadata.name, validation_actions=["Deny"]
            ),
            opts=child,
        )
        self.register_outputs({})


@dataclass(frozen=True)
class WorkloadLimits:
    """Maximum resources for the pods of one workload.

    Attributes:
        pod_count: Maximum number of pods.
        cpus: CPUs per pod.
        memory_gib: Memory per pod.
        gpus: GPUs per pod.
    """

    pod_count: int
    cpus: float
    memory_gib: float
    gpus: int = 0


class NamespaceLimits(pulumi.ComponentResource):
    """Resource quota for the services, and default limits for containers.

    The quota is the sum of the resources that the deployment file allows, so that no other workload can use paid GPUs
    or expose a service.
    """

    def __init__(
        self,
        name: str,
        *,
        context: ClusterContext,
        workload_limits: Sequence[WorkloadLimits],
        load_balancers: Sequence[LoadBalancer],
        opts: pulumi.ResourceOptions,
    ) -> None:
        super().__init__(f"{COMPONENT_TYPE_PREFIX}:Limits", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        cpus = sum(resource_limits.pod_count * resource_limits.cpus for resource_limits in workload_limits)
        memory_gib = sum(resource_limits.pod_count * resource_limits.memory_gib for resource_limits in workload_limits)
        self.quota = k8s.core.v1.ResourceQuota(
            "quota",
            metadata=create_metadata("services", context.namespace),
            spec=k8s.core.v1.ResourceQuotaSpecArgs(
                hard={
                    "pods": str(sum(resource_limits.pod_count for resource_limits in workload_limits)),
                    "requests.cpu": f"{round(cpus * 1000)}m",
                    "requests.memory": f"{round(memory_gib * 1024)}Mi",
                    f"requests.{GPU_RESOURCE}": str(
                        sum(resource_limits.pod_count * resource_limits.gpus for resource_limits in workload_limits)
                    ),
                    "services.loadbalancers": str(len(load_balancers)),
                    "services.nodeports": str(sum(each.node_port_count for each in load_balancers)),
                }
            ),
            opts=child,
        )
        self.defaults = k8s.core.v1.LimitRange(
            "defaults",
            metadata=create_metadata("containers", context.namespace),
            spec=k8s.core.v1.LimitRangeSpecArgs(
                limits=[
                    k8s.core.v1.LimitRangeItemArgs(
                        type="Container",
                        default={"cpu": "1", "memory": "1Gi"},
                        default_request={"cpu": "100m", "memory": "256Mi"},
                    )
                ]
            ),
            opts=child,
        )
        self.register_outputs({})
