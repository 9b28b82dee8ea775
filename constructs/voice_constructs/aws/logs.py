"""Log groups."""

from collections.abc import Mapping

from aws_cdk import RemovalPolicy
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from constructs import Construct

from voice_blueprint.file.model.observability import LogRetentionDays

_RETENTION_BY_DAYS: Mapping[LogRetentionDays, logs.RetentionDays] = {
    1: logs.RetentionDays.ONE_DAY,
    3: logs.RetentionDays.THREE_DAYS,
    7: logs.RetentionDays.ONE_WEEK,
    14: logs.RetentionDays.TWO_WEEKS,
    30: logs.RetentionDays.ONE_MONTH,
    60: logs.RetentionDays.TWO_MONTHS,
    90: logs.RetentionDays.THREE_MONTHS,
    180: logs.RetentionDays.SIX_MONTHS,
    365: logs.RetentionDays.ONE_YEAR,
    400: logs.RetentionDays.THIRTEEN_MONTHS,
    731: logs.RetentionDays.TWO_YEARS,
}


def create_log_group(
    scope: Construct,
    id_: str,
    *,
    key: kms.IKey,
    retention_days: LogRetentionDays,
    removal_policy: RemovalPolicy,
    name: str | None = None,
) -> logs.LogGroup:
    """Create an encrypted log group with a retention of ``retention_days``."""
    return logs.LogGroup(
        scope,
        id_,
        encryption_key=key,
        removal_policy=removal_policy,
        log_group_name=name,
        retention=_RETENTION_BY_DAYS[retention_days],
    )
