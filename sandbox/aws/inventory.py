"""What exists in the local AWS, kind by kind: taken before a deploy and after a teardown, the two must agree."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import boto3

Lister = Callable[[boto3.Session, str], Iterable[str]]


def _pages(service: str, operation: str, items: str, key: str | None, keep: Callable[[Any], bool] = bool) -> Lister:
    """Return a lister over one paginated call; ``key`` is ``None`` where the items are plain names."""

    def list_names(session: boto3.Session, endpoint: str) -> Iterable[str]:
        client = session.client(service, endpoint_url=endpoint)  # type: ignore[call-overload]
        pages = (
            client.get_paginator(operation).paginate()
            if client.can_paginate(operation)
            else [getattr(client, operation)()]
        )
        for page in pages:
            for item in page[items]:
                if keep(item):
                    yield item[key] if key else item

    return list_names


def _instances(session: boto3.Session, endpoint: str) -> Iterable[str]:
    client = session.client("ec2", endpoint_url=endpoint)
    for page in client.get_paginator("describe_instances").paginate():
        for reservation in page["Reservations"]:
            for instance in reservation["Instances"]:
                if instance["State"]["Name"] != "terminated":
                    yield instance["InstanceId"]


def _keys(session: boto3.Session, endpoint: str) -> Iterable[str]:
    client = session.client("kms", endpoint_url=endpoint)
    for page in client.get_paginator("list_keys").paginate():
        for key in page["Keys"]:
            # A deleted key waits out its recovery window, as on AWS.
            if client.describe_key(KeyId=key["KeyId"])["KeyMetadata"]["KeyState"] != "PendingDeletion":
                yield key["KeyId"]


def _alarms(session: boto3.Session, endpoint: str) -> Iterable[str]:
    client = session.client("cloudwatch", endpoint_url=endpoint)
    for page in client.get_paginator("describe_alarms").paginate(AlarmTypes=["MetricAlarm", "CompositeAlarm"]):
        yield from (alarm["AlarmName"] for alarm in (*page["MetricAlarms"], *page.get("CompositeAlarms", [])))


def _managed_policies(session: boto3.Session, endpoint: str) -> Iterable[str]:
    client = session.client("iam", endpoint_url=endpoint)
    for page in client.get_paginator("list_policies").paginate(Scope="Local"):
        yield from (policy["PolicyName"] for policy in page["Policies"])


def _web_acls(session: boto3.Session, endpoint: str) -> Iterable[str]:
    client = session.client("wafv2", endpoint_url=endpoint)
    yield from (acl["Id"] for acl in client.list_web_acls(Scope="REGIONAL")["WebACLs"])


def _dns_records(session: boto3.Session, endpoint: str) -> Iterable[str]:
    client = session.client("route53", endpoint_url=endpoint)
    for zone in client.list_hosted_zones()["HostedZones"]:
        for record in client.list_resource_record_sets(HostedZoneId=zone["Id"])["ResourceRecordSets"]:
            yield f"{record['Type']} {record['Name']}"


def _budgets(session: boto3.Session, endpoint: str) -> Iterable[str]:
    account = session.client("sts", endpoint_url=endpoint).get_caller_identity()["Account"]
    budgets = session.client("budgets", endpoint_url=endpoint).describe_budgets(AccountId=account)["Budgets"]
    yield from (budget["BudgetName"] for budget in budgets)


def _scalable_targets(session: boto3.Session, endpoint: str) -> Iterable[str]:
    client = session.client("application-autoscaling", endpoint_url=endpoint)
    targets = client.describe_scalable_targets(ServiceNamespace="ecs")["ScalableTargets"]
    yield from (target["ResourceId"] for target in targets)


LISTERS: dict[str, Lister] = {
    "stack": _pages(
        "cloudformation",
        "list_stacks",
        "StackSummaries",
        "StackName",
        lambda stack: stack["StackStatus"] != "DELETE_COMPLETE",
    ),
    "VPC": _pages("ec2", "describe_vpcs", "Vpcs", "VpcId"),
    "subnet": _pages("ec2", "describe_subnets", "Subnets", "SubnetId"),
    "route table": _pages("ec2", "describe_route_tables", "RouteTables", "RouteTableId"),
    "internet gateway": _pages("ec2", "describe_internet_gateways", "InternetGateways", "InternetGatewayId"),
    "NAT gateway": _pages(
        "ec2", "describe_nat_gateways", "NatGateways", "NatGatewayId", lambda nat: nat["State"] != "deleted"
    ),
    "elastic IP": _pages("ec2", "describe_addresses", "Addresses", "AllocationId"),
    "VPC endpoint": _pages(
        "ec2", "describe_vpc_endpoints", "VpcEndpoints", "VpcEndpointId", lambda vpce: vpce["State"] != "deleted"
    ),
    "flow log": _pages("ec2", "describe_flow_logs", "FlowLogs", "FlowLogId"),
    "security group": _pages("ec2", "describe_security_groups", "SecurityGroups", "GroupId"),
    "network interface": _pages("ec2", "describe_network_interfaces", "NetworkInterfaces", "NetworkInterfaceId"),
    "volume": _pages("ec2", "describe_volumes", "Volumes", "VolumeId"),
    "launch template": _pages("ec2", "describe_launch_templates", "LaunchTemplates", "LaunchTemplateId"),
    "instance": _instances,
    "Auto Scaling group": _pages(
        "autoscaling", "describe_auto_scaling_groups", "AutoScalingGroups", "AutoScalingGroupName"
    ),
    "scaling policy": _pages("autoscaling", "describe_policies", "ScalingPolicies", "PolicyARN"),
    "alarm": _alarms,
    "replication group": _pages(
        "elasticache", "describe_replication_groups", "ReplicationGroups", "ReplicationGroupId"
    ),
    "cache user": _pages("elasticache", "describe_users", "Users", "UserId"),
    "secret": _pages("secretsmanager", "list_secrets", "SecretList", "Name"),
    "parameter": _pages("ssm", "describe_parameters", "Parameters", "Name"),
    "key": _keys,
    "image repository": _pages("ecr", "describe_repositories", "repositories", "repositoryName"),
    "log group": _pages("logs", "describe_log_groups", "logGroups", "logGroupName"),
    "load balancer": _pages("elbv2", "describe_load_balancers", "LoadBalancers", "LoadBalancerArn"),
    "target group": _pages("elbv2", "describe_target_groups", "TargetGroups", "TargetGroupArn"),
    "managed policy": _managed_policies,
    "role": _pages("iam", "list_roles", "Roles", "RoleName"),
    "REST API": _pages("apigateway", "get_rest_apis", "items", "id"),
    "VPC link": _pages("apigateway", "get_vpc_links", "items", "id"),
    "API domain name": _pages("apigateway", "get_domain_names", "items", "domainName"),
    "web ACL": _web_acls,
    "container cluster": _pages("ecs", "list_clusters", "clusterArns", None),
    "task definition": _pages("ecs", "list_task_definitions", "taskDefinitionArns", None),
    "certificate": _pages("acm", "list_certificates", "CertificateSummaryList", "CertificateArn"),
    "DNS record": _dns_records,
    "bucket": _pages("s3", "list_buckets", "Buckets", "Name"),
    "topic": _pages("sns", "list_topics", "Topics", "TopicArn"),
    "subscription": _pages("sns", "list_subscriptions", "Subscriptions", "SubscriptionArn"),
    "dashboard": _pages("cloudwatch", "list_dashboards", "DashboardEntries", "DashboardName"),
    "metric filter": _pages("logs", "describe_metric_filters", "metricFilters", "filterName"),
    "budget": _budgets,
    "cache user group": _pages("elasticache", "describe_user_groups", "UserGroups", "UserGroupId"),
    "cache subnet group": _pages(
        "elasticache", "describe_cache_subnet_groups", "CacheSubnetGroups", "CacheSubnetGroupName"
    ),
    "cache parameter group": _pages(
        "elasticache", "describe_cache_parameter_groups", "CacheParameterGroups", "CacheParameterGroupName"
    ),
    "scalable target": _scalable_targets,
    "instance profile": _pages("iam", "list_instance_profiles", "InstanceProfiles", "InstanceProfileName"),
}


def inventory(session: boto3.Session, endpoint: str) -> dict[str, set[str]]:
    """Return the ids of everything that exists, by kind."""
    return {kind: set(lister(session, endpoint)) for kind, lister in LISTERS.items()}


def added(before: dict[str, set[str]], after: dict[str, set[str]]) -> Counter[str]:
    """Count what has come since, by kind; kinds with nothing new are left out."""
    return Counter({kind: len(after[kind] - before[kind]) for kind in after if after[kind] - before[kind]})
