"""A namespace with objects in the cluster of another stack."""

import pulumi
import pulumi_kubernetes as k8s

stack = pulumi.StackReference("cluster", stack_name=f"local/sample-cluster/{pulumi.get_stack()}")
provider = k8s.Provider("cluster", kubeconfig=stack.require_output("kubeconfig"))
options = pulumi.ResourceOptions(provider=provider)
namespace = k8s.core.v1.Namespace("voice", metadata={"name": "voice"}, opts=options)
labels = {"app": "asr"}
k8s.core.v1.Secret(
    "token", metadata={"namespace": namespace.metadata.name}, string_data={"token": "hunter2"}, opts=options
)
deployment = k8s.apps.v1.Deployment(
    "asr",
    metadata=k8s.meta.v1.ObjectMetaArgs(name="asr", namespace=namespace.metadata.name),
    spec=k8s.apps.v1.DeploymentSpecArgs(
        replicas=2,
        selector=k8s.meta.v1.LabelSelectorArgs(match_labels=labels),
        template=k8s.core.v1.PodTemplateSpecArgs(
            metadata=k8s.meta.v1.ObjectMetaArgs(labels=labels),
            spec=k8s.core.v1.PodSpecArgs(
                containers=[
                    k8s.core.v1.ContainerArgs(
                        name="engine",
                        image="registry.invalid/asr@sha256:0",
                        resources=k8s.core.v1.ResourceRequirementsArgs(limits={"nvidia.com/gpu": "2"}),
                    )
                ]
            ),
        ),
    ),
    opts=options,
)
service = k8s.core.v1.Service(
    "asr",
    metadata={"namespace": namespace.metadata.name},
    spec={"type": "LoadBalancer", "selector": labels, "ports": [{"port": 80}]},
    opts=options,
)
k8s.apiextensions.CustomResource(
    "asr",
    api_version="keda.sh/v1alpha1",
    kind="ScaledObject",
    metadata={"namespace": namespace.metadata.name},
    spec={"scaleTargetRef": {"name": deployment.metadata.name}},
    opts=options,
)
pulumi.export("address", service.status.load_balancer.ingress[0].ip)
pulumi.export("issuer", stack.get_output("issuer"))
