"""Every order in which two callers can come through, one run after the other.

A run takes the choices (0 or 1) at its first forks and tells all that it took; behind those it takes 0.
"""

from __future__ import annotations


def next_order(taken: list[int]) -> list[int] | None:
    """The choices of the next run after one that took these, the last fork first; None: that was the last run."""
    for fork in reversed(range(len(taken))):
        if taken[fork] == 0:
            return [*taken[:fork], 1]
    return None
