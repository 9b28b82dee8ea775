"""Searches for the maximum number of sustained calls."""

from collections.abc import Callable


def find_max_sustained_calls(sustains: Callable[[int], bool], max_calls: int) -> tuple[int, bool]:
    """Find the maximum number of sustained calls: double the number, then use a binary search.

    Args:
        sustains: Function that runs the given number of calls on the host, and returns whether all succeeded.
        max_calls: Maximum number of calls to try.

    Returns:
        The maximum number of sustained calls, and whether the host is the limit, rather than ``max_calls``.
    """
    sustained, calls = 0, 1
    while sustains(calls):
        sustained = calls
        if sustained == max_calls:
            return sustained, False
        calls = min(2 * sustained, max_calls)
    while calls - sustained > 1:
        midpoint = (sustained + calls) // 2
        if sustains(midpoint):
            sustained = midpoint
        else:
            calls = midpoint
    return sustained, True
