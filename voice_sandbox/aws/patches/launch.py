"""Launches by EC2 Auto Scaling with all settings of the launch template; moto itself uses only some of them."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from moto.autoscaling.models import ASG_NAME_TAG

if TYPE_CHECKING:
    from moto.autoscaling.models import FakeAutoScalingGroup
    from moto.ec2.models.instances import Instance


def launch_instance(group: FakeAutoScalingGroup, subnet: str) -> Instance:
    """Start an instance of a group in a subnet.

    Raises:
        EC2ClientError: EC2 rejects the launch.
    """
    ec2, template, version = group.ec2_backend, group.ec2_launch_template, group.launch_template_version
    if template is None:
        raise ValueError(f"{group.name}: launch configurations are not supported; use a launch template")
    data = template.get_version(version).data
    images = ec2.describe_images(filters={"image-id": group.image_id})
    root_device = images[0].root_device_name if images else "/dev/xvda"
    reservation = ec2.run_instances(
        group.image_id,
        1,
        group.user_data,
        [],
        **_build_launch_arguments(data, group.instance_type, subnet, root_device),
        launch_template={"LaunchTemplateId": template.id, "Version": version},
        tags={"instance": {**group.instance_tags, **group.get_propagated_tags(), ASG_NAME_TAG: group.name}},
    )
    instance: Any = reservation.instances[0]
    instance.autoscaling_group = group
    # moto only returns a host's security groups if they were not specified for its interface.
    instance.security_groups = instance.nics[0].group_set
    if profile := data.get("IamInstanceProfile"):
        ec2.associate_iam_instance_profile(
            instance.id,
            iam_instance_profile_name=profile.get("Name"),
            iam_instance_profile_arn=profile.get("Arn"),
        )
    started: Instance = instance
    return started


def _build_launch_arguments(data: dict[str, Any], instance_type: str, subnet: str, root_device: str) -> dict[str, Any]:
    """Convert a launch template's data to the arguments for moto's launch, which always include the root device."""
    interfaces = copy.deepcopy(data.get("NetworkInterfaces", []))
    for interface in interfaces:
        interface["SubnetId"] = subnet
    disks = [
        {**disk, "Ebs": {"DeleteOnTermination": disk["DeviceName"] == root_device, **disk["Ebs"]}}
        for disk in data.get("BlockDeviceMappings", [])
        if "Ebs" in disk
    ]
    if root_device not in [disk["DeviceName"] for disk in disks]:
        disks.insert(0, {"DeviceName": root_device, "Ebs": {"VolumeSize": 8, "DeleteOnTermination": True}})
    return {
        "instance_type": instance_type,
        "is_instance_type_default": False,
        "subnet_id": subnet,
        "nics": interfaces,
        "security_group_ids": [] if interfaces else data.get("SecurityGroupIds", []),
        "block_device_mappings": disks,
        "ebs_optimized": data.get("EbsOptimized", False),
        "key_name": data.get("KeyName"),
        "metadata_options": data.get("MetadataOptions", {}),
        "monitoring_state": "enabled" if data.get("Monitoring", {}).get("Enabled") else "disabled",
    }
