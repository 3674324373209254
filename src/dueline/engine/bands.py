"""What falls due between given times, as a store counts it. No I/O; part of the interface in `store`."""

from __future__ import annotations

import msgspec

from .job import Partition


class ForecastPart(msgspec.Struct, frozen=True):
    """A partition of a forecast. `paused_bands`: how many bands, from the first on, begin while its topic is paused."""

    partition: Partition
    paused_bands: int = 0


class Bands(msgspec.Struct, frozen=True):
    """The scheduled jobs of some partitions that fall due from one edge on and before the next. `paused`: those of the
    paused bands; `retries`: of the other bands, jobs that wait for another attempt; `counts`: the rest. `later`: all
    from the last edge on. `by_partition`: the sum of each partition's part of `counts`. No scans, and jobs that died
    since the last clean-up may be included, as in `Stats`."""

    now_ms: int
    counts: tuple[int, ...]
    retries: tuple[int, ...]
    paused: tuple[int, ...]
    later: int
    by_partition: tuple[int, ...]
