"""The search for the most calls that are sustained."""

from collections.abc import Callable


def most_sustained(sustains: Callable[[int], bool], most: int) -> tuple[int, bool]:
    """Double the calls until they are too many, then halve the gap.

    Args:
        sustains: Puts so many calls at a time on the host, and says whether it carried them.
        most: Calls that are not exceeded.

    Returns:
        The most calls that were sustained, and whether one more was too many or was not tried.
    """
    carried, calls = 0, 1
    while sustains(calls):
        carried = calls
        if carried == most:
            return carried, False
        calls = min(2 * carried, most)
    while calls - carried > 1:
        between = (carried + calls) // 2
        if sustains(between):
            carried = between
        else:
            calls = between
    return carried, True
