"""Checks the items of merge groups in a history. No I/O.

A group is a job: `sends_of_groups` makes sends of it from those of its items, and the checker treats it as any other
job. What becomes of an item is checked here: it is in a group as long as nobody finished it, in at most one group that
was acked, and in the order of the sends. Items are told apart by the digest of their body, so every item of a key needs
a body of its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from .history import Ack, AnyEvent, Append, Cancel, Deliver, Final, Outcome, Send
from .tracks import NEVER_NS, ok, possible
from .violations import Kind, Violation

Item = tuple[str, str, str]  # topic, merge key, digest
Job = tuple[str, str]  # topic, id


def sends_of_groups(history: Iterable[AnyEvent], final: Final) -> Iterator[Send]:
    """Sends by group: one with unknown outcome for each item that the group may have. The item may also be in another
    group."""
    appends, groups = _appends(history), _groups(history)
    for (topic, id), deliveries in groups.items():
        items = {(topic, one.merge_key, digest) for one in deliveries for digest in one.items or ()}
        most = max(len(delivery.items or ()) for delivery in deliveries)
        for item in items:
            for append in appends[item]:
                yield _as_send(append, id, append.delay_ms if most < append.max_items else 0)
    found_in = {(topic, digest): id for (topic, id), job in final.items() for digest in job.items or ()}
    for append in (one for of_item in appends.values() for one in of_item):
        group = append.group or found_in.get((append.topic, append.digest), "")
        if group and (append.topic, group) not in groups:
            yield _as_send(append, group, append.delay_ms)


def _as_send(append: Append, group: str, delay_ms: int) -> Send:
    return Send(
        topic=append.topic,
        id=group,
        invoke_ns=append.invoke_ns,
        complete_ns=append.complete_ns,
        outcome=Outcome.INFO,
        delay_ms=delay_ms,
        digest="",  # that of the deliveries, too
        max_attempts=append.max_attempts,
    )


def check_items(history: list[AnyEvent], final: Final) -> list[Violation]:
    """All violations about the items of merge groups."""
    appends, groups = _appends(history), _groups(history)
    deliveries = [delivery for of_group in groups.values() for delivery in of_group]
    return [
        *_lost(history, appends, deliveries, final),
        *_twice(history, deliveries),
        *(found for delivery in deliveries for found in _in_order(delivery, appends)),
    ]


def _appends(history: Iterable[AnyEvent]) -> defaultdict[Item, list[Append]]:
    """The appends that may have been stored, by item."""
    found: defaultdict[Item, list[Append]] = defaultdict(list)
    for event in history:
        if isinstance(event, Append) and possible(event):
            found[event.topic, event.key, event.digest].append(event)
    return found


def _groups(history: Iterable[AnyEvent]) -> dict[Job, list[Deliver]]:
    found: dict[Job, list[Deliver]] = {}
    for event in history:
        if isinstance(event, Deliver) and event.items is not None:
            found.setdefault(event.job, []).append(event)
    return found


def _lost(
    history: list[AnyEvent], appends: dict[Item, list[Append]], deliveries: list[Deliver], final: Final
) -> Iterator[Violation]:
    """Items that were accepted and are in no group that is left, although nobody can have finished their group."""
    finished = {event.job for event in history if isinstance(event, Ack | Cancel) and possible(event)}
    kept = {(topic, digest) for (topic, _), job in final.items() for digest in job.items or ()}
    groups: defaultdict[Item, set[Job]] = defaultdict(set)
    for delivery in deliveries:
        for digest in delivery.items or ():
            groups[delivery.topic, delivery.merge_key, digest].add(delivery.job)
    for item, sends in appends.items():
        topic, key, digest = item
        accepted = [send for send in sends if ok(send)]
        were_in = groups[item] | {(topic, send.group) for send in accepted}
        if accepted and (topic, digest) not in kept and not any(job in finished or job in final for job in were_in):
            yield Violation(Kind.LOST, topic, sends[0].id, f"an item of {key} was accepted and is in no group")


def _twice(history: list[AnyEvent], deliveries: list[Deliver]) -> Iterator[Violation]:
    acked = {event.lease for event in history if isinstance(event, Ack) and ok(event)}
    ended: dict[Item, str] = {}
    for delivery in sorted(deliveries, key=lambda one: one.complete_ns):
        for digest in delivery.items or () if delivery.lease in acked else ():
            other = ended.setdefault((delivery.topic, delivery.merge_key, digest), delivery.id)
            if other != delivery.id:
                why = f"an item of {delivery.merge_key} was also in the group {other}, and both were acked"
                yield Violation(Kind.ITEM_TWICE, delivery.topic, delivery.id, why)


def _in_order(delivery: Deliver, appends: dict[Item, list[Append]]) -> Iterator[Violation]:
    """Violations in one delivery: an item that was never sent, or items that are not in send order."""
    before_ns = 0  # no item so far was added before this
    seen: set[str] = set()
    for place, digest in enumerate(delivery.items or ()):
        sends = appends.get((delivery.topic, delivery.merge_key, digest), [])
        where = f"item {place} of delivery {delivery.delivery}"
        if not sends:
            yield Violation(Kind.ALTERED, delivery.topic, delivery.id, f"nobody sent {where}")
            continue
        if digest in seen:
            yield Violation(Kind.ITEM_TWICE, delivery.topic, delivery.id, f"{where} is in it twice")
        seen.add(digest)
        if min((send.complete_ns for send in sends if ok(send)), default=NEVER_NS) < before_ns:
            why = f"{where} was sent earlier than the item in front of it"
            yield Violation(Kind.ITEM_ORDER, delivery.topic, delivery.id, why)
        before_ns = max(before_ns, min(send.invoke_ns for send in sends))
