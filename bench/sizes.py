"""The sizes of the short and the full form. The ratios are the same; the full form has the sizes of the targets."""

from __future__ import annotations

import msgspec


class Sizes(msgspec.Struct, frozen=True):
    """The short form; FULL is the other."""

    full: bool = False
    rounds: int = 3  # base and measured in turns
    round_s: float = 2.5
    due_jobs_per_s: int = 2_000
    lateness_s: float = 10.0
    memory_jobs: int = 100_000
    history_jobs: int = 20_000
    deep_jobs: int = 300_000
    shallow_jobs: int = 10_000
    depth_rounds: int = 5
    idle_topics: int = 10_000
    resting_schedules: int = 10_000
    quiet_s: float = 20.0
    restart_jobs: int = 100_000
    wakeups: int = 60
    push_jobs: int = 10_000
    push_due_per_s: int = 400
    crowd_s: float = 8.0
    dashboard_jobs: int = 100_000
    dashboard_topics: int = 5_000


SHORT = Sizes()
FULL = Sizes(
    full=True,
    rounds=5,
    round_s=6.0,
    lateness_s=30.0,
    memory_jobs=1_000_000,
    history_jobs=1_000_000,
    deep_jobs=5_000_000,
    depth_rounds=7,
    idle_topics=100_000,
    resting_schedules=100_000,
    quiet_s=60.0,
    restart_jobs=1_000_000,
    wakeups=200,
    push_jobs=50_000,
    crowd_s=20.0,
    dashboard_jobs=1_000_000,
)
