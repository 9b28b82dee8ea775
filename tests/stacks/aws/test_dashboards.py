"""Dashboards on CloudWatch's grid of 24 columns."""

import json
from typing import Any

from tests.nonempty import nonempty
from tests.synthesized import shipped


def test_widgets_do_not_overlap_on_the_grid() -> None:
    for dashboard in nonempty(shipped("sandbox")["observability"].properties("CloudWatch::Dashboard")):
        body = "".join(part if isinstance(part, str) else "token" for part in dashboard["DashboardBody"]["Fn::Join"][1])
        taken = [cell for widget in json.loads(body)["widgets"] for cell in _cells(widget)]
        assert len(taken) == len(set(taken)), dashboard["DashboardName"]
        assert {column for column, _ in taken} == set(range(24)), "from the left edge to the right one"
        assert {column for column, row in taken if row == 0} == set(range(24)), "the head has no gap"


def _cells(widget: dict[str, Any]) -> list[tuple[int, int]]:
    columns = range(widget["x"], widget["x"] + widget["width"])
    return [(column, row) for column in columns for row in range(widget["y"], widget["y"] + widget["height"])]
