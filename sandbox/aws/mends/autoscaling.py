"""Auto Scaling: lifecycle hooks as they were asked for, instances as their launch template says, complete deletion."""

from __future__ import annotations

import copy
from typing import Any

from moto.autoscaling import models, urls
from moto.autoscaling.exceptions import AutoscalingClientError
from moto.autoscaling.models import FakeAutoScalingGroup, InstanceState
from moto.autoscaling.responses import AutoScalingResponse
from moto.core.responses import ActionResult

from sandbox.aws.mends.base import Record, keep, result, take_over

# What moto's groups do not keep.
_KEPT = (
    "AvailabilityZoneDistribution",
    "AvailabilityZoneImpairmentPolicy",
    "CapacityRebalance",
    "CapacityReservationSpecification",
    "Context",
    "DefaultCooldown",
    "DefaultInstanceWarmup",
    "DesiredCapacityType",
    "InstanceMaintenancePolicy",
    "MaxInstanceLifetime",
    "PlacementGroup",
    "TerminationPolicies",
)


class MendedAutoScaling(AutoScalingResponse):
    """moto's Auto Scaling API with what it lacks."""

    def create_auto_scaling_group(self) -> ActionResult:
        """Answer CreateAutoScalingGroup with its hooks."""
        params = self._get_params()
        answer = super().create_auto_scaling_group()
        keep(self._group(), params, *_KEPT)
        for hook in params.get("LifecycleHookSpecificationList", []):
            self._put_hook({**hook, "AutoScalingGroupName": params["AutoScalingGroupName"]})
        return answer

    def update_auto_scaling_group(self) -> ActionResult:
        """Answer UpdateAutoScalingGroup; a request that names no launch settings leaves them as they are."""
        params = self._get_params()
        group = self._group()
        policy = group.mixed_instances_policy
        answer = super().update_auto_scaling_group()
        if not {"LaunchTemplate", "LaunchConfigurationName", "MixedInstancesPolicy"} & params.keys():
            group.mixed_instances_policy = policy
        keep(group, params, *_KEPT)
        return answer

    def delete_auto_scaling_group(self) -> ActionResult:
        """Answer DeleteAutoScalingGroup: with force, protected instances end too, and all that belongs to the group."""
        group = self._group()
        backend = self.autoscaling_backend
        if group.instance_states and not self._get_bool_param("ForceDelete", False):
            message = f"You cannot delete an AutoScalingGroup while there are instances in {group.name}."
            raise AutoscalingClientError("ResourceInUse", message)
        for state in group.instance_states:
            state.protected_from_scale_in, state.lifecycle_state = False, "InService"
        answer = super().delete_auto_scaling_group()
        hanging: list[dict[str, Any]] = [backend.policies, backend.lifecycle_hooks, backend.scheduled_actions]
        for kept in hanging:
            for key, item in list(kept.items()):
                if item.auto_scaling_group_name == group.name:
                    del kept[key]
        return answer

    def put_lifecycle_hook(self) -> ActionResult:
        """Answer PutLifecycleHook; moto makes up role and target of the notification."""
        answer = super().put_lifecycle_hook()
        self._put_hook(self._get_params())
        return answer

    def put_scaling_policy(self) -> ActionResult:
        """Answer PutScalingPolicy; moto misspells the name of the ARN, which then is lost."""
        answer = super().put_scaling_policy()
        return ActionResult({"PolicyARN": result(answer)["PolicyArn"], "Alarms": []})

    def _put_hook(self, hook: Record) -> None:
        made = self.autoscaling_backend.create_lifecycle_hook(
            hook["LifecycleHookName"],
            hook["AutoScalingGroupName"],
            hook["LifecycleTransition"],
            hook.get("HeartbeatTimeout"),
            hook.get("DefaultResult", "ABANDON"),
        )
        blank = dict.fromkeys(("NotificationTargetARN", "NotificationMetadata", "RoleARN"))
        keep(made, {**blank, **hook}, *blank)

    def _group(self) -> FakeAutoScalingGroup:
        name = self._get_param("AutoScalingGroupName")
        found = self.autoscaling_backend.describe_auto_scaling_groups([name])
        if not found:
            raise AutoscalingClientError("ValidationError", f"AutoScalingGroup name not found - {name}")
        return found[0]


class MendedGroup(FakeAutoScalingGroup):
    """A group that launches what its template says, spread over its subnets; moto uses the first subnet alone."""

    @property
    def instance_type(self) -> str:
        """The type of new instances: the first override of a mixed policy, else the launch template's."""
        overrides = (self.mixed_instances_policy or {}).get("LaunchTemplate", {}).get("Overrides", [])
        return str(overrides[0].get("InstanceType", super().instance_type)) if overrides else super().instance_type

    def replace_autoscaling_group_instances(self, count_needed: int, propagated_tags: dict[str, str]) -> None:
        """Launch instances one by one, each in the subnet that has fewest."""
        template = self.ec2_launch_template
        if template is None or not self.vpc_zone_identifier:
            super().replace_autoscaling_group_instances(count_needed, propagated_tags)
            return
        data = template.get_version(self.launch_template_version).data
        subnets = self.vpc_zone_identifier.split(",")
        for _ in range(count_needed):
            used = [state.instance.subnet_id for state in self.instance_states]
            subnet = min(subnets, key=used.count)
            reservation = self.ec2_backend.run_instances(
                self.image_id,
                1,
                self.user_data,
                [],
                **launch_arguments(data, self.instance_type, subnet, self._root_device()),
                launch_template={"LaunchTemplateId": template.id, "Version": self.launch_template_version},
                tags={"instance": {**self.instance_tags, **propagated_tags, models.ASG_NAME_TAG: self.name}},
            )
            instance: Any = reservation.instances[0]  # moto hangs the group on it below
            instance.autoscaling_group = self
            # moto shows the groups of a host only if they were not given with its interface.
            instance.security_groups = instance.nics[0].group_set
            self._give_profile(instance.id, data.get("IamInstanceProfile", {}))
            protected = self.new_instances_protected_from_scale_in
            self.instance_states.append(InstanceState(instance, protected_from_scale_in=protected))

    def _root_device(self) -> str:
        images = self.ec2_backend.describe_images(filters={"image-id": self.image_id})
        return images[0].root_device_name if images else "/dev/xvda"

    def _give_profile(self, instance_id: str, profile: dict[str, str]) -> None:
        if profile:
            self.ec2_backend.associate_iam_instance_profile(
                instance_id,
                iam_instance_profile_name=profile.get("Name"),
                iam_instance_profile_arn=profile.get("Arn"),
            )


def launch_arguments(data: dict[str, Any], instance_type: str, subnet: str, root_device: str) -> dict[str, Any]:
    """Return what moto's launch takes of a launch template's data.

    Args:
        data: The launch template's data.
        instance_type: The type to launch.
        subnet: The subnet to launch in.
        root_device: The image's root device, which is made even if the template does not mention it.
    """
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


def install() -> None:
    """Put the mend in place."""
    take_over(urls, AutoScalingResponse, MendedAutoScaling)
    module: Any = models
    module.FakeAutoScalingGroup = MendedGroup
