"""Reports the outcomes of calls that are not batched (`engine.outcomes`). Called only while somebody records."""

from __future__ import annotations

from collections.abc import Sequence

from ...engine.job import LeasedJob, Partition, Reason
from ...engine.outcomes import OutcomeHook, Outcomes, actor_name
from ...engine.store import Credit, Outcome, SendItem, SendOutcome
from .codec import REASONS, unpack_id
from .pulled_jobs import deaths_in


def report_pull(
    outcomes: Outcomes,
    partition: Partition,
    credits: Sequence[Credit],
    jobs: Sequence[LeasedJob],
    n: Sequence[int],
    blob: bytes,
) -> None:
    """The jobs of a pull, and those that it found to be dead."""
    outcomes.pulled(partition, jobs, credits)
    report_deaths(outcomes, partition, deaths_in(n, blob))


def report_deaths(outcomes: Outcomes, partition: Partition, blob: bytes) -> None:
    """The deaths in a reply of pull.lua or clean.lua."""
    deaths: list[tuple[str, Reason]] = []
    at = 0
    while at < len(blob):
        end = at + 3 + int.from_bytes(blob[at + 1 : at + 3], "big")
        deaths.append((unpack_id(blob[at + 3 : end]), REASONS[blob[at]] or Reason.EXPIRED))
        at = end
    if deaths:
        outcomes.died(partition, deaths)


def report_send(hook: OutcomeHook, partition: Partition, item: SendItem, outcome: SendOutcome | None) -> None:
    """A send of a thread without an event loop. None: its outcome is unknown."""
    if hook.outcomes is None:
        return
    if outcome is None:
        hook.outcomes.lost()
    else:
        hook.outcomes.done("send", partition, [item], [outcome], [""])


def report_dead(outcomes: Outcomes, partition: Partition, what: int, done: Sequence[tuple[str, Outcome]]) -> None:
    """What dead.lua did."""
    operation = "revive" if what == 1 else "purge"
    outcomes.done(operation, partition, [id for id, _ in done], [one for _, one in done], [actor_name()] * len(done))
