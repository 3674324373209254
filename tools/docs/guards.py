"""Generates the page of guards from their table: `python -m tools.docs.guards > docs/guards.md`."""

from __future__ import annotations

from dueline.engine.guards import RULES, GuardRule

_HEAD = """# Guards

Generated from the table in `src/dueline/engine/guards.py` (`make docs`); do not edit.

A guard is a condition of the store under which calls must be refused, or would be refused by the
store. It holds for one shard: a primary of the store. A single node and Sentinel have one shard.

- A call that the store refuses shows a guard at once. The store is also checked every 5 seconds,
  and every second while a guard holds.
- A guard is over when a check no longer finds it. No restart is needed.
- `/readyz` and `dueline doctor` name each guard with its shard. The metric
  [`dueline_store_guard`](metrics.md#store) is 1 for it. Each process logs one line when it begins
  and one when it is over; the last one has the number of refused calls.
- A guard that *stops* a shard makes `/readyz` answer 503 if no other shard serves. While others
  serve, and for a guard that only refuses sends, `/readyz` answers 200 and lists the guard under
  `warnings`, because consumers must still reach the server to empty a full store.
- Programs and workers that [open the store themselves](worker.md) follow the same guards.

| guard | when | refused | stops the shard | what ends it | log lines |
|---|---|---|---|---|---|
"""


def page() -> str:
    """The whole page."""
    return _HEAD + "".join(map(_row, RULES.values()))


def _row(rule: GuardRule) -> str:
    cells = (f"`{rule.guard}`", rule.when, rule.refuses, "yes" if rule.stops else "no", rule.heals)
    return f"| {' | '.join(cells)} | `{rule.entered}`; `{rule.left}` |\n"


if __name__ == "__main__":
    print(page(), end="")
