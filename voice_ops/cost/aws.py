"""Priced items for CloudFormation resources."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from voice_ops.cost.model import Amount, ExpectedSizes, ResourceUsage

Properties = dict[str, Any]
MIN_STANDARD_PERIOD_S = 60
"""CloudWatch bills an alarm with a shorter period as a high-resolution alarm."""

DETAILED_METRIC_COUNT = 7
"""Number of metrics that are billed for a host with detailed monitoring.
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/manage-detailed-monitoring.html"""

TARGET_TRACKING_ALARM_COUNT = 2

CLUSTER_METRICS, SERVICE_METRICS = 13, 25
"""Series of Container Insights that are charged as custom metrics: ten for each cluster, service and task definition,
plus three for each cluster and five for each service. Each service has its own task definition.
https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/Container-Insights-metrics-ECS.html"""


@dataclass(frozen=True)
class Templates:
    """The CloudFormation templates of a deployment, with the expected sizes of resources."""

    stacks: Mapping[str, Mapping[str, Any]]
    expected_sizes: ExpectedSizes

    def iter_resources(self) -> Iterator[tuple[str, str, str, Properties]]:
        """Yield the stack, the logical id, the type and the properties of every resource."""
        for stack, template in self.stacks.items():
            for name, resource in template["Resources"].items():
                yield stack, name, resource["Type"], resource.get("Properties", {})

    def find_referenced_properties(self, stack: str, reference: Properties) -> Properties:
        """Return the properties of the resource that ``Ref`` refers to in the same stack."""
        properties: Properties = self.stacks[stack]["Resources"][reference["Ref"]]["Properties"]
        return properties

    def calculate_size(self, name: str, low: object, peak: object) -> Amount:
        """Return the size of a resource in the three cases. Templates may contain the bounds as strings."""
        return self.expected_sizes.calculate_size(name, float(str(low)), float(str(peak)))


PricingRule = Callable[[Templates, str, Properties], Iterator[ResourceUsage]]


def _list_group_uses(templates: Templates, stack: str, properties: Properties) -> Iterator[ResourceUsage]:
    launch = templates.find_referenced_properties(stack, properties["LaunchTemplate"]["LaunchTemplateId"])[
        "LaunchTemplateData"
    ]
    hosts = templates.calculate_size(properties["AutoScalingGroupName"], properties["MinSize"], properties["MaxSize"])
    yield ResourceUsage(launch["InstanceType"], hosts, is_exact=True)
    yield from _list_volume_uses(launch, hosts)
    if launch.get("Monitoring", {}).get("Enabled"):
        yield ResourceUsage("cloudwatch-custom-metric", hosts * DETAILED_METRIC_COUNT)


def _list_warm_pool_uses(templates: Templates, stack: str, properties: Properties) -> Iterator[ResourceUsage]:
    """Yield the volumes of the stopped hosts in a warm pool, whose minimum and maximum size are equal."""
    group = templates.find_referenced_properties(stack, properties["AutoScalingGroupName"])
    launch = templates.find_referenced_properties(stack, group["LaunchTemplate"]["LaunchTemplateId"])[
        "LaunchTemplateData"
    ]
    yield from _list_volume_uses(launch, Amount.fixed(int(properties["MinSize"])))


def _list_volume_uses(launch: Properties, hosts: Amount) -> Iterator[ResourceUsage]:
    """Yield the volumes of hosts. The price of each volume includes 125 MiB/s and 3,000 IOPS."""
    for mapping in launch["BlockDeviceMappings"]:
        volume = mapping["Ebs"]
        yield ResourceUsage("ebs-gp3", hosts * int(volume["VolumeSize"]))
        if (extra_throughput := int(volume["Throughput"]) - 125) > 0:
            yield ResourceUsage("ebs-gp3-throughput", hosts * (extra_throughput / 1024))
        if (extra_throughput := int(volume["Iops"]) - 3000) > 0:
            yield ResourceUsage("ebs-gp3-iops", hosts * extra_throughput)


def _list_service_uses(templates: Templates, stack: str, properties: Properties) -> Iterator[ResourceUsage]:
    task = templates.find_referenced_properties(stack, properties["TaskDefinition"])
    targets = [
        target
        for at, _, kind, target in templates.iter_resources()
        if at == stack and kind == "AWS::ApplicationAutoScaling::ScalableTarget"
    ]
    low, peak = (targets[0]["MinCapacity"], targets[0]["MaxCapacity"]) if targets else (properties["DesiredCount"],) * 2
    tasks = templates.calculate_size(stack, low, peak)
    yield ResourceUsage("fargate-arm-vcpu", tasks * (int(task["Cpu"]) / 1024))
    yield ResourceUsage("fargate-arm-memory", tasks * (int(task["Memory"]) / 1024))


def _list_cluster_uses(templates: Templates, stack: str, properties: Properties) -> Iterator[ResourceUsage]:
    services = [at for at, _, kind, _ in templates.iter_resources() if kind == "AWS::ECS::Service" and at == stack]
    settings = {each["Name"]: each["Value"] for each in properties.get("ClusterSettings", ())}
    if settings.get("containerInsights") == "enabled":
        series = CLUSTER_METRICS + SERVICE_METRICS * len(services)
        yield ResourceUsage("cloudwatch-custom-metric", Amount.fixed(series))


def _list_alarm_uses(_: Templates, __: str, properties: Properties) -> Iterator[ResourceUsage]:
    queried_metrics = [query["MetricStat"] for query in properties.get("Metrics", ()) if "MetricStat" in query] or [
        properties
    ]
    is_high_resolution = min(int(metric["Period"]) for metric in queried_metrics) < MIN_STANDARD_PERIOD_S
    yield ResourceUsage(
        "cloudwatch-high-resolution-alarm" if is_high_resolution else "cloudwatch-alarm",
        Amount.fixed(len(queried_metrics)),
    )


def _list_task_scaling_uses(_: Templates, __: str, properties: Properties) -> Iterator[ResourceUsage]:
    if properties["PolicyType"] == "TargetTrackingScaling":
        yield ResourceUsage("cloudwatch-alarm", Amount.fixed(TARGET_TRACKING_ALARM_COUNT))


def _list_store_uses(_: Templates, __: str, properties: Properties) -> Iterator[ResourceUsage]:
    nodes = properties["NumNodeGroups"] * (properties["ReplicasPerNodeGroup"] + 1)
    yield ResourceUsage(properties["CacheNodeType"], Amount.fixed(nodes), is_exact=True)


def _list_endpoint_uses(_: Templates, __: str, properties: Properties) -> Iterator[ResourceUsage]:
    if properties.get("VpcEndpointType") == "Interface":
        yield ResourceUsage("interface-endpoint-hour", Amount.fixed(len(properties["SubnetIds"])))


def _list_load_balancer_uses(_: Templates, __: str, properties: Properties) -> Iterator[ResourceUsage]:
    yield ResourceUsage("nlb-hour", Amount.fixed(1))
    if properties["Scheme"] == "internet-facing":
        yield ResourceUsage("public-ipv4-hour", Amount.fixed(len(properties["Subnets"])))


def _list_web_acl_uses(_: Templates, __: str, properties: Properties) -> Iterator[ResourceUsage]:
    yield ResourceUsage("waf-web-acl", Amount.fixed(1))
    yield ResourceUsage("waf-rule", Amount.fixed(len(properties["Rules"])))


def _list_health_check_uses(_: Templates, __: str, properties: Properties) -> Iterator[ResourceUsage]:
    config = properties["HealthCheckConfig"]
    yield ResourceUsage("health-check", Amount.fixed(1))
    if options := [config["Type"] == "HTTPS", config["RequestInterval"] == 10].count(True):  # noqa: PLR2004  fast interval of the Route 53 API
        yield ResourceUsage("health-check-option", Amount.fixed(options))


def _create_single_unit_rule(item: str) -> PricingRule:
    def list_uses(_: Templates, __: str, ___: Properties) -> Iterator[ResourceUsage]:
        yield ResourceUsage(item, Amount.fixed(1))

    return list_uses


PRICING_RULES: dict[str, PricingRule] = {
    "AWS::ApplicationAutoScaling::ScalingPolicy": _list_task_scaling_uses,
    "AWS::AutoScaling::AutoScalingGroup": _list_group_uses,
    "AWS::AutoScaling::WarmPool": _list_warm_pool_uses,
    "AWS::CloudWatch::Alarm": _list_alarm_uses,
    "AWS::CloudWatch::CompositeAlarm": _create_single_unit_rule("cloudwatch-composite-alarm"),
    "AWS::CloudWatch::Dashboard": _create_single_unit_rule("cloudwatch-dashboard"),
    "AWS::EC2::EIP": _create_single_unit_rule("public-ipv4-hour"),
    "AWS::EC2::NatGateway": _create_single_unit_rule("nat-gateway-hour"),
    "AWS::EC2::VPCEndpoint": _list_endpoint_uses,
    "AWS::ECS::Cluster": _list_cluster_uses,
    "AWS::ECS::Service": _list_service_uses,
    "AWS::ElastiCache::ReplicationGroup": _list_store_uses,
    "AWS::ElasticLoadBalancingV2::LoadBalancer": _list_load_balancer_uses,
    "AWS::KMS::Key": _create_single_unit_rule("kms-key"),
    "AWS::Logs::MetricFilter": _create_single_unit_rule("cloudwatch-custom-metric"),
    "AWS::Route53::HealthCheck": _list_health_check_uses,
    "AWS::SecretsManager::Secret": _create_single_unit_rule("secret"),
    "AWS::WAFv2::WebACL": _list_web_acl_uses,
}
"""Resource types whose price is independent of traffic."""

ITEMS_BY_TYPE: dict[str, tuple[tuple[str, str | None], ...]] = {
    "AWS::ApiGateway::RestApi": (("requests", "api-gateway-rest-requests"),),
    "AWS::AutoScaling::AutoScalingGroup": (
        ("metrics that the hosts publish", "cloudwatch-custom-metric"),
        ("traffic between zones and to the internet", None),
    ),
    "AWS::EC2::FlowLog": (("logs", "logs-ingested"),),
    "AWS::EC2::NatGateway": (("data", "nat-gateway-data"),),
    "AWS::EC2::VPCEndpoint": (("data", "interface-endpoint-data"),),
    "AWS::ECR::Repository": (("images", "ecr-storage"),),
    "AWS::ElastiCache::ReplicationGroup": (("snapshots", "elasticache-backup"),),
    "AWS::ElasticLoadBalancingV2::LoadBalancer": (("connections and data", "nlb-capacity-unit"),),
    "AWS::KMS::Key": (("requests, and two yearly rotations of each key", None),),
    "AWS::Logs::LogGroup": (("ingestion", "logs-ingested"), ("stored logs", "logs-stored")),
    "AWS::S3::Bucket": (
        ("weights and compiled programs", "s3-standard"),
        ("access logs", "s3-standard"),
        ("archived transcripts", "s3-standard"),
        ("requests for transcripts", "s3-put-requests"),
    ),
    "AWS::SNS::Topic": (("notifications", None),),
    "AWS::WAFv2::WebACL": (("requests", "waf-requests"),),
}
"""Usage-based charges by type. Each has a description of the usage, and an item in the price book if there is one."""

FREE_RESOURCE_TYPES = frozenset(
    f"AWS::{kind}"
    for kind in (
        *("ApiGateway::Account", "ApiGateway::BasePathMapping", "ApiGateway::Deployment", "ApiGateway::DomainName"),
        *("ApiGateway::GatewayResponse", "ApiGateway::Method", "ApiGateway::Model", "ApiGateway::RequestValidator"),
        *("ApiGateway::Resource", "ApiGateway::Stage", "ApiGateway::VpcLink"),
        *("ApplicationAutoScaling::ScalableTarget", "AutoScaling::ScalingPolicy"),
        *("Budgets::Budget", "CertificateManager::Certificate"),
        *("EC2::InternetGateway", "EC2::LaunchTemplate", "EC2::Route", "EC2::RouteTable", "EC2::SecurityGroup"),
        *("EC2::SecurityGroupEgress", "EC2::SecurityGroupIngress", "EC2::Subnet", "EC2::SubnetRouteTableAssociation"),
        *("EC2::VPC", "EC2::VPCGatewayAttachment", "ECS::TaskDefinition"),
        *("ImageBuilder::Component", "ImageBuilder::DistributionConfiguration", "ImageBuilder::ImagePipeline"),
        *("ImageBuilder::ImageRecipe", "ImageBuilder::InfrastructureConfiguration"),
        *("ElastiCache::ParameterGroup", "ElastiCache::SubnetGroup", "ElastiCache::User", "ElastiCache::UserGroup"),
        *("ElasticLoadBalancingV2::Listener", "ElasticLoadBalancingV2::TargetGroup"),
        *("IAM::InstanceProfile", "IAM::ManagedPolicy", "IAM::Policy", "IAM::Role", "Route53::RecordSet"),
        *("S3::BucketPolicy", "SNS::Subscription", "SNS::TopicPolicy", "SSM::Parameter"),
        *("WAFv2::LoggingConfiguration", "WAFv2::WebACLAssociation"),
    )
)
"""Resource types that are not charged separately. The resources that they belong to may be charged."""
