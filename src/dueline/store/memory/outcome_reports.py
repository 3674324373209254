"""Reports the outcomes of the reference store (`engine.outcomes`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from msgspec.structs import replace

from ...engine.outcomes import OutcomeHook
from .change import Change

R = TypeVar("R")


def report(hook: OutcomeHook, operation: str, change: Change, items: Sequence[Any], results: list[R]) -> list[R]:
    """Report the results and return them. A call without a topic is reported for the topic of each job."""
    if hook.outcomes is not None:
        partition = change.state.partition
        topics = {record.id: record.topic for record in change.touched}
        for item, result in zip(items, results, strict=True):
            id = item if isinstance(item, str) else item.id
            whose = partition if partition.topic else replace(partition, topic=topics.get(id, ""))
            hook.outcomes.done(operation, whose, [item], [result])
    return results
