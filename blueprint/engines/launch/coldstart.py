"""A cold start as a budget: what each phase takes, whose number that is, and what makes it shorter.

No figure was measured by this project; hosts report their own as the metric ``ColdStart``, a phase each.
"""

import json
import math
from collections.abc import Iterable
from pathlib import Path

import yaml
from pydantic import TypeAdapter

from blueprint.base import Model
from blueprint.contract.images import Image
from blueprint.contract.metrics import StartPhase


class Lever(Model):
    """Something that shortens a phase, and where it can be seen.

    Attributes:
        what: For people.
        wired_in: File of this repository: a launcher's, or a step of user data.
        shows_as: Text that stands in what is rendered from it.
    """

    what: str
    wired_in: str
    shows_as: str


class PhaseBudget(Model):
    """One phase of a first start, with empty caches.

    Attributes:
        seconds: What it takes; ``None`` where nobody has published it.
        source: Whose number it is, and for what.
        levers: What shortens it from the second start on, or at all.
    """

    phase: StartPhase
    seconds: float | None = None
    source: str = "not published"
    levers: tuple[Lever, ...] = ()


_ROWS = TypeAdapter(dict[Image, tuple[PhaseBudget, ...]])
_TEXT = Path(__file__).with_name("coldstart.yaml").read_text(encoding="utf-8")
BUDGETS = _ROWS.validate_json(json.dumps(yaml.safe_load(_TEXT)["budgets"]))
"""The images whose start takes minutes."""


def known_seconds(image: Image, *, pull: bool) -> float:
    """Return what the phases with a number take together; with or without the pull of the image."""
    return sum(row.seconds or 0 for row in BUDGETS[image] if pull or row.phase is not StartPhase.PULL)


LEAST_READY_S = 900
"""What a host's containers have to be ready in where nothing longer is known."""
UNKNOWN_SHARE = 2
"""A budget is twice what is known: fetching and warming up are known of few engines, and of other models than ours."""


def ready_budget_s(images: Iterable[Image]) -> int:
    """Return the longest that a host's containers may take, once started, to report ready, in whole minutes.

    Accelerator engines fetch weights and compile at their first start; a host that is not ready by then is given up.
    """
    known = max((known_seconds(image, pull=False) for image in images if image in BUDGETS), default=0)
    return max(LEAST_READY_S, math.ceil(UNKNOWN_SHARE * known / 60) * 60)


def table() -> str:
    """Return the budgets as a Markdown table."""
    lines = ["| Image | Phase | First start, s | Whose number | Lever | Where |", "|---|---|---|---|---|---|"]
    for image, rows in BUDGETS.items():
        for row in rows:
            seconds = "?" if row.seconds is None else f"{row.seconds:g}"
            levers = "; ".join(lever.what for lever in row.levers) or "-"
            where = ", ".join(f"`{lever.shows_as}` in {lever.wired_in}" for lever in row.levers) or "-"
            lines.append(f"| {image} | {row.phase} | {seconds} | {row.source} | {levers} | {where} |")
        lines.append(f"| {image} | **known, in all** | {known_seconds(image, pull=True):g} | | | |")
    return "\n".join(lines)
