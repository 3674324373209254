"""The benchmark of the performance targets in docs/benchmarks.md, on two cores, with private servers. Most results are
ratios within one run.

    python -m bench              the short form, under 8 minutes
    python -m bench --full       the sizes that the targets assume
    python -m bench --only throughput,lateness

Nothing here asserts a time: a slow machine gives other results, not a failure.
"""
