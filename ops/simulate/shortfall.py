"""Why calls were refused: what was in service when they came, how long help took, and what it costs not to need it."""

from dataclasses import dataclass

import numpy as np

from ops.cost.prices import HOURS_PER_MONTH
from ops.simulate.run import Result


@dataclass(frozen=True)
class Shortfall:
    """The first time that more calls were wanted than ASR hosts had places.

    Attributes:
        at_s: When it began.
        places: Calls that the ASR hosts could have then.
        help_s: Time from then until the first new host took calls; ``None`` where none came.
        wanted: Calls that were wanted by then.
        peak: Most calls of the trace.
        hold_usd_per_hour: Least price of hosts for the difference between the peak and ``places``; ``None`` where no
            fleet has a price.
    """

    at_s: float
    places: int
    help_s: float | None
    wanted: int
    peak: int
    hold_usd_per_hour: float | None

    def __str__(self) -> str:
        came = "no new host came" if self.help_s is None else f"the first new host came {self.help_s:.0f} s later"
        text = (
            f"calls outgrew {self.places:,} places after {self.at_s:.0f} s; {came}, when {self.wanted:,} were wanted\n"
            f"refusing none takes places for {self.peak:,} calls before the load comes"
        )
        if self.hold_usd_per_hour is None:
            return text
        monthly = self.hold_usd_per_hour * HOURS_PER_MONTH
        return text + f": at least {self.hold_usd_per_hour:,.2f} USD an hour more, {monthly:,.0f} a month"


def shortfall(result: Result) -> Shortfall | None:
    """Return the first shortfall of a policy that refused calls; ``None`` without one of ASR hosts."""
    course = result.course
    short = np.flatnonzero(course.wanted > course.places)
    if not result.ledger.refused or not short.size:
        return None
    begin = int(short[0])
    more = np.flatnonzero(course.places[begin:] > course.places[begin])
    end = begin + int(more[0]) if more.size else len(course.second) - 1
    places, peak = int(course.places[begin]), round(float(course.wanted.max()))
    prices = [plan.usd_per_hour / plan.places for plan in result.plans if plan.kind != "vad" and plan.usd_per_hour]
    return Shortfall(
        at_s=float(course.second[begin]),
        places=places,
        help_s=float(course.second[end] - course.second[begin]) if more.size else None,
        wanted=int(course.wanted[end]),
        peak=peak,
        hold_usd_per_hour=(peak - places) * min(prices) if prices else None,
    )
