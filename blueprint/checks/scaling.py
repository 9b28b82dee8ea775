"""Checks on scaling rules: what CloudWatch can do, and what would scale the wrong way."""

from collections.abc import Iterator

from blueprint.checks.base import Check, Level, Violation
from blueprint.checks.fleets import Fleet, fleets
from blueprint.contract.metrics import METRICS
from blueprint.file.loading import suggestion
from blueprint.file.model.deployment import Deployment
from blueprint.file.model.scaling import Comparison, MissingData, ScalingRule
from blueprint.file.source import Location

_PUT_METRIC_ALARM = "https://docs.aws.amazon.com/AmazonCloudWatch/latest/APIReference/API_PutMetricAlarm.html"
_SUB_MINUTE_PERIODS = (10, 20, 30)
ALARM_ACTIONS = 5
"""Actions that one alarm may have for a state."""
LONGEST_EVALUATION_S = 86_400


def _rules(deployment: Deployment) -> Iterator[tuple[Fleet, ScalingRule, Location]]:
    for fleet in fleets(deployment):
        for index, rule in enumerate(fleet.rules):
            yield fleet, rule, (*fleet.location, "scaling", index)


class AlarmPeriod(Check):
    """Metrics may be stored each second; alarms look every ten at best."""

    id = "alarm-period"
    level = Level.ERROR
    about = "Alarm periods are 10, 20, 30 or a multiple of 60 seconds, over one day at most."
    source = _PUT_METRIC_ALARM

    def examine(self, deployment: Deployment) -> Iterator[Violation]:
        """Check every rule's period."""
        for _, rule, location in _rules(deployment):
            if rule.period_s not in _SUB_MINUTE_PERIODS and rule.period_s % 60:
                yield Violation(
                    (*location, "period_s"),
                    f"CloudWatch has no alarm period of {rule.period_s} s",
                    "take 10, 20, 30 or a multiple of 60",
                )
            span_s = rule.period_s * rule.evaluation_periods
            if span_s > LONGEST_EVALUATION_S:
                yield Violation(
                    (*location, "evaluation_periods"),
                    f"{rule.evaluation_periods} periods of {rule.period_s} s are {span_s} s, more than one day",
                    "evaluate fewer or shorter periods",
                )


class ScalingMetricPublished(Check):
    """An alarm on a metric that nobody publishes never fires."""

    id = "scaling-metric-published"
    level = Level.ERROR
    about = "Every scaling rule reads a metric that the fleet's own hosts publish."
    source = "blueprint/contract/; DPDK's ENA driver has no rx-queue count; NCCL needs more than one GPU"

    def examine(self, deployment: Deployment) -> Iterator[Violation]:
        """Look the metric up in the contract."""
        for fleet, rule, location in _rules(deployment):
            offered = [
                metric.name for metric in METRICS.values() if fleet.tier in metric.tiers and metric.is_of_whole_fleet
            ]
            if rule.metric not in offered:
                yield Violation(
                    (*location, "metric"),
                    f"{rule.metric} is not published by hosts of fleet {fleet.name}{suggestion(rule.metric, offered)}",
                    f"choose among {', '.join(offered)}",
                )


class ScalingMetricMeasurable(Check):
    """A metric has to exist on the fleet's accelerator."""

    id = "scaling-metric-measurable"
    level = Level.ERROR
    about = "Neuron metrics scale Neuron fleets, GPU metrics scale GPU fleets."
    source = "neuron-monitor and DCGM each see their own vendor's devices"

    def examine(self, deployment: Deployment) -> Iterator[Violation]:
        """Compare the metric with the fleet's accelerator."""
        for fleet, rule, location in _rules(deployment):
            accelerator = fleet.instance_type.accelerator
            needed = "neuron" if rule.metric.startswith("Neuron") else "gpu" if rule.metric.startswith("Gpu") else None
            if accelerator and needed and accelerator.kind != needed:
                yield Violation(
                    (*location, "metric"),
                    f"{rule.metric} cannot be measured on {fleet.instance_type.name} ({accelerator.model})",
                    "use " + ("GpuBusy" if accelerator.kind == "gpu" else "NeuronHeadroom"),
                )


class ScalingDirection(Check):
    """Adding hosts to an idle fleet is the classic inversion."""

    id = "scaling-direction"
    level = Level.ERROR
    about = "A fleet grows when its load is high and shrinks when its load is low."
    source = (
        "Auto Scaling step policies: https://docs.aws.amazon.com/autoscaling/ec2/userguide/as-scaling-simple-step.html"
    )

    def examine(self, deployment: Deployment) -> Iterator[Violation]:
        """Compare the rule's direction with the metric's."""
        for fleet, rule, location in _rules(deployment):
            metric = METRICS.get(rule.metric)
            if metric is None or metric.load is None:
                continue
            fires_when_loaded = (rule.comparison is Comparison.ABOVE) == (metric.load == "rises")
            if rule.adds_hosts != fires_when_loaded:
                verb = "adds hosts to" if rule.adds_hosts else "removes hosts from"
                state = "busy" if fires_when_loaded else "idle"
                yield Violation(
                    (*location, "comparison"),
                    f"{rule.metric} {rule.comparison} {rule.threshold:g} {verb} fleet {fleet.name} while it is {state}",
                    "turn the comparison or the steps round, or use a metric that runs the other way "
                    "(NeuronHeadroom instead of NeuronUtilization)",
                )


class ScaleInBesideScaleOut(Check):
    """What only grows costs for ever."""

    id = "scale-in-beside-scale-out"
    level = Level.WARNING
    about = "Every fleet that can grow has a rule that shrinks it, and the other way round."
    source = "https://docs.aws.amazon.com/autoscaling/ec2/userguide/as-scaling-simple-step.html"

    def examine(self, deployment: Deployment) -> Iterator[Violation]:
        """Look for both directions."""
        for fleet in fleets(deployment):
            directions = {rule.adds_hosts for rule in fleet.rules}
            if len(directions) == 1:
                only, lacking = ("out", "in") if True in directions else ("in", "out")
                yield Violation(
                    (*fleet.location, "scaling"),
                    f"fleet {fleet.name} scales {only} but never {lacking}",
                    f"add a rule that scales {lacking}",
                )


class ScalingDoesNotFlap(Check):
    """Two rules on one metric must not both hold."""

    id = "scaling-does-not-flap"
    level = Level.ERROR
    about = "No value of a metric makes one rule add hosts and another remove them."
    source = "https://docs.aws.amazon.com/autoscaling/ec2/userguide/as-scaling-simple-step.html"

    def examine(self, deployment: Deployment) -> Iterator[Violation]:
        """Compare each scale-out rule with the scale-in rules on its metric."""
        for fleet, out, location in _rules(deployment):
            for back in fleet.rules:
                if not out.adds_hosts or back.adds_hosts or back.metric != out.metric:
                    continue
                same_side = back.comparison is out.comparison
                overlap = (
                    back.threshold > out.threshold
                    if out.comparison is Comparison.ABOVE
                    else back.threshold < out.threshold
                )
                if same_side or overlap:
                    yield Violation(
                        location,
                        f"{out.metric}: {out.name} ({out.comparison} {out.threshold:g}) and {back.name} "
                        f"({back.comparison} {back.threshold:g}) hold at the same time",
                        "leave a gap between the two thresholds",
                    )


class ScalesFromZero(Check):
    """No host, no metric, no alarm."""

    id = "scales-from-zero"
    level = Level.ERROR
    about = "A fleet that scales on its own hosts' metrics keeps at least one host."
    source = "https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/alarms-and-missing-data.html"

    def examine(self, deployment: Deployment) -> Iterator[Violation]:
        """Look for fleets that may shrink to nothing."""
        for fleet in fleets(deployment):
            if fleet.min_hosts == 0 and fleet.rules:
                yield Violation(
                    fleet.location,
                    f"fleet {fleet.name} may shrink to 0 hosts, and then nobody publishes the metric that would "
                    "bring the first one back",
                    "set min to 1 or more",
                )


class MissingDataIsSafe(Check):
    """A dead exporter must neither grow nor shrink a fleet."""

    id = "missing-data-is-safe"
    level = Level.ERROR
    about = "Missing data never changes the size of a fleet."
    source = "https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/alarms-and-missing-data.html"

    def examine(self, deployment: Deployment) -> Iterator[Violation]:
        """Refuse ``breaching``, and ``missing``: with it one breaching datapoint before the silence is enough."""
        for fleet, rule, location in _rules(deployment):
            if rule.missing_data in {MissingData.BREACHING, MissingData.MISSING}:
                yield Violation(
                    (*location, "missing_data"),
                    f"without data, {rule.name} would change fleet {fleet.name} by {rule.steps[0].adjustment} hosts",
                    "use not-breaching",
                )


class SilentAlarmEnds(Check):
    """An alarm that keeps its state over silence keeps acting."""

    id = "silent-alarm-ends"
    level = Level.WARNING
    about = "A scaling alarm whose metric falls silent goes back to OK."
    source = (
        "https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/alarm-actions.html "
        "(Auto Scaling actions are repeated every minute while the alarm stays in ALARM)"
    )

    def examine(self, deployment: Deployment) -> Iterator[Violation]:
        """Look for ``ignore``."""
        for fleet, rule, location in _rules(deployment):
            if rule.missing_data is MissingData.IGNORE:
                yield Violation(
                    (*location, "missing_data"),
                    f"if the exporters die while {rule.name} is in ALARM, it stays there and changes fleet "
                    f"{fleet.name} by {rule.steps[0].adjustment} every minute, to its bound",
                    "use not-breaching",
                )


class AlarmActionsFit(Check):
    """One alarm drives one policy per zone."""

    id = "alarm-actions-fit"
    level = Level.ERROR
    about = f"The VAD fleet has at most {ALARM_ACTIONS} zones: one alarm has that many actions."
    source = _PUT_METRIC_ALARM

    def examine(self, deployment: Deployment) -> Iterator[Violation]:
        """Count the zones."""
        zones = len(deployment.aws.availability_zones)
        if zones > ALARM_ACTIONS:
            yield Violation(
                ("aws", "availability_zones"),
                f"{zones} zones need {zones} policies on one alarm, CloudWatch takes {ALARM_ACTIONS}",
                f"use at most {ALARM_ACTIONS} zones",
            )


CHECKS: tuple[Check, ...] = (
    AlarmPeriod(),
    ScalingMetricPublished(),
    ScalingMetricMeasurable(),
    ScalingDirection(),
    ScaleInBesideScaleOut(),
    ScalingDoesNotFlap(),
    MissingDataIsSafe(),
    SilentAlarmEnds(),
    ScalesFromZero(),
    AlarmActionsFit(),
)
