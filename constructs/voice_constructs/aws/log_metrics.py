"""Metrics that are counted in logs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from aws_cdk import aws_logs as logs
from constructs import Construct

from blueprint.aws.metrics import LOG_METRICS, log_namespace
from blueprint.file.model.deployment import Deployment


@dataclass(frozen=True)
class LogMetricsProps:
    """What ``LogMetrics`` is made from.

    Attributes:
        log_groups: By what the contract calls them.
    """

    deployment: Deployment
    log_groups: Mapping[Literal["vad", "asr", "gateway", "flow-logs"], logs.ILogGroup]


class LogMetrics(Construct):
    """One metric filter for each log metric of the contract; only the metric is charged, 0.30 USD a month."""

    def __init__(self, scope: Construct, id_: str, *, props: LogMetricsProps) -> None:
        super().__init__(scope, id_)
        deployment = props.deployment
        # A VPC here is RFC 1918 and a /16 or smaller: two octets hold all of it, and nothing of the internet.
        first, second, *_ = deployment.aws.network.cidr.split(".")
        for name, counted in LOG_METRICS.items():
            logs.CfnMetricFilter(
                self,
                name,
                log_group_name=props.log_groups[counted.source].log_group_name,
                # Not str.format: the patterns have braces and brackets of their own.
                filter_pattern=counted.pattern.replace("{address_prefix}", f"{first}.{second}."),
                metric_transformations=[
                    logs.CfnMetricFilter.MetricTransformationProperty(
                        metric_namespace=log_namespace(deployment.name),
                        metric_name=name,
                        metric_value=counted.value,
                        unit=counted.metric.unit,
                    )
                ],
            )
