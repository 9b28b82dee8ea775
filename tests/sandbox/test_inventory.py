"""The inventory covers every kind of deployed resource; otherwise the "0 left" of a teardown would be incomplete."""

import re
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.model import ListShape, Shape, StructureShape

from tests.synthesized import shipped, two_regions
from voice_sandbox.aws.inventory import INVENTORY_KINDS, LIST_CALL_BY_KIND, collect_resource_ids, count_added_resources
from voice_sandbox.aws.process import LocalAws

LISTED_TYPES = {
    "ApiGateway::DomainName": "API domain name",
    "ApiGateway::RestApi": "REST API",
    "ApiGateway::VpcLink": "VPC link",
    "ApplicationAutoScaling::ScalableTarget": "scalable target",
    "AutoScaling::AutoScalingGroup": "Auto Scaling group",
    "AutoScaling::ScalingPolicy": "scaling policy",
    "Budgets::Budget": "budget",
    "CertificateManager::Certificate": "certificate",
    "CloudWatch::Alarm": "alarm",
    "CloudWatch::CompositeAlarm": "alarm",
    "CloudWatch::Dashboard": "dashboard",
    "EC2::EIP": "elastic IP",
    "EC2::FlowLog": "flow log",
    "EC2::InternetGateway": "internet gateway",
    "EC2::LaunchTemplate": "launch template",
    "EC2::NatGateway": "NAT gateway",
    "EC2::RouteTable": "route table",
    "EC2::SecurityGroup": "security group",
    "EC2::Subnet": "subnet",
    "EC2::VPC": "VPC",
    "EC2::VPCEndpoint": "VPC endpoint",
    "ECR::Repository": "image repository",
    "ECS::Cluster": "container cluster",
    "ECS::TaskDefinition": "task definition",
    "ElastiCache::ParameterGroup": "cache parameter group",
    "ElastiCache::ReplicationGroup": "replication group",
    "ElastiCache::SubnetGroup": "cache subnet group",
    "ElastiCache::User": "cache user",
    "ElastiCache::UserGroup": "cache user group",
    "ElasticLoadBalancingV2::LoadBalancer": "load balancer",
    "ElasticLoadBalancingV2::TargetGroup": "target group",
    "IAM::InstanceProfile": "instance profile",
    "IAM::ManagedPolicy": "managed policy",
    "IAM::Role": "role",
    "KMS::Key": "key",
    "Logs::LogGroup": "log group",
    "Logs::MetricFilter": "metric filter",
    "Route53::HealthCheck": "health check",
    "Route53::RecordSet": "DNS record",
    "S3::Bucket": "bucket",
    "SNS::Subscription": "subscription",
    "SNS::Topic": "topic",
    "SSM::Parameter": "parameter",
    "SecretsManager::Secret": "secret",
    "WAFv2::WebACL": "web ACL",
}

DELETED_WITH = {
    "ApiGateway::Account": "a setting of the account, which a deletion leaves as it is on AWS too",
    "ApiGateway::BasePathMapping": "API domain name",
    "ApiGateway::Deployment": "REST API",
    "ApiGateway::GatewayResponse": "REST API",
    "ApiGateway::Method": "REST API",
    "ApiGateway::Model": "REST API",
    "ApiGateway::RequestValidator": "REST API",
    "ApiGateway::Resource": "REST API",
    "ApiGateway::Stage": "REST API",
    "ApplicationAutoScaling::ScalingPolicy": "scalable target",
    "AutoScaling::WarmPool": "Auto Scaling group",
    "EC2::Route": "route table",
    "EC2::SecurityGroupEgress": "security group",
    "EC2::SecurityGroupIngress": "security group",
    "EC2::SubnetRouteTableAssociation": "route table",
    "EC2::VPCGatewayAttachment": "internet gateway",
    "ECS::Service": "container cluster",
    "ElasticLoadBalancingV2::Listener": "load balancer",
    "IAM::Policy": "role",
    **{
        f"ImageBuilder::{kind}": "its stack: the local AWS has no Image Builder, and keeps properties alone"
        for kind in (
            "Component",
            "DistributionConfiguration",
            "ImagePipeline",
            "ImageRecipe",
            "InfrastructureConfiguration",
        )
    },
    "S3::BucketPolicy": "bucket",
    "SNS::TopicPolicy": "topic",
    "WAFv2::LoggingConfiguration": "web ACL",
    "WAFv2::WebACLAssociation": "web ACL",
}


def test_every_deployed_type_is_listed_or_belongs_to_a_listed_type() -> None:
    deployed = {
        resource["Type"].removeprefix("AWS::")
        for stack in [*shipped("sandbox").values(), *two_regions().values()]
        for resource in stack.template["Resources"].values()
    }
    assert deployed == set(LISTED_TYPES) | set(DELETED_WITH)
    assert set(LISTED_TYPES.values()) <= INVENTORY_KINDS


def members(shape: Shape) -> set[str]:
    """Return the names of all members that a response may have."""
    if isinstance(shape, ListShape):
        return members(shape.member)
    if not isinstance(shape, StructureShape):
        return set()
    return {name for key, inner in shape.members.items() for name in (key, *members(inner))}


@pytest.mark.parametrize("kind", LIST_CALL_BY_KIND)
def test_a_misspelled_path_is_an_error(kind: str) -> None:
    service, operation, path, *_ = LIST_CALL_BY_KIND[kind]
    meta: Any = boto3.client(service, region_name="us-east-1").meta
    answer = meta.service_model.operation_model(meta.method_to_api_mapping[operation]).output_shape
    named = set(re.findall(r"[A-Za-z]+", re.sub("'[^']*'", "", path)))
    assert named - members(answer) == set()


def test_only_new_resources_count_as_remaining() -> None:
    before = {"VPC": {"vpc-default"}, "role": set[str]()}
    after = {"VPC": {"vpc-default", "vpc-new"}, "role": set[str]()}
    assert count_added_resources(before, after) == {"VPC": 1}
    assert not count_added_resources(before, before)


def test_parameters_of_aws_itself_are_excluded(tmp_path: Path) -> None:
    """moto lists AWS's parameters, ten per call, once one of them has been read."""
    with LocalAws(tmp_path / "aws.log", region="us-east-1") as aws:
        session, client = aws.create_session(), aws.client("ssm")
        before = collect_resource_ids(session, aws.endpoint)
        client.get_parameter(Name="/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-arm64")
        client.put_parameter(Name="ours", Value="1", Type="String")
        assert count_added_resources(before, collect_resource_ids(session, aws.endpoint)) == {"parameter": 1}
