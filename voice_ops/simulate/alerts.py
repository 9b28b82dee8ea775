"""Replay of a file's alerts, which shows the alerts that fire during the simulation.

A replay uses the rule object from which the alarm on AWS, or the rule of Prometheus or Azure Monitor, is rendered.
Alerts on metrics that cannot be derived from calls and hosts, such as a real-time factor, are not replayed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from voice_blueprint.aws.alarms import AlarmRule, AlarmState, count_evaluated_periods, evaluate_alarm
from voice_blueprint.capacity.bounds import SOCKETS_PER_CALL
from voice_blueprint.contract.metrics import FLEET_DIMENSION
from voice_blueprint.file.model.deployment import Deployment
from voice_blueprint.file.model.scaling import Comparison, MissingData
from voice_blueprint.observability.alerting import BURN_RATE_WINDOWS, ERROR_BUDGET_ALERT_ID, MIN_REFUSALS
from voice_blueprint.observability.aws.alerts import Alert as AwsAlert
from voice_blueprint.observability.aws.alerts import build_alerts as aws_alerts
from voice_blueprint.observability.aws.series import Resource, Series
from voice_blueprint.observability.azure.alerts import Alert as AzureAlert
from voice_blueprint.observability.azure.alerts import build_alerts as azure_alerts
from voice_blueprint.observability.azure.platform import build_platform_alerts
from voice_ops.simulate.fleet import Fleet, Group, ProcessGenerator
from voice_ops.simulate.metrics import METRIC_MODELS, HostValues

if TYPE_CHECKING:
    from voice_ops.simulate.run import Simulation

UNHEALTHY_HOST_DURATION_S = 300.0
"""Time for which a load balancer lists a failed host before its group or service replaces it. ASSUMED."""
MINUTE_S = 60

SampleReader = Callable[["Simulation"], HostValues]
"""Function that returns the samples of a tick."""


@dataclass(frozen=True)
class AlertRule:
    """An alert on metrics that can be derived from calls and hosts.

    Attributes:
        id: Id of the alert, which is also the name of its runbook.
        name: Name of the alarm or rule.
        readers: Functions that return the samples of each series.
        statistics: Statistic of each series over a period.
        combine_values: Function that combines the values of several series.
        windows_s: Windows that must all breach, evaluated every minute; empty for an alert that is evaluated per
            period.
    """

    id: str
    name: str
    rule: AlarmRule
    period_s: int
    readers: tuple[SampleReader, ...]
    statistics: tuple[str, ...]
    combine_values: Callable[[Sequence[float | None]], float | None]
    windows_s: tuple[int, ...] = ()


@dataclass(frozen=True)
class FiredAlert:
    """An alert that fired.

    Attributes:
        at_s: Time since the start of the trace, s.
    """

    id: str
    name: str
    at_s: float


class AlertReplay:
    """Evaluation of one alert during a simulation."""

    def __init__(self, simulation: Simulation, alert_rule: AlertRule) -> None:
        self._simulation, self._alert_rule = simulation, alert_rule
        self._samples: list[list[HostValues]] = [[] for _ in alert_rule.readers]
        self.firings: list[FiredAlert] = []

    def sample(self) -> None:
        """Take the samples of a tick."""
        for samples, read in zip(self._samples, self._alert_rule.readers, strict=True):
            samples.append(read(self._simulation))

    def evaluate_periodically(self) -> ProcessGenerator:
        """Evaluate the alert after each period."""
        watched, env = self._alert_rule, self._simulation.env
        if watched.windows_s:
            yield from self._watch_windows()
        window: deque[float | None] = deque(maxlen=count_evaluated_periods(watched.rule))
        state = AlarmState.OK
        while True:
            yield env.timeout(watched.period_s)
            window.append(
                watched.combine_values([self._aggregate_period(number) for number in range(len(watched.readers))])
            )
            before, state = state, evaluate_alarm(watched.rule, tuple(window), state)
            begins = 0 < env.now <= watched.period_s  # an alert that has been firing since the lead-in is counted once
            if state is AlarmState.ALARM and env.now > 0 and (begins or before is not AlarmState.ALARM):
                self.firings.append(FiredAlert(watched.id, watched.name, env.now))

    def _watch_windows(self) -> ProcessGenerator:
        """Evaluate sums over windows every minute, in the same way as CloudWatch and Prometheus."""
        watched, env, fires = self._alert_rule, self._simulation.env, False
        minutes: deque[list[float]] = deque(maxlen=max(watched.windows_s) // MINUTE_S)
        while True:
            yield env.timeout(MINUTE_S)
            minutes.append([self._aggregate_period(number) or 0.0 for number in range(len(watched.readers))])
            before = fires
            fires = all(self._is_breached(minutes, window_s) for window_s in watched.windows_s)
            if fires and env.now > 0 and (not before or env.now <= MINUTE_S):
                self.firings.append(FiredAlert(watched.id, watched.name, env.now))

    def _is_breached(self, minutes: deque[list[float]], window_s: int) -> bool:
        recent = islice(reversed(minutes), window_s // MINUTE_S)
        value = self._alert_rule.combine_values([sum(column) for column in zip(*recent, strict=True)])
        return value is not None and value > self._alert_rule.rule.threshold

    def _aggregate_period(self, number: int) -> float | None:
        values = np.concatenate(self._samples[number]) if self._samples[number] else np.zeros(0)
        self._samples[number] = []
        statistic = self._alert_rule.statistics[number]
        if statistic == "SampleCount":
            return float(values.size) or None
        return float(_AGGREGATOR_BY_STATISTIC[statistic](values)) if values.size else None


_AGGREGATOR_BY_STATISTIC: Mapping[str, Callable[[HostValues], float]] = {
    "Average": np.mean,
    "Maximum": np.max,
    "Minimum": np.min,
    "Sum": np.sum,
}


def list_replayable_alerts(deployment: Deployment, simulation: Simulation) -> Iterator[AlertRule]:
    """Yield the alerts in a file that can be replayed.

    If the file has both sections, only the alerts of the AWS section are replayed, since callers use that section.
    """
    if deployment.aws_section:
        for alert in aws_alerts(deployment):
            if rules := _build_aws_rule(deployment, simulation, alert):
                yield rules
    else:
        for rule in azure_alerts(deployment):
            if rules := _build_azure_rule(simulation, rule):
                yield rules
        for each in build_platform_alerts(deployment):
            # Load, errors and connections of Azure's services cannot be derived from calls and hosts.
            if each.id == "redis-memory-high":
                above = AlarmRule(Comparison.ABOVE, each.threshold, 1, 1, MissingData.NOT_BREACHING)
                reads, period_s = (_calculate_store_percent,), each.window_minutes * MINUTE_S
                yield AlertRule(each.id, each.id, above, period_s, reads, (each.aggregation,), lambda values: values[0])


# --- AWS ------------------------------------------------------------------------------------------------------


def _build_aws_rule(deployment: Deployment, simulation: Simulation, alert: AwsAlert) -> AlertRule | None:
    reads = [_create_series_reader(simulation, each) for each in alert.series]
    available = [each for each in reads if each]
    if len(available) < len(reads):
        return None
    statistics = tuple(series.statistic for series in alert.series)
    name = alert.format_alarm_name(deployment)
    windows = () if alert.short_window_s is None else tuple(alert.period_s_by_window.values())
    return AlertRule(alert.id, name, alert.rule, alert.period_s, tuple(available), statistics, alert.aggregate, windows)


_RESULT_FIELD_BY_METRIC: Mapping[str, str] = {
    "SessionsRefused": "rejected_attempts",
    "SessionsCreated": "admitted",
    "ConversationsRefused": "conversations_refused",
}
"""Ledger fields by metric."""
_KIND_BY_TARGET = {
    Resource.VAD_TARGETS: "vad",
    Resource.GATEWAY_PUBLIC_TARGETS: "gateway",
    Resource.GATEWAY_API_TARGETS: "gateway",
    Resource.AGENT_TARGETS: "agent",
}


def _create_series_reader(simulation: Simulation, series: Series) -> SampleReader | None:
    """Return a reader for a series, or ``None`` if the series cannot be derived from calls and hosts."""
    metric, dimensions = series.metric.name, series.dimensions
    if metric in _RESULT_FIELD_BY_METRIC and len(dimensions) == 2:  # noqa: PLR2004  deployment and fleet
        return _create_result_increase_reader(_RESULT_FIELD_BY_METRIC[metric])
    if metric == "DatabaseMemoryUsagePercentage":
        return _calculate_store_percent
    if metric == "UnHealthyHostCount":
        kind = next(
            _KIND_BY_TARGET[value]
            for value in dimensions.values()
            if isinstance(value, Resource) and value in _KIND_BY_TARGET
        )
        return lambda run: np.array([float(run.count_unhealthy_hosts(kind))])
    if metric == "GroupInServiceInstances":
        (group,) = (each for each in _iter_groups(simulation) if each.plan.name in dimensions.values())
        return lambda _: np.array([float(group.size.in_service_host_count)])
    named = [each for each in simulation.fleets if each.plan.name == dimensions.get(FLEET_DIMENSION)]
    if named and metric == "OpenSockets":
        sockets = _create_host_metric_reader(named[0], metric)
        return lambda run: SOCKETS_PER_CALL * sockets(run)
    if not named or metric not in {*METRIC_MODELS, "Conversations"}:
        return None
    return _create_host_metric_reader(named[0], metric)


def _calculate_calls_per_host(fleet: Fleet) -> HostValues:
    return fleet.calls.astype(float)


def _create_host_metric_reader(fleet: Fleet, metric: str) -> SampleReader:
    model = METRIC_MODELS.get(metric, _calculate_calls_per_host)
    return lambda _: np.zeros(0) if metric in fleet.silent_metrics else model(fleet)[fleet.live]


def _iter_groups(simulation: Simulation) -> Iterator[Group]:
    return (group for fleet in simulation.fleets for group in fleet.groups)


def _calculate_store_percent(run: Simulation) -> HostValues:
    max_calls = run.calls.store_call_limit
    return np.array([100.0 * run.calls.active_calls / max_calls]) if max_calls else np.zeros(0)


def _create_result_increase_reader(field: str) -> SampleReader:
    """Return a reader for the increase in a ledger field since the previous sample.

    The ledger is reset at the start of the trace.
    """
    before = [0]

    def read(run: Simulation) -> HostValues:
        now = int(getattr(run.calls.call_results, field))
        increase, before[0] = max(0, now - before[0]), now
        return np.array([float(increase)])

    return read


# --- Azure ----------------------------------------------------------------------------------------------------


def _build_azure_rule(simulation: Simulation, alert: AzureAlert) -> AlertRule | None:
    # Latency objectives cannot be derived from calls and hosts.
    latency = alert.id == ERROR_BUDGET_ALERT_ID and not (alert.target or "").startswith("admission-")
    reads = None if latency else _create_azure_readers(simulation, alert)
    if reads is None:
        return None
    rule = AlarmRule(alert.comparison, alert.threshold, alert.minutes, alert.minutes, MissingData.NOT_BREACHING)
    counted = {"sessions-refused", "conversations-refused", ERROR_BUDGET_ALERT_ID}
    statistics = ("Sum",) * len(reads) if alert.id in counted else ("Maximum",)
    combine_values = _calculate_refused_percent if len(reads) == 2 else lambda values: values[0]  # noqa: PLR2004  a part and the remainder
    windows = _parse_alert_windows(alert) if alert.id == ERROR_BUDGET_ALERT_ID else ()
    return AlertRule(alert.id, alert.name, rule, MINUTE_S, reads, statistics, combine_values, windows)


def _parse_alert_windows(alert: AzureAlert) -> tuple[int, ...]:
    (window,) = (each for each in BURN_RATE_WINDOWS if alert.name.endswith(f"-{each.name}"))
    return window.long_s, window.short_s


def _calculate_refused_percent(values: Sequence[float | None]) -> float | None:
    """Return the percentage of refused sessions, or 0 for fewer than ``MIN_REFUSALS`` refusals.

    The period is one minute, whereas the rule on refusals uses five.
    """
    refused, admitted = (value or 0.0 for value in values)
    if not refused + admitted:
        return None
    return 100 * refused / (refused + admitted) if refused >= MIN_REFUSALS else 0.0


def _create_azure_readers(simulation: Simulation, alert: AzureAlert) -> tuple[SampleReader, ...] | None:
    fleets = simulation.fleets
    scaled = [fleet for fleet in fleets if any(group.min_hosts < group.max_hosts for group in fleet.plan.groups)]
    by_deployment = {_get_deployment_name(fleet): fleet for fleet in fleets}
    match alert.id:
        case "sessions-refused" | "error-budget-burns":
            return _create_result_increase_reader("rejected_attempts"), _create_result_increase_reader("admitted")
        case "conversations-refused":
            return (_create_result_increase_reader("conversations_refused"),)
        case "asr-slots-exhausted":
            tier = [fleet for fleet in fleets if fleet.plan.kind == "asr"]
            return tuple(_create_host_metric_reader(fleet, "FreeSlots") for fleet in tier) or None
        case "replicas-at-maximum":
            return (
                lambda _: np.array([_count_ready_hosts(fleet) / fleet.plan.max_hosts for fleet in scaled] or [0.0]),
            )
        case "replicas-missing":
            return (
                lambda _: np.array(
                    [float(_count_desired_hosts(fleet) - _count_ready_hosts(fleet)) for fleet in fleets]
                ),
            )
        case "service-down" if alert.target in by_deployment:
            fleet = by_deployment[alert.target]
            return (lambda _: np.array([float(_count_ready_hosts(fleet))]),)
        case "node-not-ready":
            # A zone's nodes remain in the cluster during an outage; the value is the share of ready nodes.
            return (lambda run: np.array([0.0 if run.account.lost_zones else 1.0]),)
        case _:
            return None


def _get_deployment_name(fleet: Fleet) -> str:
    """Return the name of a fleet's service or tier, which is the target of the alert ``service-down``."""
    return fleet.plan.name.partition(" on ")[0]


def _count_ready_hosts(fleet: Fleet) -> int:
    return int(np.count_nonzero(fleet.open))


def _count_desired_hosts(fleet: Fleet) -> int:
    return sum(group.desired for group in fleet.groups)
