"""Rules on alerts: each must detect a fault, be able to fire, and notify an action group."""

import math
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from voice_stacks.azure.policy.promql import (
    COMPARISON_OPERATORS,
    BinaryOperation,
    Expression,
    FunctionCall,
    Number,
    PromqlError,
    Selector,
    parse_expression,
)
from voice_stacks.azure.policy.rules import Stack, Violation, rule, stack_rule
from voice_stacks.azure.policy.series import NEUTRAL_SERIES, BreachDirection, collect_known_series
from voice_stacks.azure.policy.values import Value

_COMPARISON_BY_OPERATOR: Mapping[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
}
_DIRECTION_BY_OPERATOR = {
    ">": BreachDirection.UP,
    ">=": BreachDirection.UP,
    "<": BreachDirection.DOWN,
    "<=": BreachDirection.DOWN,
}
_CLAMP_FUNCTION_BY_NAME: Mapping[str, Callable[[float, float], float]] = {"clamp_min": max, "clamp_max": min}


@dataclass(frozen=True)
class ValueRange:
    """Possible values of an expression.

    Attributes:
        healthy_value: Value in the healthy state; ``None`` if the expression has no result in that state.
        low: Minimum value.
        high: Maximum value.
        breach_direction: Direction of bad values; ``None`` if unknown.
    """

    healthy_value: float | None
    low: float
    high: float
    breach_direction: BreachDirection | None


def calculate_value_range(expression: Expression) -> ValueRange:
    """Return the possible values of an expression for one replica, so that each sum has a single series."""
    match expression:
        case Number():
            return ValueRange(expression.value, expression.value, expression.value, None)
        case Selector():
            series = collect_known_series().get(expression.name, NEUTRAL_SERIES)
            return ValueRange(series.healthy_value, series.low, series.high, series.breach_direction)
        case FunctionCall():
            return _calculate_call_range(expression)
        case BinaryOperation():
            return _calculate_binary_range(expression)


def _calculate_call_range(call: FunctionCall) -> ValueRange:
    if call.name in {"absent", "absent_over_time"}:
        return ValueRange(None, 1, 1, BreachDirection.UP)
    inner = next(
        (calculate_value_range(each) for each in reversed(call.arguments) if not isinstance(each, Number)), None
    )
    if inner is None:
        return ValueRange(None, -math.inf, math.inf, None)
    limit = call.arguments[-1]
    if call.name in _CLAMP_FUNCTION_BY_NAME and isinstance(limit, Number):
        clamp = _CLAMP_FUNCTION_BY_NAME[call.name]
        healthy = None if inner.healthy_value is None else clamp(inner.healthy_value, limit.value)
        return replace(
            inner, healthy_value=healthy, low=clamp(inner.low, limit.value), high=clamp(inner.high, limit.value)
        )
    return inner


def _calculate_binary_range(binary: BinaryOperation) -> ValueRange:
    left, right = calculate_value_range(binary.left), calculate_value_range(binary.right)
    if binary.operator == "unless":
        return ValueRange(None, left.low, left.high, BreachDirection.UP)
    if binary.operator in {"and", "or"}:
        return left
    if binary.operator in COMPARISON_OPERATORS:
        is_true = left.healthy_value is not None and right.healthy_value is not None
        is_true = is_true and _COMPARISON_BY_OPERATOR[binary.operator](
            left.healthy_value or 0, right.healthy_value or 0
        )
        return replace(left, healthy_value=left.healthy_value if is_true else None)
    opposite = right.breach_direction.opposite if right.breach_direction else None
    one, other = left.healthy_value, right.healthy_value
    is_known = one is not None and other is not None
    match binary.operator:
        case "-":
            healthy = (one or 0) - (other or 0) if is_known else None
            return ValueRange(healthy, left.low - right.high, left.high - right.low, left.breach_direction or opposite)
        case "+":
            healthy = (one or 0) + (other or 0) if is_known else None
            return ValueRange(
                healthy, left.low + right.low, left.high + right.high, left.breach_direction or right.breach_direction
            )
        case "/":
            share = other or 1
            return ValueRange(one / share if one is not None else None, left.low / share, left.high / share,
                         left.breach_direction or opposite)  # fmt: skip
        case _:
            factor = other if other is not None else 1
            return ValueRange(one * factor if one is not None else None, left.low * factor, left.high * factor,
                         left.breach_direction or right.breach_direction)  # fmt: skip


@rule(
    "alerts-watch-the-bad-side",
    "Every alert must fire on bad values of its metric, at a threshold that the metric can reach.",
    remedy="reverse the comparison, or move the threshold between the healthy value and the bad values",
    source="https://prometheus.io/docs/practices/alerting; healthy values: stacks/voice_stacks/azure/policy/series.py",
)
def check_alerts_detect_bad_values(stack: Stack) -> Iterator[Violation]:
    for group in stack.find_resources(":PrometheusRuleGroup"):
        for each in group.props["rules"]:
            name, text = each["alert"].text, each["expression"].text
            try:
                result = parse_expression(text) if name and text else None
            except PromqlError as error:
                yield Violation(group.urn, f"alert {name}: {error}")
                continue
            if (
                isinstance(result, BinaryOperation)
                and result.operator in COMPARISON_OPERATORS
                and isinstance(result.right, Number)
            ):
                for problem in _find_threshold_problems(
                    calculate_value_range(result.left), result.operator, result.right.value
                ):
                    yield Violation(group.urn, f"alert {name} {problem}")


def _find_threshold_problems(watched: ValueRange, sign: str, threshold: float) -> Iterator[str]:
    compares = _COMPARISON_BY_OPERATOR[sign]
    if watched.healthy_value is not None and compares(watched.healthy_value, threshold):
        yield f"fires in the healthy state: {watched.healthy_value:g} {sign} {threshold:g}"
    elif sign in _DIRECTION_BY_OPERATOR and not compares(
        watched.high if _DIRECTION_BY_OPERATOR[sign] is BreachDirection.UP else watched.low, threshold
    ):
        yield f"can never fire: its query returns {watched.low:g} to {watched.high:g}, never {sign} {threshold:g}"
    elif (
        sign in _DIRECTION_BY_OPERATOR
        and watched.breach_direction
        and watched.breach_direction is not _DIRECTION_BY_OPERATOR[sign]
    ):
        yield f"fires on good values ({sign} {threshold:g}); bad values go {watched.breach_direction.name.lower()}"


@stack_rule(
    "alerts-reach-operators",
    "Every alert must be enabled, fire after less than a day, and notify an enabled action group.",
    remedy="enable the rule and its group, and set an enabled action group",
    source="https://learn.microsoft.com/azure/azure-monitor/essentials/prometheus-rule-groups",
)
def check_alerts_reach_operators(stack: Stack) -> Iterator[Violation]:
    enabled = {group.urn for group in stack.find_resources(":ActionGroup") if group.props["enabled"].raw is not False}
    email = stack.azure.observability.email if stack.azure else None
    for group in stack.find_resources(":ActionGroup"):
        if email and email not in {each["emailAddress"].text for each in group.props["emailReceivers"]}:
            yield Violation(group.urn, f"action group {group.name} does not notify {email}")
    for group in stack.find_resources(":PrometheusRuleGroup"):
        if group.props["enabled"].raw is False:
            yield Violation(group.urn, f"rule group {group.name} is disabled")
        if not any(True for _ in group.props["scopes"]) and not group.props["scopes"].is_unknown:
            yield Violation(group.urn, f"rule group {group.name} has no Azure Monitor workspace in its scopes")
        notified = bool(set(group.dependencies.get("rules", ())) & enabled)
        for each in group.props["rules"]:
            name, alert = each["alert"].text or each["record"].text, bool(each["alert"].text)
            for problem in _find_notification_problems(
                each, each["for"].text, notified=notified or not alert, needs_actions=alert
            ):
                yield Violation(group.urn, f"{'alert' if alert else 'rule'} {name} {problem}")
    for rule_ in stack.find_resources(":MetricAlert"):
        notified = bool(set(rule_.dependencies.get("actions", ())) & enabled)
        for problem in _find_notification_problems(rule_.props, rule_.props["windowSize"].text, notified=notified):
            yield Violation(rule_.urn, f"alert {rule_.name} {problem}")


def _find_notification_problems(
    alert: Value, duration: str, *, notified: bool, needs_actions: bool = True
) -> Iterator[str]:
    """Yield the reasons why an alert does not notify operators in time.

    Args:
        duration: Time until the alert fires, as an ISO 8601 duration.
        notified: Whether the alert refers to an enabled action group.
        needs_actions: Whether the alert needs actions. A recording rule does not.
    """
    if alert["enabled"].raw is False:
        yield "is disabled"
    if needs_actions and (not notified or not any(True for _ in alert["actions"])):
        yield "notifies no enabled action group"
    if "D" in duration or "W" in duration:
        yield f"only fires after {duration}"
