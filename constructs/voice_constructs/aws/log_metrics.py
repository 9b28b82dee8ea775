"""Metrics that are counted from log events."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from aws_cdk import aws_logs as logs
from constructs import Construct

from voice_blueprint.aws.metrics import LOG_METRICS, build_log_namespace
from voice_blueprint.file.model.deployment import Deployment


@dataclass(frozen=True)
class LogMetricsProps:
    """Properties of ``LogMetrics``.

    Attributes:
        log_groups: Log groups by their names in the contract.
    """

    deployment: Deployment
    log_groups: Mapping[Literal["vad", "asr", "gateway", "flow-logs"], logs.ILogGroup]


class LogMetrics(Construct):
    """A metric filter for each log metric in the contract. Filters are free; a metric costs 0.30 USD per month."""

    def __init__(self, scope: Construct, id_: str, *, props: LogMetricsProps) -> None:
        super().__init__(scope, id_)
        deployment = props.deployment
        # A VPC of this product uses an RFC 1918 range of /16 or smaller, so two octets identify it.
        first, second, *_ = deployment.aws.network.cidr.split(".")
        for name, log_metric in LOG_METRICS.items():
            logs.CfnMetricFilter(
                self,
                name,
                log_group_name=props.log_groups[log_metric.source].log_group_name,
                # str.format is not used, since the patterns contain braces and brackets.
                filter_pattern=log_metric.pattern.replace("{address_prefix}", f"{first}.{second}."),
                metric_transformations=[
                    logs.CfnMetricFilter.MetricTransformationProperty(
                        metric_namespace=build_log_namespace(deployment.name),
                        metric_name=name,
                        metric_value=log_metric.value,
                        unit=log_metric.metric.unit,
                    )
                ],
            )
