"""Budget of a cold start: the duration of each phase with its source, and measures that shorten the phase.

No figure was measured by this project; hosts report their own durations by phase in the metric ``ColdStart``.
"""

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import yaml
from pydantic import TypeAdapter

from voice_blueprint.base import Model
from voice_blueprint.contract.images import Image
from voice_blueprint.contract.metrics import StartPhase


class Optimization(Model):
    """A measure that shortens a phase, and where it is implemented.

    Attributes:
        what: Description.
        wired_in: File in this repository: a launcher, or a step of user data.
        shows_as: Text that the rendered output of that file contains.
    """

    what: str
    wired_in: str
    shows_as: str


class PhaseBudget(Model):
    """A phase of a first start with empty caches.

    Attributes:
        seconds: Duration; ``None`` if none is published.
        source: Source of the number, and the configuration that it applies to.
        levers: Measures that shorten the phase, either always or from the second start.
        fetched_s: Remaining duration once the fleet's artifacts are on the disk; ``None`` if the duration does not
            change. Artifacts are downloaded before an engine starts.
    """

    phase: StartPhase
    seconds: float | None = None
    source: str = "not published"
    levers: tuple[Optimization, ...] = ()
    fetched_s: float | None = None

    def calculate_duration_s(self, *, artifacts: bool) -> float:
        """Return the duration of the phase for a fleet with or without artifacts, or 0 if it is unknown."""
        return self.fetched_s if artifacts and self.fetched_s is not None else self.seconds or 0


_BUDGETS_ADAPTER = TypeAdapter(dict[Image, tuple[PhaseBudget, ...]])
_BUDGETS_YAML = Path(__file__).with_name("coldstart.yaml").read_text(encoding="utf-8")
PHASE_BUDGETS_BY_IMAGE = _BUDGETS_ADAPTER.validate_json(
    json.dumps(yaml.load(_BUDGETS_YAML, Loader=yaml.CSafeLoader)["budgets"])
)
"""Budgets for the images that take minutes to start."""


def calculate_start_duration_s(image: Image, *, pull: bool, artifacts: bool = False) -> float:
    """Return the sum of the known durations of all phases, with or without the image pull."""
    rows = (row for row in PHASE_BUDGETS_BY_IMAGE[image] if pull or row.phase is not StartPhase.PULL)
    return sum(row.calculate_duration_s(artifacts=artifacts) for row in rows)


MIN_READY_TIMEOUT_S = 900
"""Minimum start-up timeout for the containers on a host that may download from a hub, seconds."""
MIN_CACHED_READY_TIMEOUT_S = 480
"""Minimum start-up timeout if all artifacts are on the disk, so that nothing is downloaded or compiled, seconds.
ASSUMED."""
START_TIMEOUT_FACTOR = 2
"""Ratio of a start-up timeout to the known duration of a start. Durations of downloads and warm-ups are known for only
a few engines, and for models other than ours."""
HEARTBEAT_TIMEOUT_S_BY_ARTIFACTS = {False: 900, True: 600}
"""Maximum time between two heartbeats before the group abandons a host, for fleets with and without artifacts. The time
is twice the longest step without a heartbeat, which is the pull of one image or the copy of its weights."""


@dataclass(frozen=True)
class StartTimeouts:
    """Start-up timeouts for a fleet's hosts.

    Attributes:
        ready_timeout_s: Maximum time from the start of a host's containers until all of them are ready. It is a whole
            number of minutes; a host that exceeds it is abandoned.
        heartbeat_timeout_s: Maximum time between two heartbeats.
    """

    ready_timeout_s: int
    heartbeat_timeout_s: int


def calculate_start_timeouts(images: Iterable[Image], *, artifacts: bool = False) -> StartTimeouts:
    """Return the start-up timeouts for hosts that run these images.

    Args:
        artifacts: Whether weights and compiled programs are on the disk before an engine starts.
    """
    phase_seconds = max(
        (
            calculate_start_duration_s(image, pull=False, artifacts=artifacts)
            for image in images
            if image in PHASE_BUDGETS_BY_IMAGE
        ),
        default=0,
    )
    minimum = MIN_CACHED_READY_TIMEOUT_S if artifacts else MIN_READY_TIMEOUT_S
    return StartTimeouts(
        max(minimum, math.ceil(START_TIMEOUT_FACTOR * phase_seconds / 60) * 60),
        HEARTBEAT_TIMEOUT_S_BY_ARTIFACTS[artifacts],
    )


def format_budget_table() -> str:
    """Return the budgets as a Markdown table."""
    head = ("Image", "Phase", "First start, s", "With `artifacts`, s", "Whose number", "Lever", "Where")
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for image, rows in PHASE_BUDGETS_BY_IMAGE.items():
        for row in rows:
            seconds = "?" if row.seconds is None else f"{row.seconds:g}"
            fetched = seconds if row.fetched_s is None else f"{row.fetched_s:g}"
            levers = "; ".join(lever.what for lever in row.levers) or "-"
            lever_text = ", ".join(f"`{lever.shows_as}` in {lever.wired_in}" for lever in row.levers) or "-"
            lines.append(f"| {image} | {row.phase} | {seconds} | {fetched} | {row.source} | {levers} | {lever_text} |")
        phase_seconds = " | ".join(
            f"{calculate_start_duration_s(image, pull=True, artifacts=each):g}" for each in (False, True)
        )
        lines.append(f"| {image} | **known, in all** | {phase_seconds} | | | |")
    return "\n".join(lines)
