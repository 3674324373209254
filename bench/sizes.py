"""The sizes of the short, the full and the smallest form. The ratios of the short and the full form are the
same; the full form has the sizes of the targets."""

from __future__ import annotations

import msgspec


class Sizes(msgspec.Struct, frozen=True):
    """The short form; FULL is the other. `products`: checkouts that a row compares, instead of this one."""

    products: tuple[str, ...] = ()
    rounds: int = 3  # base and measured in turns
    round_s: float = 2.5
    cpu_rounds: int = 5
    cpu_calls: int = 20_000
    calm_s: float = 4.0
    starts: int = 11
    growth_rounds: int = 3
    growth_calls: int = 4_000
    growth_pending: tuple[int, ...] = (10_000, 30_000, 100_000, 300_000)
    growth_topics: tuple[int, ...] = (10, 100, 1_000, 10_000)
    growth_waiters: tuple[int, ...] = (1, 10, 100, 1_000)
    growth_bodies: tuple[int, ...] = (100, 1_000, 4_096, 16_384, 65_536, 262_144)
    growth_batches: tuple[int, ...] = (1, 10, 100)
    due_jobs_per_s: int = 2_000
    lateness_s: float = 10.0
    lateness_pending: tuple[int, ...] = (10_000,)
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
    rounds=5,
    round_s=3.0,
    cpu_calls=50_000,
    calm_s=10.0,
    starts=21,
    growth_calls=10_000,
    growth_pending=(10_000, 100_000, 1_000_000, 5_000_000),
    growth_topics=(10, 100, 1_000, 10_000, 100_000),
    growth_waiters=(1, 10, 100, 1_000, 10_000),
    lateness_s=30.0,
    lateness_pending=(10_000, 5_000_000),
    memory_jobs=1_000_000,
    history_jobs=1_000_000,
    deep_jobs=5_000_000,
    depth_rounds=7,
    idle_topics=100_000,
    resting_schedules=100_000,
    quiet_s=40.0,
    restart_jobs=1_000_000,
    wakeups=200,
    push_jobs=50_000,
    crowd_s=12.0,
    dashboard_jobs=1_000_000,
)
TINY = Sizes(
    rounds=1,
    round_s=0.2,
    cpu_rounds=1,
    cpu_calls=400,
    calm_s=0.2,
    starts=1,
    growth_rounds=1,
    growth_calls=300,
    growth_pending=(100, 1_000),
    growth_topics=(10, 50),
    growth_waiters=(1, 20),
    growth_bodies=(100, 16_384, 65_536),
    growth_batches=(1, 10),
    lateness_s=1.0,
    lateness_pending=(500,),
    memory_jobs=2_000,
    history_jobs=1_000,
    deep_jobs=4_000,
    shallow_jobs=1_000,
    depth_rounds=1,
    idle_topics=200,
    resting_schedules=200,
    quiet_s=1.0,
    restart_jobs=8_000,
    wakeups=6,
    push_jobs=200,
    push_due_per_s=100,
    crowd_s=1.0,
    dashboard_jobs=2_000,
    dashboard_topics=50,
)
"""Whether the rows work at all; its figures mean nothing."""

FORMS = {"short": SHORT, "full": FULL, "tiny": TINY}
