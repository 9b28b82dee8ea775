"""A cold start as a budget: what each phase takes, whose number that is, and what makes it shorter.

No figure was measured by this project; hosts report their own as the metric ``ColdStart``, a phase each.
"""

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
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
        fetched_s: What is left of it once the fleet's artifacts are on the disk; ``None`` is all of it. They are
            fetched before an engine starts.
    """

    phase: StartPhase
    seconds: float | None = None
    source: str = "not published"
    levers: tuple[Lever, ...] = ()
    fetched_s: float | None = None

    def takes_s(self, *, artifacts: bool) -> float:
        """Return what is known of it, for a fleet with artifacts or without."""
        return self.fetched_s if artifacts and self.fetched_s is not None else self.seconds or 0


_ROWS = TypeAdapter(dict[Image, tuple[PhaseBudget, ...]])
_TEXT = Path(__file__).with_name("coldstart.yaml").read_text(encoding="utf-8")
BUDGETS = _ROWS.validate_json(json.dumps(yaml.load(_TEXT, Loader=yaml.CSafeLoader)["budgets"]))
"""The images whose start takes minutes."""


def known_seconds(image: Image, *, pull: bool, artifacts: bool = False) -> float:
    """Return what the phases with a number take together; with or without the pull of the image."""
    rows = (row for row in BUDGETS[image] if pull or row.phase is not StartPhase.PULL)
    return sum(row.takes_s(artifacts=artifacts) for row in rows)


LEAST_READY_S = 900
"""What a host's containers have to be ready in where they may ask a hub, and nothing longer is known."""
LEAST_READY_FETCHED_S = 480
"""The same where all that they start from is on the disk: no hub is waited for and nothing compiled. ASSUMED."""
UNKNOWN_SHARE = 2
"""A budget is twice what is known: fetching and warming up are known of few engines, and of other models than ours."""
SILENCE_S = {False: 900, True: 600}
"""What a host may be silent for before its group gives it up, without artifacts and with them: twice the longest step
that sends no heartbeat, the pull of one image or the copy of its weights."""


@dataclass(frozen=True)
class StartBudget:
    """How long the host of a fleet may take to start.

    Attributes:
        ready_s: From the start of its containers until all are ready, whole minutes; a host that is not is given up.
        silence_s: From one heartbeat to the next.
    """

    ready_s: int
    silence_s: int


def start_budget(images: Iterable[Image], *, artifacts: bool = False) -> StartBudget:
    """Return the budget of hosts that run these images.

    Args:
        artifacts: Whether weights and compiled programs are on the disk before an engine starts.
    """
    known = max(
        (known_seconds(image, pull=False, artifacts=artifacts) for image in images if image in BUDGETS), default=0
    )
    least = LEAST_READY_FETCHED_S if artifacts else LEAST_READY_S
    return StartBudget(max(least, math.ceil(UNKNOWN_SHARE * known / 60) * 60), SILENCE_S[artifacts])


def table() -> str:
    """Return the budgets as a Markdown table."""
    head = ("Image", "Phase", "First start, s", "With `artifacts`, s", "Whose number", "Lever", "Where")
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for image, rows in BUDGETS.items():
        for row in rows:
            seconds = "?" if row.seconds is None else f"{row.seconds:g}"
            fetched = seconds if row.fetched_s is None else f"{row.fetched_s:g}"
            levers = "; ".join(lever.what for lever in row.levers) or "-"
            where = ", ".join(f"`{lever.shows_as}` in {lever.wired_in}" for lever in row.levers) or "-"
            lines.append(f"| {image} | {row.phase} | {seconds} | {fetched} | {row.source} | {levers} | {where} |")
        known = " | ".join(f"{known_seconds(image, pull=True, artifacts=each):g}" for each in (False, True))
        lines.append(f"| {image} | **known, in all** | {known} | | | |")
    return "\n".join(lines)
