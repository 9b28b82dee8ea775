"""CloudWatch's metric math over GetMetricData's results: arithmetic, and functions that combine series."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Sequence
from datetime import datetime
from statistics import fmean
from typing import Any

from moto.cloudwatch.exceptions import ValidationError

Datapoint = float | None
_AGGREGATIONS: dict[str, Callable[[Sequence[float]], float]] = {"MAX": max, "MIN": min, "SUM": sum, "AVG": fmean}
_OPERATORS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def evaluate_expression(expression: str, results: list[dict[str, Any]]) -> tuple[list[float], list[datetime]]:
    """Return an expression's values and their timestamps. Timestamps without a value are omitted.

    Args:
        expression: Expression, such as ``MAX([m1,m2])`` or ``100*m1/m2``.
        results: Results by ``id``, with ``timestamps`` and ``values``.

    Raises:
        ValidationError: The expression is invalid or not supported.
    """
    try:
        tree = ast.parse(expression, mode="eval").body
    except SyntaxError as error:
        raise ValidationError(f"Error in expression '{expression}': {error.msg}") from None
    series = {each["id"]: dict(zip(each["timestamps"], each["values"], strict=True)) for each in results}
    times = sorted({time for values in series.values() for time in values})
    results_by_time = {
        time: _evaluate_node(tree, {name: values.get(time) for name, values in series.items()}) for time in times
    }
    defined = {time: value for time, value in results_by_time.items() if value is not None}
    return list(defined.values()), list(defined)


def _evaluate_node(tree: ast.expr, values_by_id: dict[str, Datapoint]) -> Datapoint:
    match tree:
        case ast.Constant(value=int() | float() as number):
            return float(number)
        case ast.Name(id=name) if name in values_by_id:
            return values_by_id[name]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            first, second = _evaluate_node(left, values_by_id), _evaluate_node(right, values_by_id)
            # If an operand is missing or the divisor is zero, there is no value.
            if first is None or second is None or (isinstance(op, ast.Div) and not second):
                return None
            return _OPERATORS[type(op)](first, second)
        case ast.Call(func=ast.Name(id=name), args=[ast.List(elts=members)]) if name in _AGGREGATIONS:
            values = [
                value for value in (_evaluate_node(member, values_by_id) for member in members) if value is not None
            ]
            return _AGGREGATIONS[name](values) if values else None
    raise ValidationError(f"Error in expression: the sandbox does not support '{ast.unparse(tree)}'")
