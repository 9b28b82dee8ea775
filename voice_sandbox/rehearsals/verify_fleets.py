"""Comparison of the state store and the fleets in the local AWS with the deployment file."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import TYPE_CHECKING

import boto3

from voice_blueprint.aws import names
from voice_blueprint.contract.images import Image
from voice_blueprint.file.model.deployment import Deployment
from voice_blueprint.file.model.scaling import Comparison, ScalingRule
from voice_blueprint.hosts import VAD_IMAGES, asr_images, lacks_digests
from voice_sandbox.rehearsals.claim import Claim

if TYPE_CHECKING:
    from types_boto3_ec2.type_defs import ResponseLaunchTemplateDataTypeDef


class FleetVerifier:
    """Verifies the state store and the fleets in the local AWS."""

    def __init__(self, deployment: Deployment, session: boto3.Session, endpoint: str) -> None:
        self._deployment = deployment
        self._autoscaling = session.client("autoscaling", endpoint_url=endpoint)
        self._cloudwatch = session.client("cloudwatch", endpoint_url=endpoint)
        self._ec2 = session.client("ec2", endpoint_url=endpoint)
        self._elasticache = session.client("elasticache", endpoint_url=endpoint)

    def claims(self) -> Iterator[Claim]:
        """Yield all claims about the state store and the fleets."""
        yield from self._state_store_claims()
        yield from self._vad_claims()
        yield from self._asr_claims()

    def _state_store_claims(self) -> Iterator[Claim]:
        name = names.state_group_id(self._deployment)
        group = self._elasticache.describe_replication_groups(ReplicationGroupId=name)["ReplicationGroups"][0]
        replicas = self._deployment.aws.state.replicas
        yield Claim(f"{name}: Valkey with {replicas} replica(s)", len(group["MemberClusters"]) == replicas + 1)
        yield Claim(f"{name}: TLS in transit, encrypted at rest", bool(group["TransitEncryptionEnabled"]))

    def _vad_claims(self) -> Iterator[Claim]:
        fleet = self._deployment.aws.vad
        groups = names.vad_group_names(self._deployment)
        for name in groups:
            bounds = fleet.hosts_per_zone
            yield from self._group_claims(name, self._min_hosts(bounds.min, VAD_IMAGES), bounds.max)
            text = self._user_data(name)
            assignments = [f"PAGE_COUNT={fleet.huge_pages.count}", f"MTU={fleet.data_path.mtu}"]
            yield Claim(
                f"{name}: user data contains {', '.join(assignments)}", all(line in text for line in assignments)
            )
        for rule in fleet.scaling:
            yield from self._alarm_claims(names.VAD_FLEET, rule, groups)

    def _asr_claims(self) -> Iterator[Claim]:
        for fleet in self._deployment.aws.asr:
            name = names.group_name(self._deployment, fleet.name)
            yield from self._group_claims(name, self._min_hosts(fleet.hosts.min, asr_images(fleet)), fleet.hosts.max)
            for rule in fleet.scaling:
                yield from self._alarm_claims(fleet.name, rule, [name])

    def _min_hosts(self, configured: int, images: tuple[Image, ...]) -> int:
        """Return the minimum number of hosts of a group, which is 0 while one of its images has no digest."""
        return 0 if lacks_digests(self._deployment, images) else configured

    def _group_claims(self, name: str, low: int, high: int) -> Iterator[Claim]:
        group = self._autoscaling.describe_auto_scaling_groups(AutoScalingGroupNames=[name])["AutoScalingGroups"][0]
        yield Claim(f"{name}: {low} to {high} hosts", (group["MinSize"], group["MaxSize"]) == (low, high))
        yield Claim(f"{name}: {low} in service", len(group["Instances"]) == low)
        hooks = self._autoscaling.describe_lifecycle_hooks(AutoScalingGroupName=name)["LifecycleHooks"]
        yield Claim(
            f"{name}: launch and terminate hooks",
            {hook["LifecycleTransition"] for hook in hooks}
            == {"autoscaling:EC2_INSTANCE_LAUNCHING", "autoscaling:EC2_INSTANCE_TERMINATING"},
        )
        template = self._launch_template_data(name)
        yield Claim(f"{name}: IMDSv2 only", template["MetadataOptions"]["HttpTokens"] == "required")
        volumes = template["BlockDeviceMappings"]
        yield Claim(f"{name}: encrypted volumes", all(volume["Ebs"]["Encrypted"] for volume in volumes))

    def _alarm_claims(self, fleet: str, rule: ScalingRule, groups: list[str]) -> Iterator[Claim]:
        name = names.scaling_alarm_name(self._deployment, fleet, rule)
        alarm = self._cloudwatch.describe_alarms(AlarmNames=[name])["MetricAlarms"][0]
        operator = "GreaterThanThreshold" if rule.comparison is Comparison.ABOVE else "LessThanThreshold"
        yield Claim(
            f"{name}: {rule.metric} {rule.comparison} {rule.threshold:g}",
            (alarm["MetricName"], alarm["ComparisonOperator"], alarm["Threshold"], alarm["Period"])
            == (rule.metric, operator, rule.threshold, rule.period_s),
        )
        policies = {
            policy["AutoScalingGroupName"]: policy["StepAdjustments"][0]["ScalingAdjustment"]
            for policy in self._autoscaling.describe_policies()["ScalingPolicies"]
            if policy["PolicyARN"] in alarm["AlarmActions"]
        }
        adjustment = rule.steps[0].adjustment
        yield Claim(
            f"{name}: {adjustment:+d} in each of {len(groups)} group(s)", policies == dict.fromkeys(groups, adjustment)
        )

    def _launch_template_data(self, group: str) -> ResponseLaunchTemplateDataTypeDef:
        description = self._autoscaling.describe_auto_scaling_groups(AutoScalingGroupNames=[group])[
            "AutoScalingGroups"
        ][0]
        reference = description["LaunchTemplate"]
        return self._ec2.describe_launch_template_versions(
            LaunchTemplateId=reference["LaunchTemplateId"], Versions=[reference["Version"]]
        )["LaunchTemplateVersions"][0]["LaunchTemplateData"]

    def _user_data(self, group: str) -> str:
        return base64.b64decode(self._launch_template_data(group)["UserData"]).decode()
