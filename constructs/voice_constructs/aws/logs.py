"""Log groups."""

from aws_cdk import RemovalPolicy
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from constructs import Construct


def log_group(
    scope: Construct,
    id_: str,
    *,
    key: kms.IKey,
    retention_days: int,
    removal_policy: RemovalPolicy,
    name: str | None = None,
) -> logs.LogGroup:
    """Make an encrypted log group that forgets after ``retention_days``."""
    group = logs.LogGroup(scope, id_, encryption_key=key, removal_policy=removal_policy, log_group_name=name)
    # The L2 takes an enum with one member per number of days; CloudFormation takes the number.
    cfn = group.node.default_child
    assert isinstance(cfn, logs.CfnLogGroup)  # noqa: S101  narrows jsii's IConstruct
    cfn.retention_in_days = retention_days
    return group
