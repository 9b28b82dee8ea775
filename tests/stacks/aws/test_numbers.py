"""Numbers in templates that no setting determines, listed with their purpose.

Each is read from synthesized templates; changing one requires a change here, with its reason.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.nonempty import nonempty
from tests.synthesized import ASR, HOSTS, Stack, Stacks, edited_sandbox, shipped, user_data

GROUP, POLICY, TARGETS = (
    "AutoScaling::AutoScalingGroup",
    "AutoScaling::ScalingPolicy",
    "ElasticLoadBalancingV2::TargetGroup",
)

SERVICES = ("edge", "agents")
REFRESH = "UpdatePolicy.AutoScalingInstanceRefresh.Preferences"

NUMBERS = [
    # --- A host's life
    (HOSTS, GROUP, "LifecycleHookSpecificationList.HeartbeatTimeout", {900},
     "the pull of an accelerator image takes minutes and sends no heartbeat"),
    (HOSTS, GROUP, "HealthCheckGracePeriod", {900}, "not before a launch may be given up"),
    (HOSTS, GROUP, f"{REFRESH}.MinHealthyPercentage", {100}, "a rollout takes no capacity"),
    (HOSTS, GROUP, f"{REFRESH}.SkipMatching", {True}, "a deploy that was tried again goes on where it stopped"),
    (HOSTS, GROUP, "MetricsCollection.Granularity", {"1Minute"}, "fleet-at-maximum reads the group's metrics"),
    (("asr-inf2",), "AutoScaling::WarmPool", "PoolState", {"Stopped"}, "a stopped host costs its volumes only"),
    (HOSTS, "EC2::LaunchTemplate", "LaunchTemplateData.MetadataOptions.HttpPutResponseHopLimit", {1},
     "containers share the host's network"),
    (HOSTS, "EC2::LaunchTemplate", "LaunchTemplateData.EbsOptimized", {True}, "images are pulled to the volume"),
    (HOSTS, "EC2::LaunchTemplate", "LaunchTemplateData.Monitoring.Enabled", {True}, "metrics of a minute, not of five"),
    (HOSTS, "EC2::LaunchTemplate", "LaunchTemplateData.BlockDeviceMappings.Ebs.DeleteOnTermination", {True},
     "no volume outlives its host"),
    # --- Load balancers
    (("vad",), TARGETS, "TargetGroupAttributes.deregistration_delay.timeout_seconds", {"0"},
     "the lifecycle hook drains; UDP flows of a host that left are moved at once"),
    (("vad",), TARGETS, "TargetGroupAttributes.deregistration_delay.connection_termination.enabled", {"true"},
     "without it a flow stays with the host that left"),
    (("vad",), TARGETS, "TargetGroupAttributes.stickiness.enabled", {"true"},
     "a caller whose NAT changes its port stays with its host"),
    (("vad",), TARGETS, "TargetGroupAttributes.stickiness.type", {"source_ip"}, "the only type for UDP"),
    (SERVICES, TARGETS, "TargetGroupAttributes.deregistration_delay.timeout_seconds", {"120"},
     "as long as Fargate lets a task drain"),
    (("agents",), TARGETS, "TargetGroupAttributes.preserve_client_ip.enabled", {"true"},
     "strangers share what is bounded by their addresses"),
    (("edge",), TARGETS, "TargetGroupAttributes.preserve_client_ip.enabled", {"true", "false"},
     "callers of the media port by their addresses; API Gateway has one of its own"),
    (("vad", *SERVICES), TARGETS, "HealthCheckIntervalSeconds", {10},
     "the shortest of a network load balancer but five"),
    # --- Gateway
    (SERVICES, "ApplicationAutoScaling::ScalingPolicy", "TargetTrackingScalingPolicyConfiguration.ScaleOutCooldown",
     {60}, "a task is up in a minute, and sockets come faster than the default of 300 s allows for"),
    (SERVICES, "ApplicationAutoScaling::ScalingPolicy",
     "TargetTrackingScalingPolicyConfiguration.CustomizedMetricSpecification.Statistic", {"Average"},
     "every task publishes its own number: the average is that of a task"),
    (SERVICES, "ECS::Service", "DeploymentConfiguration.MinimumHealthyPercent", {100}, "a rollout takes no capacity"),
    (SERVICES, "ECS::Service", "DeploymentConfiguration.MaximumPercent", {200}, "new tasks beside the old ones"),
    (SERVICES, "ECS::Service", "HealthCheckGracePeriodSeconds", {60}, "how long a new task may fail health checks"),
    (("edge",), "ECS::TaskDefinition", "ContainerDefinitions.MountPoints.ReadOnly", {False},
     "a recording that is sent as a file lies there until it is decoded"),
    (SERVICES, "ECS::TaskDefinition", "ContainerDefinitions.StopTimeout", {120}, "the longest that Fargate grants"),
    (SERVICES, "ECS::TaskDefinition", "ContainerDefinitions.HealthCheck.Interval", {10}, "three failures in 30 s"),
    (SERVICES, "ECS::TaskDefinition", "ContainerDefinitions.HealthCheck.StartPeriod", {60}, "as the service's grace"),
    (SERVICES, "SecretsManager::Secret", "GenerateSecretString.PasswordLength", {64},
     "letters and digits for more than the 256 bits of HMAC-SHA-256"),
    # --- Session API
    (("edge",), "ApiGateway::Method", "Integration.TimeoutInMillis", {900_000},
     "the longest that API Gateway keeps a streamed response open"),
    (("edge",), "WAFv2::WebACL", "Rules.Statement.RateBasedStatement.EvaluationWindowSec", {300},
     "the setting counts requests in five minutes"),
    (SERVICES, "S3::Bucket", "LifecycleConfiguration.Rules.NoncurrentVersionExpiration.NoncurrentDays", {7},
     "long enough to find out who replaced a log"),
    # --- Registry
    (("registry",), "S3::Bucket", "LifecycleConfiguration.Rules.NoncurrentVersionExpiration.NoncurrentDays", {30},
     "a rollback to weights that were written over is a matter of days"),
    (("registry",), "S3::Bucket",
     "LifecycleConfiguration.Rules.AbortIncompleteMultipartUpload.DaysAfterInitiation", {7},
     "a job ends within a day, and tries again"),
    # --- State store
    (("state",), "SecretsManager::Secret", "GenerateSecretString.PasswordLength", {48}, "ElastiCache takes 16 to 128"),
    (("state",), "ElastiCache::ReplicationGroup", "NumNodeGroups", {1}, "clients know one primary"),
    (("state",), "ElastiCache::ParameterGroup", "Properties.maxmemory-policy", {"volatile-ttl"},
     "at its limit the store gives up the sessions nearest their end"),
    # --- Money
    (("observability",), "Budgets::Budget", "NotificationsWithSubscribers.Notification.Threshold", {80, 100},
     "80 % spent leaves days to act, 100 % forecast leaves weeks"),
    (("observability",), "Budgets::Budget", "Budget.TimeUnit", {"MONTHLY"}, "the setting is of a month"),
]  # fmt: skip


SWITCHES: dict[str, dict[str, set[object]]] = {
    "ApiGateway::Method": {
        "ApiKeyRequired": {False},
        "RequestParameters.method.request.header.Last-Event-ID": {False},
        "RequestParameters.method.request.header.X-Voice-Token": {True},
        "RequestParameters.method.request.path.id": {True},
    },
    "ApiGateway::Model": {
        "Schema.additionalProperties": {False},
        "Schema.properties.language.maxLength": {35},
        "Schema.properties.end_of_turn_ms.minimum": {0},
        "Schema.properties.end_of_turn_ms.maximum": {5000},
        "Schema.properties.prompt.maxLength": {1000},
        "Schema.properties.call.maxLength": {128},
        "Schema.properties.media.properties.srtp.properties.key.maxLength": {40},
        "Schema.properties.media.properties.srtp.properties.key.minLength": {40},
        "Schema.properties.media.additionalProperties": {False},
        # Required in a request, returned in a response.
        **{
            f"Schema.properties.media.properties.{where}{what}": {value}
            for where in ("", "srtp.properties.")
            for what, value in {
                "packet_ms.minimum": 10,
                "packet_ms.maximum": 60,
                "payload_type.minimum": 0,
                "payload_type.maximum": 127,
                "telephone_events.items.minimum": 96,
                "telephone_events.items.maximum": 127,
                "telephone_events.minItems": 1,
                "telephone_events.maxItems": 8,
            }.items()
        },
    },
    "ApiGateway::RequestValidator": {"ValidateRequestBody": {True}, "ValidateRequestParameters": {True}},
    "ApiGateway::RestApi": {"DisableExecuteApiEndpoint": {True}},
    "ApiGateway::Stage": {"MethodSettings.DataTraceEnabled": {False}, "TracingEnabled": {True}},
    GROUP: {
        "Tags.PropagateAtLaunch": {True},
        "UpdatePolicy.AutoScalingScheduledAction.IgnoreUnmodifiedGroupSizeProperties": {True},
    },
    "EC2::LaunchTemplate": {
        "LaunchTemplateData.BlockDeviceMappings.Ebs.Encrypted": {True},
        "LaunchTemplateData.NetworkInterfaces.AssociatePublicIpAddress": {False},
        "LaunchTemplateData.NetworkInterfaces.DeviceIndex": {0},
    },
    "EC2::Subnet": {"MapPublicIpOnLaunch": {False}},
    "EC2::VPC": {"EnableDnsHostnames": {True}, "EnableDnsSupport": {True}},
    "EC2::VPCEndpoint": {"PrivateDnsEnabled": {True}},
    "ECR::Repository": {"ImageScanningConfiguration.ScanOnPush": {True}},
    "ECS::Service": {
        "DeploymentConfiguration.Alarms.Enable": {False},
        "DeploymentConfiguration.Alarms.Rollback": {False},
        "DeploymentConfiguration.DeploymentCircuitBreaker.Enable": {True},
        "DeploymentConfiguration.DeploymentCircuitBreaker.Rollback": {True},
        "EnableECSManagedTags": {False},
        "LoadBalancers.ContainerPort": {8080, 8083, 8084},
    },
    "ECS::TaskDefinition": {
        "ContainerDefinitions.Essential": {True},
        "ContainerDefinitions.HealthCheck.Retries": {3},
        "ContainerDefinitions.HealthCheck.Timeout": {5},
        "ContainerDefinitions.LinuxParameters.InitProcessEnabled": {True},
        "ContainerDefinitions.PortMappings.ContainerPort": {8080, 8083, 8084},
        "ContainerDefinitions.ReadonlyRootFilesystem": {True},
    },
    "ElastiCache::ReplicationGroup": {
        "AtRestEncryptionEnabled": {True},
        "AutoMinorVersionUpgrade": {True},
        "Port": {6379},
        "TransitEncryptionEnabled": {True},
    },
    "ElasticLoadBalancingV2::Listener": {"Port": {443, 5004, 8080}},
    TARGETS: {"Port": {5004, 8080, 8083, 8084}},
    "KMS::Key": {"EnableKeyRotation": {True}},
    "S3::Bucket": {
        "BucketEncryption.ServerSideEncryptionConfiguration.BucketKeyEnabled": {True},
        "PublicAccessBlockConfiguration.BlockPublicAcls": {True},
        "PublicAccessBlockConfiguration.BlockPublicPolicy": {True},
        "PublicAccessBlockConfiguration.IgnorePublicAcls": {True},
        "PublicAccessBlockConfiguration.RestrictPublicBuckets": {True},
    },
    "ImageBuilder::ImageRecipe": {
        "BlockDeviceMappings.Ebs.DeleteOnTermination": {True},
        "BlockDeviceMappings.Ebs.Encrypted": {True},
    },
    "ImageBuilder::InfrastructureConfiguration": {
        "InstanceMetadataOptions.HttpPutResponseHopLimit": {1},
        "TerminateInstanceOnFailure": {True},
    },
    "SecretsManager::Secret": {"GenerateSecretString.ExcludePunctuation": {True}},
    "WAFv2::WebACL": {
        "Rules.Priority": {0, 1, 2},
        "Rules.VisibilityConfig.CloudWatchMetricsEnabled": {True},
        "Rules.VisibilityConfig.SampledRequestsEnabled": {False},
        "VisibilityConfig.CloudWatchMetricsEnabled": {True},
        "VisibilityConfig.SampledRequestsEnabled": {False},
    },
}
"""Ports, switches and CDK defaults in all stacks whose names are self-explanatory."""

CONFIGURED_NUMBERS: dict[str, dict[str, set[object]]] = {
    "ApiGateway::Stage": {"MethodSettings.ThrottlingBurstLimit": {400}, "MethodSettings.ThrottlingRateLimit": {200}},
    "ApplicationAutoScaling::ScalableTarget": {"MaxCapacity": {10, 100}, "MinCapacity": {1}},
    "ApplicationAutoScaling::ScalingPolicy": {"TargetTrackingScalingPolicyConfiguration.TargetValue": {6, 74}},
    GROUP: {
        "DefaultInstanceWarmup": {120, 300},
        f"{REFRESH}.MaxHealthyPercentage": {110},
        f"{REFRESH}.CheckpointPercentages": {10, 50, 100},
        f"{REFRESH}.CheckpointDelay": {0},
        f"{REFRESH}.BakeTime": {0},
    },
    POLICY: {
        "StepAdjustments.MetricIntervalLowerBound": {0},
        "StepAdjustments.MetricIntervalUpperBound": {0},
        "StepAdjustments.ScalingAdjustment": {-1, 1, 2},
    },
    "AutoScaling::WarmPool": {"MinSize": {1}, "MaxGroupPreparedCapacity": {1}},
    "Budgets::Budget": {"Budget.BudgetLimit.Amount": {100}},
    "EC2::LaunchTemplate": {
        "LaunchTemplateData.BlockDeviceMappings.Ebs.Iops": {3000},
        "LaunchTemplateData.BlockDeviceMappings.Ebs.Throughput": {125},
        "LaunchTemplateData.BlockDeviceMappings.Ebs.VolumeSize": {40, 200},
    },
    "ECR::Repository": {"EmptyOnDelete": {True}},  # a sandbox keeps nothing
    "ElastiCache::ReplicationGroup": {
        "AutomaticFailoverEnabled": {True},  # there is a replica
        "MultiAZEnabled": {True},
        "ReplicasPerNodeGroup": {1},
        "SnapshotRetentionLimit": {0},
    },
    "ImageBuilder::ImageRecipe": {"BlockDeviceMappings.Ebs.VolumeSize": {40, 200}},
    "Logs::LogGroup": {"RetentionInDays": {1}},
    "S3::Bucket": {"LifecycleConfiguration.Rules.ExpirationInDays": {1}},
    "WAFv2::WebACL": {"Rules.Statement.RateBasedStatement.Limit": {10_000}},
}
"""Values of deployments/sandbox.yaml, or defaults."""

TESTED_ELSEWHERE = ("CloudWatch::Alarm", "EC2::SecurityGroup")
"""Prefixes of types whose numbers are tested in docs/runbooks/README.md and in the flows of the contract."""


@pytest.fixture(scope="module")
def sandbox() -> Stacks:
    return shipped("sandbox")


def values_at(value: Any, path: str) -> Iterator[object]:  # noqa: ANN401  whatever a template can hold
    """Yield the values at a path, including all list items; a list of keys and values is treated as a mapping."""
    if (
        isinstance(value, list)
        and value
        and all(isinstance(each, dict) and {*each} == {"Key", "Value"} for each in value)
    ):
        value = {each["Key"]: each["Value"] for each in value}
    if isinstance(value, list):
        for each in value:
            yield from values_at(each, path)
    elif not path:
        yield value
    elif isinstance(value, dict):
        for key in value:
            if path == key or path.startswith(f"{key}."):
                yield from values_at(value[key], path.removeprefix(key).removeprefix("."))


def numbers(value: Any, path: str = "") -> Iterator[tuple[str, object]]:  # noqa: ANN401  whatever a template can hold
    """Yield each number and switch with its path, in the notation of ``values_at``."""
    match value:
        case dict():
            for key, inner in value.items():
                if not key.startswith("Fn::"):
                    yield from numbers(inner, f"{path}.{key}".removeprefix("."))
        case list():
            for inner in value:
                yield from numbers(inner, path)
        case bool() | int() | float():
            yield path, value


def test_every_number_of_a_template_is_listed(sandbox: Stacks) -> None:
    found: dict[tuple[str, str], set[object]] = {}
    for stack in sandbox.values():
        for kind in {resource["Type"].removeprefix("AWS::") for resource in stack.template["Resources"].values()}:
            if not kind.startswith(TESTED_ELSEWHERE):
                for resource in resources(stack, kind):
                    for place, value in numbers(resource):
                        found.setdefault((kind, place), set()).add(value)
    reasoned = {(kind, place) for _, kind, place, _, _ in NUMBERS}
    stated = {(kind, place): values for table in (SWITCHES, CONFIGURED_NUMBERS) for kind, places in table.items()
              for place, values in places.items()}  # fmt: skip
    assert {key: values for key, values in found.items() if key not in reasoned} == stated


def resources(stack: Stack, kind: str) -> list[dict[str, Any]]:
    return [{**resource.get("Properties", {}), "UpdatePolicy": resource.get("UpdatePolicy", {})}
            for resource in stack.of_type(kind).values()]  # fmt: skip


@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: number[2].rpartition(".")[2])
def test_number_in_a_template(number: tuple[tuple[str, ...], str, str, set[object], str], sandbox: Stacks) -> None:
    tiers, kind, place, value, why = number
    for tier in nonempty(tiers):
        found = {each for resource in resources(sandbox[tier], kind) for each in values_at(resource, place)}
        assert found == value, f"{tier}: {place} was {value}: {why}"


USER_DATA = {
    "HEARTBEAT_EVERY_S=300": (HOSTS, "a third of the hook's heartbeat: two may be lost"),
    "READY_BUDGET_S=900": (HOSTS, "engines fetch weights and compile at their first start"),
    "VOICE_CHUNK_PORT=5006": (HOSTS, "chunks go from one tier to the other"),
    "VOICE_VALKEY_PORT=6379": (HOSTS, "the store's own"),
    "VOICE_PROMETHEUS_PORT=9400": (HOSTS, "telemetry, on the loopback only"),
    "VOICE_HEALTH_PORT=8081": (("vad",), "the load balancer asks it"),
    "VOICE_HEALTH_PORT=8082": (ASR, "another than the data plane's"),
    "--shm-size=16384m": (ASR, "hidden states pass through it"),
}


@pytest.mark.parametrize("word", USER_DATA)
def test_number_in_host_configuration(word: str, sandbox: Stacks) -> None:
    tiers, why = USER_DATA[word]
    for tier in HOSTS:
        for template in nonempty(sandbox[tier].properties("EC2::LaunchTemplate")):
            if "LaunchTemplateName" in template:  # the host of a job, which does not serve calls
                continue
            told = re.search(rf"(?<!\w){re.escape(word)}(?!\w)", user_data(template)) is not None
            assert told is (tier in tiers), f"{tier}: {word}: {why}"


@pytest.mark.parametrize(
    ("alarm", "aggregation"),
    [
        ("sandbox-vad-slots-high", "Average"),
        ("sandbox-inf2-headroom-low", "Average"),
        ("sandbox-p5-gpu-busy-high", "Average"),
    ],
)
def test_a_policy_aggregates_like_its_rule(alarm: str, aggregation: str, sandbox: Stacks) -> None:
    (stack,) = (sandbox[tier] for tier in HOSTS
                if alarm in {each["AlarmName"] for each in sandbox[tier].properties("CloudWatch::Alarm")})  # fmt: skip
    (found,) = (each for each in stack.properties("CloudWatch::Alarm") if each["AlarmName"] == alarm)
    policies = stack.of_type(POLICY)
    read = {policies[action["Ref"]]["Properties"]["MetricAggregationType"] for action in found["AlarmActions"]}
    assert read == {aggregation}
    assert found["Statistic"] == aggregation


def test_a_policy_uses_the_maximum_if_the_rule_does(tmp_path: Path) -> None:
    stack = edited_sandbox({"aws.asr.0.scaling.0.statistic": "maximum"}, tmp_path)["asr-inf2"]
    read = {alarm["Statistic"]: alarm["AlarmActions"][0]["Ref"] for alarm in stack.properties("CloudWatch::Alarm")}
    assert stack.of_type(POLICY)[read["Maximum"]]["Properties"]["MetricAggregationType"] == "Maximum"
