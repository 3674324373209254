"""How many jobs a lane pulls ahead of its free places. No I/O.

A job that was pulled ahead begins as soon as a place is free, without a call in between. Until then it waits here,
although another worker might be free. So only as many jobs are pulled ahead as should begin within a moment, judging by
how long the last ones took. One slow job lowers this number at once; quick jobs raise it only gradually. While jobs
take long, none are pulled ahead.
"""

from __future__ import annotations

import math

AHEAD_S = 0.05  # how long a job may be expected to wait for a place
PATIENCE_S = 1.0  # a job that has waited this long is given back
_WEIGHT = 8  # the share of one job in the mean is an eighth


class Prefetch:
    """`most`: how many jobs may be pulled ahead; 0: none. `places`: how many jobs run at a time."""

    def __init__(self, most: int, places: int) -> None:
        self._most = most
        self._places = places
        self._mean_s = math.inf

    @property
    def ahead(self) -> int:
        """How many jobs may wait for a place."""
        if self._mean_s * self._most <= AHEAD_S * self._places:
            return self._most
        return int(AHEAD_S * self._places / self._mean_s)

    def ended(self, spent_s: float) -> None:
        """Note how long a finished job has run."""
        if spent_s > self._mean_s or self._mean_s == math.inf:
            self._mean_s = spent_s
        else:
            self._mean_s += (spent_s - self._mean_s) / _WEIGHT

    def stuck(self) -> None:
        """A job has waited for too long: pull nothing ahead until one has ended."""
        self._mean_s = math.inf
