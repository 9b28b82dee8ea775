"""The scaling drill: metric -> alarm -> step policy -> desired capacity, through the deployed resources.

moto stores policies without executing them, so the drill acts as EC2 Auto Scaling would.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from voice_blueprint.aws import names
from voice_blueprint.aws.alarms import AlarmState, evaluate_alarm
from voice_blueprint.aws.autoscaling import GroupSize, adjust_desired_capacity, find_step_adjustment
from voice_blueprint.file.model.deployment import Deployment
from voice_blueprint.file.model.scaling import Comparison, ScalingRule, StepAdjustment
from voice_sandbox.rehearsals.live_alarm import LiveAlarm

if TYPE_CHECKING:
    from types_boto3_autoscaling import AutoScalingClient
    from types_boto3_autoscaling.type_defs import AutoScalingGroupTypeDef, StepAdjustmentTypeDef
    from types_boto3_cloudwatch import CloudWatchClient


MEDIUM_UTILIZATION_PERCENT = 50.0


@dataclass(frozen=True)
class Scenario:
    """A series of metric values with its expected effect.

    Attributes:
        samples: One value per alarm period, oldest first.
        should_fire: Whether the rule must fire; otherwise, nothing may change.
        other_rules: Other rules of the fleet that add hosts. During the scenario, their metrics report half of the
            load.
        is_idle: Whether the scenario starts with the number of hosts before the drill, since a fleet at its maximum
            cannot grow.
    """

    name: str
    fleet: str
    rule: ScalingRule
    samples: tuple[float, ...]
    should_fire: bool
    other_rules: tuple[ScalingRule, ...] = ()
    is_idle: bool = False


@dataclass(frozen=True)
class ScenarioResult:
    """Desired capacities of the groups in a fleet before and after a scenario."""

    scenario: Scenario
    capacities_before: dict[str, int]
    capacities_after: dict[str, int]

    @property
    def expected_capacities(self) -> dict[str, int]:
        """Expected capacities after the rule's step."""
        rule, value = self.scenario.rule, self.scenario.samples[-1] if self.scenario.samples else 0.0
        adjustment = (
            find_step_adjustment(rule.step_adjustments, value - rule.threshold) if self.scenario.should_fire else 0
        )
        return {group: count + adjustment for group, count in self.capacities_before.items()}

    @property
    def passed(self) -> bool:
        """Whether the capacities after the scenario are as expected."""
        return self.capacities_after == self.expected_capacities


def generate_scenarios(deployment: Deployment) -> Iterator[Scenario]:
    """Yield the scenarios for every scaling rule, such as missing data, an outlier, a breach, or a full fleet."""
    fleets = {names.VAD_FLEET: deployment.aws.vad.scaling}
    fleets |= {fleet.name: fleet.scaling for fleet in deployment.aws.asr}
    for fleet, rules in fleets.items():
        for rule in (rule for rule in rules if rule.adds_hosts):
            beyond = _calculate_breaching_value(rule)
            below_threshold = rule.datapoints_to_alarm - 1
            yield Scenario(f"{rule.metric}: no data", fleet, rule, (), should_fire=False)
            if below_threshold:
                yield Scenario(
                    f"{rule.metric} {beyond:g} for {below_threshold} of {rule.evaluation_periods}",
                    fleet,
                    rule,
                    (beyond,) * below_threshold,
                    should_fire=False,
                )
            yield Scenario(
                f"{rule.metric} {beyond:g} for {rule.datapoints_to_alarm} of {rule.evaluation_periods}",
                fleet,
                rule,
                (beyond,) * rule.datapoints_to_alarm,
                should_fire=True,
            )
        if full := next((rule for rule in rules if rule.metric == "SlotsTaken" and rule.adds_hosts), None):
            other_rules = tuple(rule for rule in rules if rule.adds_hosts and rule is not full)
            samples = (100.0,) * full.datapoints_to_alarm
            yield Scenario(
                f"slots 100 %, busy {MEDIUM_UTILIZATION_PERCENT:g} %",
                fleet,
                full,
                samples,
                should_fire=True,
                other_rules=other_rules,
                is_idle=True,
            )


def _calculate_breaching_value(rule: ScalingRule) -> float:
    """Return a value in the first step beyond the threshold, such as 95 for "above 80", or 15 for "below 20"."""
    return max(95.0, rule.threshold + 5) if rule.comparison is Comparison.ABOVE else rule.threshold * 0.75


class Drill:
    """Runs scenarios with the deployed alarms and policies.

    Args:
        start: Time of the first scenario. Each scenario has its own hour, so that the data of others has no effect.
    """

    def __init__(
        self,
        deployment: Deployment,
        *,
        cloudwatch: CloudWatchClient,
        autoscaling: AutoScalingClient,
        start: datetime | None = None,
    ) -> None:
        self._deployment = deployment
        self._cloudwatch = cloudwatch
        self._autoscaling = autoscaling
        now = start or datetime.now(UTC) - timedelta(days=3)
        self._clock = now.replace(minute=0, second=0, microsecond=0)

    def run(self) -> Iterator[ScenarioResult]:
        """Run every scenario from the capacities after the previous scenario, and restore the capacities at the end."""
        played: list[ScenarioResult] = []
        for scenario in generate_scenarios(self._deployment):
            if scenario.is_idle:
                self._restore_capacities(outcome for outcome in played if outcome.scenario.fleet == scenario.fleet)
            played.append(self.run_scenario(scenario))
            yield played[-1]
        self._restore_capacities(played)

    def _restore_capacities(self, played: Iterable[ScenarioResult]) -> None:
        """Restore the number of hosts that each group had before the first scenario."""
        for outcome in reversed(list(played)):
            for group, desired in outcome.capacities_before.items():
                self._autoscaling.set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=desired)

    def run_scenario(self, scenario: Scenario) -> ScenarioResult:
        """Publish one sample of a scenario per period, and execute the alarm's actions when its state becomes ALARM."""
        alarm, *other_rules = (
            LiveAlarm(self._cloudwatch, names.build_scaling_alarm_name(self._deployment, scenario.fleet, rule))
            for rule in (scenario.rule, *scenario.other_rules)
        )
        before = self._list_capacities(scenario.fleet)
        self._clock += timedelta(hours=1)
        state = AlarmState.OK
        # Two periods without data follow, since a breach that has ended must not fire the alarm late.
        for value in (*scenario.samples, None, None):
            if value is not None:
                alarm.publish(value, self._clock)
                for other in other_rules:
                    other.publish(MEDIUM_UTILIZATION_PERCENT, self._clock)
            self._clock += alarm.period
            newest = alarm.evaluate_state(self._clock, state)
            if newest is AlarmState.ALARM and state is not AlarmState.ALARM:
                self._execute_actions(alarm, scenario.samples[-1])
            state = newest
            for other in other_rules:
                if other.evaluate_state(self._clock, AlarmState.OK) is AlarmState.ALARM:
                    self._execute_actions(other, MEDIUM_UTILIZATION_PERCENT)
        return ScenarioResult(scenario, before, self._list_capacities(scenario.fleet))

    def fire_if_breached(self, fleet: str, rule: ScalingRule, at: datetime) -> bool:
        """Evaluate a rule's alarm at a time. If the alarm fires, execute its actions and return True.

        Other programs publish the metrics.
        """
        alarm = LiveAlarm(self._cloudwatch, names.build_scaling_alarm_name(self._deployment, fleet, rule))
        datapoints = alarm.fetch_datapoints(at)
        if evaluate_alarm(alarm.rule, datapoints, AlarmState.OK) is not AlarmState.ALARM:
            return False
        # A slow host publishes late, so CloudWatch uses the newest available value.
        self._execute_actions(alarm, next(value for value in reversed(datapoints) if value is not None))
        return True

    def _execute_actions(self, alarm: LiveAlarm, value: float) -> None:
        """Execute the alarm's actions, as EC2 Auto Scaling would."""
        for policy in self._autoscaling.describe_policies()["ScalingPolicies"]:
            if policy["PolicyARN"] not in alarm.actions:
                continue
            bands = [_parse_step_adjustment(step) for step in policy["StepAdjustments"]]
            adjustment = find_step_adjustment(bands, value - alarm.rule.threshold)
            group = self._describe_group(policy["AutoScalingGroupName"])
            capacity = group["DesiredCapacity"]
            size = GroupSize(capacity, group["MinSize"], group["MaxSize"], in_service_host_count=capacity)
            self._autoscaling.set_desired_capacity(
                AutoScalingGroupName=group["AutoScalingGroupName"],
                DesiredCapacity=adjust_desired_capacity(size, adjustment),
            )

    def _list_capacities(self, fleet: str) -> dict[str, int]:
        groups = (
            names.list_vad_group_names(self._deployment)
            if fleet == names.VAD_FLEET
            else [names.build_group_name(self._deployment, fleet)]
        )
        return {name: self._describe_group(name)["DesiredCapacity"] for name in groups}

    def _describe_group(self, name: str) -> AutoScalingGroupTypeDef:
        return self._autoscaling.describe_auto_scaling_groups(AutoScalingGroupNames=[name])["AutoScalingGroups"][0]


def _parse_step_adjustment(step: StepAdjustmentTypeDef) -> StepAdjustment:
    return StepAdjustment(
        lower=step.get("MetricIntervalLowerBound", float("-inf")),
        upper=step.get("MetricIntervalUpperBound", float("inf")),
        adjustment=step["ScalingAdjustment"],
    )
