"""The artifacts job for an ASR fleet.

A host of the fleet's instance type uploads weights and compiled programs to the bucket, then terminates.
"""

from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from constructs import Construct

import voice_userdata
from voice_blueprint import catalog
from voice_blueprint.aws import names
from voice_blueprint.engines.launch.services import HOST_CACHE_DIR, create_preparation_launcher
from voice_blueprint.hosts import format_artifacts_name
from voice_constructs.aws.accelerator import (
    INSTANCE_STORE_MOUNT_PATH,
    SHARED_MEMORY_MIB,
    AcceleratorFleetProps,
    create_accelerator_template,
    create_fleet_artifacts,
)
from voice_constructs.aws.acknowledge import acknowledge


class ArtifactsJob(Construct):
    """The launch template of the job's host.

    The template is part of a stack that is deployed before the fleet's stack, so that a new release can be prepared
    before hosts serve it.
    """

    def __init__(self, scope: Construct, id_: str, *, props: AcceleratorFleetProps) -> None:
        super().__init__(scope, id_)
        fleet, context = props.fleet, props.context
        kind = catalog.instance_types()[fleet.instance_type]
        launch, region = create_preparation_launcher(fleet), context.deployment.aws.region
        job = voice_userdata.PreparationJob(
            region,
            (launch.image.value, context.get_image_uri(launch.image)),
            launch.build_command(),
            launch.build_environment(),
            create_fleet_artifacts(context, fleet),
            HOST_CACHE_DIR,
            INSTANCE_STORE_MOUNT_PATH if kind.instance_store_disks else None,
            kind.accelerator.kind if kind.accelerator else None,
            SHARED_MEMORY_MIB if kind.compute_kind != "cpu" else None,
            context.deployment.signing_key,
        )
        template = create_accelerator_template(
            self,
            "Template",
            props=props,
            role=self._build_role(props),
            user_data=voice_userdata.render_preparation_script(job),
        )
        subnets = context.network.vpc.select_subnets(
            subnet_type=ec2.SubnetType.PRIVATE_WITH_EGRESS,
            availability_zones=list(fleet.availability_zones) if fleet.availability_zones else None,
        )
        cfn = template.node.default_child
        assert isinstance(cfn, ec2.CfnLaunchTemplate)  # noqa: S101  narrows jsii's IConstruct
        cfn.launch_template_name = names.build_job_template_name(context.deployment, fleet.name)
        cfn.add_property_override("LaunchTemplateData.InstanceInitiatedShutdownBehavior", "terminate")
        cfn.add_property_override("LaunchTemplateData.NetworkInterfaces.0.SubnetId", subnets.subnet_ids[0])

    def _build_role(self, props: AcceleratorFleetProps) -> iam.Role:
        fleet, context = props.fleet, props.context
        role = iam.Role(self, "Role", assumed_by=iam.ServicePrincipal("ec2.amazonaws.com"))
        context.registry.repositories[create_preparation_launcher(fleet).image].grant_pull(role)
        name, region = format_artifacts_name(context.deployment, fleet), context.deployment.aws.region
        context.registry.artifacts.grant_access(role, name, region=region, write=True)
        acknowledge(role, "AwsSolutions-IAM5[Resource::*]", "GetAuthorizationToken knows no resources")
        return role
