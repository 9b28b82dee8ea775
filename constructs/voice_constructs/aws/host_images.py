"""EC2 Image Builder: a machine image for the hosts of each fleet."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aws_cdk import Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_ecr as ecr
from aws_cdk import aws_iam as iam
from aws_cdk import aws_imagebuilder as imagebuilder
from constructs import Construct

import voice_userdata
from voice_blueprint import catalog
from voice_blueprint.aws import machine_images, names
from voice_blueprint.contract.images import Image
from voice_blueprint.contract.network import Tier
from voice_blueprint.file.model.deployment import Deployment
from voice_blueprint.hosts import VAD_IMAGES, get_image_digest, lacks_digests, list_asr_images
from voice_constructs.aws.acknowledge import acknowledge
from voice_constructs.aws.host import ROOT_DEVICE
from voice_constructs.aws.network import VoiceNetwork

VFIO_DRIVERS_COMMIT = "64788ef"
"""Commit in amzn-drivers whose script was reviewed (userspace/dpdk/enav2-vfio-patch)."""
ACCELERATOR_BUILDER_TYPE = "m7i.2xlarge"
"""Instance type that builds the images of accelerator fleets, since installing packages and pulling images require no
accelerators. Other images are built on the fleet's type, since the VAD fleet's huge pages need that type's memory after
the reboot."""
MANAGED_POLICIES = ("EC2InstanceProfileForImageBuilder", "AmazonSSMManagedInstanceCore")


@dataclass(frozen=True)
class HostImagesProps:
    """Properties of ``HostImages``."""

    deployment: Deployment
    network: VoiceNetwork
    repositories: Mapping[Image, ecr.IRepository]


@dataclass(frozen=True)
class _Fleet:
    name: str
    tier: Tier
    instance_type: str
    root_volume_gib: int
    images: tuple[Image, ...]


class HostImages(Construct):
    """An image pipeline for each fleet whose container images have digests.

    The machine images have the tags of ``names.build_machine_image_tags``.
    """

    def __init__(self, scope: Construct, id_: str, *, props: HostImagesProps) -> None:
        super().__init__(scope, id_)
        self._props = props
        self._deployment = props.deployment
        aws = props.deployment.aws
        fleets = [_Fleet(names.VAD_FLEET, Tier.VAD, aws.vad.instance_type, aws.vad.root_volume_gib, VAD_IMAGES)]
        fleets += [_Fleet(f.name, Tier.ASR, f.instance_type, f.root_volume_gib, list_asr_images(f)) for f in aws.asr]
        self._profile = self._build_profile()
        for fleet in fleets:
            if not lacks_digests(props.deployment, fleet.images):
                self._build_pipeline(fleet)

    def _build_profile(self) -> iam.CfnInstanceProfile:
        role = iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal("ec2.amazonaws.com"),
            managed_policies=[iam.ManagedPolicy.from_aws_managed_policy_name(name) for name in MANAGED_POLICIES],
        )
        for name in MANAGED_POLICIES:
            acknowledge(
                role,
                f"AwsSolutions-IAM4[Policy::arn:<AWS::Partition>:iam::aws:policy/{name}]",
                "Image Builder's documentation requires both; AWS maintains their lists of actions",
            )
        acknowledge(role, "AwsSolutions-IAM5[Resource::*]", "GetAuthorizationToken knows no resources")
        for repository in self._props.repositories.values():
            repository.grant_pull(role)
        return iam.CfnInstanceProfile(self, "Profile", roles=[role.role_name])

    def _build_pipeline(self, fleet: _Fleet) -> None:
        deployment, fleet_scope = self._deployment, Construct(self, fleet.name.capitalize())
        name = f"{deployment.name}-{fleet.name}"
        bake = self._create_bake_template(fleet)
        uris = [
            self._props.repositories[image].repository_uri_for_digest(get_image_digest(deployment, image))
            for image in fleet.images
        ]
        content: dict[str, Any] = {"platform": "Linux", "data": _build_component_document(bake(uris))}
        parameter = machine_images.get_public_image_parameter(catalog.instance_types()[fleet.instance_type])
        base: dict[str, Any] = {
            "parent_image": f"ssm:{parameter}",
            "block_device_mappings": [
                imagebuilder.CfnImageRecipe.InstanceBlockDeviceMappingProperty(
                    device_name=ROOT_DEVICE,
                    ebs=imagebuilder.CfnImageRecipe.EbsInstanceBlockDeviceSpecificationProperty(
                        encrypted=True,
                        volume_size=fleet.root_volume_gib,
                        volume_type="gp3",
                        delete_on_termination=True,
                    ),
                )
            ],
        }
        # Components and recipes are immutable: a change to any of their properties requires a new name.
        versioned_name = f"{name}-{_calculate_fingerprint(Stack.of(self).resolve([content, base]))}"
        component = imagebuilder.CfnComponent(fleet_scope, "Component", name=versioned_name, version="1.0.0", **content)
        recipe = imagebuilder.CfnImageRecipe(
            fleet_scope,
            "Recipe",
            name=versioned_name,
            version="1.0.0",
            components=[imagebuilder.CfnImageRecipe.ComponentConfigurationProperty(component_arn=component.attr_arn)],
            **base,
        )
        accelerator = catalog.instance_types()[fleet.instance_type].accelerator
        subnets = self._props.network.vpc.select_subnets(subnet_type=ec2.SubnetType.PRIVATE_WITH_EGRESS)
        infrastructure = imagebuilder.CfnInfrastructureConfiguration(
            fleet_scope,
            "Infrastructure",
            name=name,
            instance_profile_name=self._profile.ref,
            instance_types=[ACCELERATOR_BUILDER_TYPE if accelerator else fleet.instance_type],
            subnet_id=subnets.subnet_ids[0],
            security_group_ids=[self._props.network.security_groups[fleet.tier].security_group_id],
            instance_metadata_options=imagebuilder.CfnInfrastructureConfiguration.InstanceMetadataOptionsProperty(
                http_tokens="required", http_put_response_hop_limit=1
            ),
            terminate_instance_on_failure=True,
        )
        distribution = imagebuilder.CfnDistributionConfiguration(
            fleet_scope,
            "Distribution",
            name=name,
            distributions=[
                imagebuilder.CfnDistributionConfiguration.DistributionProperty(
                    region=deployment.aws.region,
                    ami_distribution_configuration={
                        "Name": f"{name} {{{{ imagebuilder:buildDate }}}}",
                        "AmiTags": names.build_machine_image_tags(deployment, fleet.name),
                    },
                )
            ],
        )
        imagebuilder.CfnImagePipeline(
            fleet_scope,
            "Pipeline",
            name=name,
            image_recipe_arn=recipe.attr_arn,
            infrastructure_configuration_arn=infrastructure.attr_arn,
            distribution_configuration_arn=distribution.attr_arn,
        )

    def _create_bake_template(self, fleet: _Fleet) -> "_BakeTemplate":
        vad, settings = self._deployment.aws.vad, self._deployment.aws.host_images
        packets = fleet.tier is Tier.VAD
        return _BakeTemplate(
            self._deployment.aws.region,
            fleet.images,
            voice_userdata.HugePages(vad.huge_pages.size_mib, vad.huge_pages.count) if packets else None,
            VFIO_DRIVERS_COMMIT if packets and settings and settings.vfio else None,
            self._deployment.signing_key,
        )


@dataclass(frozen=True)
class _BakeTemplate:
    """User data for the build, without the image URIs, which are only known at deployment."""

    region: str
    images: tuple[Image, ...]
    huge_pages: voice_userdata.HugePages | None
    vfio_drivers: str | None
    signing_key: str | None

    def __call__(self, uris: Sequence[str]) -> voice_userdata.HostImageConfig:
        results = {image.value: uri for image, uri in zip(self.images, uris, strict=True)}
        return voice_userdata.HostImageConfig(
            self.region, results, self.huge_pages, self.vfio_drivers, self.signing_key
        )


def _calculate_fingerprint(properties: object) -> str:
    return hashlib.sha256(json.dumps(properties, sort_keys=True).encode()).hexdigest()[:8]


def _build_component_document(bake: voice_userdata.HostImageConfig) -> str:
    """Return the document of a component with steps that build the image, reboot, and check the result."""

    def build_bash_step(step_name: str, script: str) -> dict[str, object]:
        return {"name": step_name, "action": "ExecuteBash", "inputs": {"commands": [script]}}

    reboot = {"name": "reboot", "action": "Reboot", "inputs": {"delaySeconds": 5}}
    return json.dumps(
        {
            "schemaVersion": 1.0,
            "phases": [
                {
                    "name": "build",
                    "steps": [build_bash_step("bake", voice_userdata.render_bake_script(bake, "bake")), reboot],
                },
                {
                    "name": "validate",
                    "steps": [build_bash_step("check", voice_userdata.render_bake_script(bake, "check"))],
                },
            ],
        }
    )
