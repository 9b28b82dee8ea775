"""Policies of the VPC endpoints, which allow requests signed by this account and downloads of AWS's own programs.

An endpoint policy grants no permissions. It prevents an intruder with credentials of another account from sending data
through an endpoint (https://github.com/aws-samples/data-perimeter-policy-examples).
"""

from aws_cdk import Aws
from aws_cdk import aws_iam as iam

INTERFACE_SERVICES = frozenset(
    {"autoscaling", "ec2", "ecr.api", "ecr.dkr", "elasticloadbalancing", "kms", "logs", "monitoring", "secretsmanager"}
    | {"sns", "sqs", "ssm", "sts"}
)
"""Services that support a policy and only receive signed requests
(https://docs.aws.amazon.com/vpc/latest/privatelink/aws-services-privatelink-support.html)."""

_PUBLIC_BUCKETS = (
    "prod-{region}-starport-layer-bucket",  # image layers in ECR, which have presigned URLs
    "al2023-repos-{region}-de612dc2",  # packages of Amazon Linux 2023
    "amazon-ssm-{region}",  # the SSM agent's updates
    "amazon-ssm-packages-{region}",
    "ec2imagebuilder-toe-{region}-prod",  # the program that builds host images
    "ec2imagebuilder-managed-resources-{region}-prod",
)
"""AWS buckets that hosts read (``vpc_endpoint_policies/s3_endpoint_policy.json`` in the examples above) or that Image
Builder machines read (https://docs.aws.amazon.com/imagebuilder/latest/userguide/vpc-interface-endpoints.html).
"""


def create_own_requests_statement() -> iam.PolicyStatement:
    """Return the statement that allows all requests from this account's principals."""
    return iam.PolicyStatement(
        sid="RequestsOfThisAccount",
        principals=[iam.StarPrincipal()],
        actions=["*"],
        resources=["*"],
        conditions={"StringEquals": {"aws:PrincipalAccount": Aws.ACCOUNT_ID}},
    )


def create_own_buckets_statement() -> iam.PolicyStatement:
    """Return the statement that allows this account's principals to use the buckets in this account."""
    account = {"aws:PrincipalAccount": Aws.ACCOUNT_ID, "aws:ResourceAccount": Aws.ACCOUNT_ID}
    return iam.PolicyStatement(
        sid="BucketsOfThisAccount",
        principals=[iam.StarPrincipal()],
        actions=["s3:*"],
        resources=["*"],
        conditions={"StringEquals": account},
    )


def create_public_buckets_statement(region: str) -> iam.PolicyStatement:
    """Return the statement that allows reading from the AWS buckets that hosts need."""
    return iam.PolicyStatement(
        sid="BucketsOfAws",
        principals=[iam.StarPrincipal()],
        actions=["s3:GetObject"],
        resources=[f"arn:{Aws.PARTITION}:s3:::{name.format(region=region)}/*" for name in _PUBLIC_BUCKETS],
    )
