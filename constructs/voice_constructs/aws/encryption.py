"""Customer-managed keys."""

from collections.abc import Sequence

from aws_cdk import RemovalPolicy
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct

from voice_constructs.aws.pseudo import ACCOUNT_ID, PARTITION


class EncryptionKey(kms.Key):
    """A rotating key for the data of one stack. It costs about 1 USD per month.

    Args:
        purpose: Data that the key encrypts, for the key's description.
        removal_policy: Removal policy of the key.
    """

    def __init__(self, scope: Construct, id_: str, *, purpose: str, removal_policy: RemovalPolicy) -> None:
        super().__init__(
            scope,
            id_,
            description=f"voice-serve: {purpose}",
            enable_key_rotation=True,
            removal_policy=removal_policy,
        )

    def allow_logs(self, region: str) -> None:
        """Allow CloudWatch Logs in this account to use the key for its log groups."""
        self.add_to_resource_policy(
            iam.PolicyStatement(
                principals=[iam.ServicePrincipal(f"logs.{region}.amazonaws.com")],
                actions=["kms:Encrypt", "kms:Decrypt", "kms:ReEncrypt*", "kms:GenerateDataKey*", "kms:DescribeKey"],
                resources=["*"],
                conditions={
                    "ArnLike": {"kms:EncryptionContext:aws:logs:arn": f"arn:{PARTITION}:logs:{region}:{ACCOUNT_ID}:*"}
                },
            )
        )

    def allow_publishers(self, services: Sequence[str]) -> None:
        """Allow AWS services in this account to use the key to publish to an encrypted topic."""
        for service in services:
            self.add_to_resource_policy(
                iam.PolicyStatement(
                    principals=[iam.ServicePrincipal(f"{service}.amazonaws.com")],
                    actions=["kms:Decrypt", "kms:GenerateDataKey*"],
                    resources=["*"],
                    conditions={"StringEquals": {"aws:SourceAccount": ACCOUNT_ID}},
                )
            )

    def allow_log_delivery(self, region: str) -> None:
        """Allow AWS to use the key to deliver access logs of this account's load balancers to encrypted buckets."""
        self.add_to_resource_policy(
            iam.PolicyStatement(
                principals=[iam.ServicePrincipal("delivery.logs.amazonaws.com")],
                actions=["kms:Encrypt", "kms:Decrypt", "kms:ReEncrypt*", "kms:GenerateDataKey*", "kms:DescribeKey"],
                resources=["*"],
                conditions=create_log_delivery_condition(region),
            )
        )

    def allow_auto_scaling(self) -> None:
        """Allow EC2 Auto Scaling to use the key to launch instances with encrypted volumes.

        The service-linked role is matched by name in a condition. As a principal, it would have to exist already, which
        is not the case in a new account.
        """
        role = (
            f"arn:{PARTITION}:iam::{ACCOUNT_ID}:role/aws-service-role/"
            "autoscaling.amazonaws.com/AWSServiceRoleForAutoScaling"
        )
        auto_scaling_principal = {
            "StringEquals": {"kms:CallerAccount": ACCOUNT_ID},
            "ArnEquals": {"aws:PrincipalArn": role},
        }
        self.add_to_resource_policy(
            iam.PolicyStatement(
                principals=[iam.AnyPrincipal()],
                actions=["kms:Encrypt", "kms:Decrypt", "kms:ReEncrypt*", "kms:GenerateDataKey*", "kms:DescribeKey"],
                resources=["*"],
                conditions=auto_scaling_principal,
            )
        )
        self.add_to_resource_policy(
            iam.PolicyStatement(
                principals=[iam.AnyPrincipal()],
                actions=["kms:CreateGrant"],
                resources=["*"],
                conditions={**auto_scaling_principal, "Bool": {"kms:GrantIsForAWSResource": "true"}},
            )
        )


def create_log_delivery_condition(region: str) -> dict[str, dict[str, str]]:
    """Return the policy condition that limits log delivery by AWS to logs from this account and region."""
    return {
        "StringEquals": {"aws:SourceAccount": ACCOUNT_ID},
        "ArnLike": {"aws:SourceArn": f"arn:{PARTITION}:logs:{region}:{ACCOUNT_ID}:*"},
    }
