"""Compares the state store and the fleets in the local AWS with the deployment file."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import TYPE_CHECKING

import boto3

from voice_blueprint.aws import names
from voice_blueprint.contract.images import Image
from voice_blueprint.file.model.deployment import Deployment
from voice_blueprint.file.model.scaling import Comparison, ScalingRule
from voice_blueprint.hosts import VAD_IMAGES, lacks_digests, list_asr_images
from voice_sandbox.rehearsals.claim import VerificationResult

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

    def verify(self) -> Iterator[VerificationResult]:
        """Yield the results of all checks for the state store and the fleets."""
        yield from self._verify_state_store()
        yield from self._verify_vad_fleet()
        yield from self._verify_asr_fleets()

    def _verify_state_store(self) -> Iterator[VerificationResult]:
        name = names.build_state_group_id(self._deployment)
        group = self._elasticache.describe_replication_groups(ReplicationGroupId=name)["ReplicationGroups"][0]
        replicas = self._deployment.aws.state.replicas
        yield VerificationResult(
            f"{name}: Valkey with {replicas} replica(s)", len(group["MemberClusters"]) == replicas + 1
        )
        yield VerificationResult(f"{name}: TLS in transit, encrypted at rest", bool(group["TransitEncryptionEnabled"]))

    def _verify_vad_fleet(self) -> Iterator[VerificationResult]:
        fleet = self._deployment.aws.vad
        groups = names.list_vad_group_names(self._deployment)
        for name in groups:
            bounds = fleet.hosts_per_zone
            yield from self._verify_group(name, self._calculate_min_hosts(bounds.min, VAD_IMAGES), bounds.max)
            text = self._fetch_user_data(name)
            assignments = [f"PAGE_COUNT={fleet.huge_pages.count}", f"MTU={fleet.data_path.mtu}"]
            yield VerificationResult(
                f"{name}: user data contains {', '.join(assignments)}", all(line in text for line in assignments)
            )
        for rule in fleet.scaling:
            yield from self._verify_alarms(names.VAD_FLEET, rule, groups)

    def _verify_asr_fleets(self) -> Iterator[VerificationResult]:
        for fleet in self._deployment.aws.asr:
            name = names.build_group_name(self._deployment, fleet.name)
            yield from self._verify_group(
                name, self._calculate_min_hosts(fleet.hosts.min, list_asr_images(fleet)), fleet.hosts.max
            )
            for rule in fleet.scaling:
                yield from self._verify_alarms(fleet.name, rule, [name])

    def _calculate_min_hosts(self, configured: int, images: tuple[Image, ...]) -> int:
        """Return the minimum number of hosts in a group, which is 0 while one of its images has no digest."""
        return 0 if lacks_digests(self._deployment, images) else configured

    def _verify_group(self, name: str, low: int, high: int) -> Iterator[VerificationResult]:
        group = self._autoscaling.describe_auto_scaling_groups(AutoScalingGroupNames=[name])["AutoScalingGroups"][0]
        yield VerificationResult(f"{name}: {low} to {high} hosts", (group["MinSize"], group["MaxSize"]) == (low, high))
        yield VerificationResult(f"{name}: {low} in service", len(group["Instances"]) == low)
        hooks = self._autoscaling.describe_lifecycle_hooks(AutoScalingGroupName=name)["LifecycleHooks"]
        yield VerificationResult(
            f"{name}: launch and terminate hooks",
            {hook["LifecycleTransition"] for hook in hooks}
            == {"autoscaling:EC2_INSTANCE_LAUNCHING", "autoscaling:EC2_INSTANCE_TERMINATING"},
        )
        template = self._fetch_launch_template_data(name)
        yield VerificationResult(f"{name}: IMDSv2 only", template["MetadataOptions"]["HttpTokens"] == "required")
        volumes = template["BlockDeviceMappings"]
        yield VerificationResult(f"{name}: encrypted volumes", all(volume["Ebs"]["Encrypted"] for volume in volumes))

    def _verify_alarms(self, fleet: str, rule: ScalingRule, groups: list[str]) -> Iterator[VerificationResult]:
        name = names.build_scaling_alarm_name(self._deployment, fleet, rule)
        alarm = self._cloudwatch.describe_alarms(AlarmNames=[name])["MetricAlarms"][0]
        operator = "GreaterThanThreshold" if rule.comparison is Comparison.ABOVE else "LessThanThreshold"
        yield VerificationResult(
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
        yield VerificationResult(
            f"{name}: {adjustment:+d} in each of {len(groups)} group(s)", policies == dict.fromkeys(groups, adjustment)
        )

    def _fetch_launch_template_data(self, group: str) -> ResponseLaunchTemplateDataTypeDef:
        description = self._autoscaling.describe_auto_scaling_groups(AutoScalingGroupNames=[group])[
            "AutoScalingGroups"
        ][0]
        reference = description["LaunchTemplate"]
        return self._ec2.describe_launch_template_versions(
            LaunchTemplateId=reference["LaunchTemplateId"], Versions=[reference["Version"]]
        )["LaunchTemplateVersions"][0]["LaunchTemplateData"]

    def _fetch_user_data(self, group: str) -> str:
        return base64.b64decode(self._fetch_launch_template_data(group)["UserData"]).decode()
