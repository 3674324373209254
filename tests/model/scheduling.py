"""Random programmes over what schedules need: fences, progress, releases to a time, replaces of a version."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from dueline.engine.fence import Fence, Occurrence
from dueline.engine.store import OnConflict, SendItem, Store
from tests.kit.store import item

from .machine import BaseMachine, delays, ids, policies, recent, tags
from .twins import IDS

schedules = st.sampled_from(["ns\0a", "ns\0b"])
versions = st.integers(1, 4)
times = st.integers(0, 5)


@st.composite
def occurrence_items(draw: st.DrawFn) -> SendItem:
    return item(
        draw(ids),
        delay_ms=draw(delays),
        policy=draw(policies),
        ttl_ms=draw(st.sampled_from([None, None, 30])),
        on_live=draw(st.sampled_from([OnConflict.REJECT, OnConflict.KEEP])),
        tags=draw(tags),
        occurrence=draw(st.none() | st.builds(Occurrence, schedules, versions, times)),
    )


class Scheduling(BaseMachine):
    """Schedules, and jobs without one."""

    @rule(items=st.lists(occurrence_items(), min_size=1, max_size=4))
    def send(self, items: list[SendItem]) -> None:
        self.twins.send(items)

    @rule(fences=st.lists(st.builds(Fence, schedules, versions, times, st.booleans()), min_size=1, max_size=3))
    def fence(self, fences: list[Fence]) -> None:
        self.twins.both(lambda store: store.fence(self.twins.partition, fences))

    @rule(
        id=ids,
        version=st.sampled_from([0, 0, 0, 1]),
        delay_ms=delays,
        policy=policies,
        ttl_ms=st.sampled_from([None, 30]),
    )
    def replace_a_version(self, id: str, version: int, **words: Any) -> None:
        job = dict(zip(IDS, self.twins.jobs(), strict=False))[id]
        expected = version if job is None else job.version + version
        self.twins.send([item(id, replaces=expected, **words)])

    @precondition(lambda self: self.twins.leases)
    @rule(
        back=recent,
        after_ms=st.sampled_from([-5, 0, 10, 50]),
        count=st.booleans(),
        progress=st.sampled_from([None, b"", b"one", b"\0\xff"]),
        error=st.sampled_from([None, "no luck"]),
    )
    def release_to_a_time(self, back: int, after_ms: int, **words: Any) -> None:
        lease = self.delivery(back)
        self.twins.release(lease.id, lease, at_ms=self.shared.clock.now_ms + after_ms, **words)

    @rule()
    def fences_are_the_same(self) -> None:
        self.twins.both(lambda store: self._fences(store))

    @rule(topic_too=st.booleans())
    def retire(self, topic_too: bool) -> None:
        self.twins.retire(topic_too)

    async def _fences(self, store: Store) -> list[Fence]:
        found: list[Fence] = []
        cursor: bytes | None = b""
        while cursor is not None:
            page, cursor = await store.fences(self.twins.partition, cursor)
            found += page
        return sorted(set(found), key=lambda fence: fence.schedule)

    def teardown(self) -> None:
        if hasattr(self, "twins"):
            self.fences_are_the_same()
            self.twins.check_structure()
            self.twins.check_figures()
