"""The benchmark of DESIGN's targets: every figure as a ratio inside one run, on two cores, with private servers.

    python -m bench              the short form, under 8 minutes
    python -m bench --full       the sizes that the targets speak of
    python -m bench --only send,lateness

Nothing here asserts a time: a slow machine gives other figures, not a failure.
"""
