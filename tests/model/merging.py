"""Random programmes with merge groups: sends of a few keys, deliveries that fail, and everything that ends a group.

Beside the comparison with the reference, the items themselves are watched (I17): each accepted item is in exactly one
group, in send order, until that group ends; what was acked never comes again.
"""

from __future__ import annotations

import itertools
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from dueline.engine.job import BodyKind, Job, State
from dueline.engine.policy import AT_ONCE, JobPolicy, Ladder
from dueline.engine.store import (
    Code,
    Credit,
    Edit,
    Merge,
    MergeUpdate,
    OnConflict,
    Pull,
    Query,
    Revive,
    SendItem,
    Spare,
)
from tests.kit.store import item

from .machine import BaseMachine, Life
from .sleepers import Sleepers

KEYS = ("k", "k\0")
POLICIES = (
    JobPolicy(retry=AT_ONCE),
    JobPolicy(max_attempts=2, retain_ms=0, dead_retain_ms=30, retry=AT_ONCE),
    JobPolicy(max_attempts=None, retry=Ladder((50, 50)), retain_ms=20, keep_body=True),
)
MOVED = "its items went to group "
keys = st.sampled_from(KEYS)
policies = st.sampled_from(POLICIES)
recent = st.sampled_from([0, 0, 1, 2, 3])  # how many groups back


@st.composite
def merges(draw: st.DrawFn) -> dict[str, Any]:
    """What a send that merges says, without the ids and the body."""
    return {
        "merge": Merge(
            draw(keys),
            quiet_ms=draw(st.sampled_from([None, None, 0, 10, 50])),
            max_wait_ms=draw(st.sampled_from([None, None, 0, 20])),
            max_items=draw(st.sampled_from([1, 2, 3, 4, 1000])),
            max_bytes=draw(st.sampled_from([4, 6, 1000, 1000])),
            update=draw(st.sampled_from(MergeUpdate)),
            item_id=draw(st.sampled_from([None, None, None, "x", "y"])),
            waits_when_full=draw(st.sampled_from([False, False, True])),
        ),
        "delay_ms": draw(st.sampled_from([0, 0, 10, 50])),
        "policy": draw(policies),
        "ttl_ms": draw(st.sampled_from([None, None, 5, 30])),
        "tags": draw(st.sampled_from([(), ("t",)])),
    }


class MergeMachine(BaseMachine):
    """Rules about groups, for any machine. Bodies are numbers, so that no two items are equal."""

    numbers: Any
    items: dict[int, str]  # accepted items: number -> key
    places: dict[int, str]  # where each item was seen last
    acked: set[int]

    @initialize()
    def no_items_yet(self) -> None:
        self.numbers = itertools.count(1)
        self.items, self.places, self.acked = {}, {}, set()

    def merge(self, *said: dict[str, Any]) -> None:
        """Send these as one call; each would open a group of its own id."""
        sends: list[tuple[int, SendItem]] = []
        for words in said:
            number = next(self.numbers)
            sends.append((number, item(self.twins.new_group(), body=b"%d" % number, **words)))
        answers = self.twins.send([send for _, send in sends])
        if isinstance(answers, list):
            for (number, send), answer in zip(sends, answers, strict=True):
                if answer.code in (Code.CREATED, Code.APPENDED):
                    assert send.merge is not None
                    self.items[number] = send.merge.key

    def group(self, back: int) -> str:
        return self.twins.groups[-1 - back % len(self.twins.groups)]

    @rule(said=st.lists(merges(), min_size=1, max_size=4))
    def sends_merge(self, said: list[dict[str, Any]]) -> None:
        self.merge(*said)

    @rule(said=st.lists(merges(), min_size=1, max_size=4))
    def sends_merge_while_the_partition_is_closed(self, said: list[dict[str, Any]]) -> None:
        self.twins.policy_version += 1
        self.twins.close(True)
        self.merge(*said)
        self.twins.close(False)

    @rule(key=keys, most=st.sampled_from([2, 3, 1000]), delay_ms=st.sampled_from([0, 20]))
    def a_send_joins(self, key: str, most: int, delay_ms: int) -> None:
        self.merge({"merge": Merge(key, max_items=most), "delay_ms": delay_ms})

    @rule(key=keys, policy=policies, most=st.sampled_from([2, 3, 1000]), lease_ms=st.sampled_from([5, 60]))
    def a_group_is_leased_while_the_next_one_opens(self, key: str, policy: JobPolicy, most: int, lease_ms: int) -> None:
        self.merge({"merge": Merge(key), "policy": policy})
        self.twins.pull(Pull((Credit(4, lease_ms),), 15))
        self.merge({"merge": Merge(key, max_items=most), "delay_ms": 40, "policy": policy})

    @rule(key=keys, ttl_ms=st.sampled_from([5, 50]), lost=st.booleans())
    def the_open_group_may_expire_before_the_leased_one_fails(self, key: str, ttl_ms: int, lost: bool) -> None:
        self.merge({"merge": Merge(key)})
        self.twins.pull(Pull((Credit(4, 10),), 15))
        self.merge({"merge": Merge(key), "ttl_ms": ttl_ms, "delay_ms": 1})
        self.shared.clock.advance(10)
        if lost:
            self.twins.pull(Pull((Credit(4, 10),), 15))
        else:
            for lease in self.twins.leases[-2:]:
                self.twins.release(lease.id, lease, delay_ms=5)

    @rule(key=keys, counts=st.booleans())
    def all_leased_groups_are_given_back(self, key: str, counts: bool) -> None:
        self.merge({"merge": Merge(key)})
        self.twins.pull(Pull((Credit(4, 60),), 15))
        for lease in self.twins.leases[-3:]:
            self.twins.release(lease.id, lease, delay_ms=30, count=counts)

    @rule(key=keys, ms=st.sampled_from([5, 10]))
    def leases_of_groups_are_lost(self, key: str, ms: int) -> None:
        self.merge({"merge": Merge(key)})
        self.twins.pull(Pull((Credit(4, ms),), 15))
        self.merge({"merge": Merge(key, quiet_ms=ms)})
        self.shared.clock.advance(ms)
        self.twins.pull(Pull((Credit(4, 60),), 15))

    @rule(key=keys, longest_ms=st.sampled_from([15, 20]), gap_ms=st.sampled_from([5, 9]))
    def sends_keep_coming_up_to_the_longest_wait(self, key: str, longest_ms: int, gap_ms: int) -> None:
        for _ in range(3):
            self.merge({"merge": Merge(key, quiet_ms=10, max_wait_ms=longest_ms)})
            self.shared.clock.advance(gap_ms)

    @rule(key=keys, policy=policies, later_ms=st.sampled_from([0, 20]), tidied=st.booleans())
    def an_item_is_sent_again_after_its_group_ended(
        self, key: str, policy: JobPolicy, later_ms: int, tidied: bool
    ) -> None:
        said = {"merge": Merge(key, item_id="z"), "policy": policy}
        self.merge(said)
        self.twins.pull(Pull((Credit(4, 60),), 15))
        for lease in self.twins.leases[-1:]:
            self.twins.ack([(lease.id, lease)])
        self.shared.clock.advance(later_ms)
        self.merge({**said, "delay_ms": 20})
        if tidied:
            self.twins.clean()
            self.merge(said)

    @rule(key=keys, tidied=st.booleans(), sent=st.booleans())
    def a_group_expires_and_is_revived(self, key: str, tidied: bool, sent: bool) -> None:
        self.merge({"merge": Merge(key), "ttl_ms": 5})
        self.shared.clock.advance(5)
        if tidied:
            self.twins.clean()
        if sent:
            self.merge({"merge": Merge(key), "delay_ms": 20})
        self.twins.revive(Revive(tuple(self.twins.groups[-2:])))
        self.twins.listed(Query(merge_key=key))
        self.twins.check_structure()

    @rule(key=keys)
    def cancel_all_but_leased_groups(self, key: str) -> None:
        self.merge({"merge": Merge(key)})
        self.twins.pull(Pull((Credit(4, 60),), 15))
        self.twins.cancel(self.twins.groups[-3:], False, Spare.LEASED)

    @precondition(lambda self: self.twins.groups)
    @rule(back=recent, forget=st.booleans(), spare=st.booleans())
    def cancel_a_group(self, back: int, forget: bool, spare: bool) -> None:
        self.twins.cancel([self.group(back)], forget, Spare.LEASED if spare else Spare.NONE)

    @precondition(lambda self: self.twins.groups)
    @rule(back=recent, ttl_ms=st.sampled_from([None, 0, 9]), delay_ms=st.sampled_from([None, 0, 15]))
    def edit_a_group(self, back: int, ttl_ms: int | None, delay_ms: int | None) -> None:
        self.twins.edit(
            [Edit(self.group(back), ttl_ms=ttl_ms, delay_ms=delay_ms, tags=("u",), body=b"never", kind=BodyKind.TEXT)]
        )

    @precondition(lambda self: self.twins.groups)
    @rule(back=recent)
    def ack_a_group_without_a_token(self, back: int) -> None:
        self.twins.ack([(self.group(back), None)])

    @precondition(lambda self: self.twins.groups)
    @rule(delay_ms=st.sampled_from([0, 20]))
    def revive_groups(self, delay_ms: int) -> None:
        self.twins.revive(Revive(tuple(self.twins.groups[-5:]), delay_ms=delay_ms))

    @precondition(lambda self: self.twins.groups)
    @rule(back=recent)
    def purge_a_group(self, back: int) -> None:
        self.twins.purge((self.group(back),))

    @precondition(lambda self: self.twins.groups)
    @rule(back=recent, rule=st.sampled_from(OnConflict))
    def a_plain_send_takes_the_id_of_a_group(self, back: int, rule: OnConflict) -> None:
        self.twins.send([item(self.group(back), on_live=rule)])

    @precondition(lambda self: self.twins.groups)
    @rule(back=recent, key=keys)
    def a_group_would_be_opened_under_a_taken_id(self, back: int, key: str) -> None:
        number = next(self.numbers)
        taken = item(self.group(back), body=b"%d" % number, delay_ms=20, merge=Merge(key))
        answers = self.twins.send([taken])
        if isinstance(answers, list) and answers[0].code in (Code.CREATED, Code.APPENDED):
            self.items[number] = key

    @rule(key=keys)
    def groups_of_a_key_are_listed(self, key: str) -> None:
        self.twins.listed(Query(merge_key=key, limit=2))

    @invariant()
    def every_item_is_in_one_group_in_send_order_until_that_group_ends(self) -> None:
        jobs = {job.id: job for job in self.twins.jobs() if job is not None}
        found: dict[int, str] = {}
        for job in jobs.values():
            mine = _numbers_of(job)
            assert mine == sorted(set(mine)), f"out of order: {mine}"
            for number in mine:
                assert number not in found, f"item {number} is in two groups"
                assert self.items[number] == job.merge_key
                assert number not in self.acked, f"item {number} was acked"
            found.update(dict.fromkeys(mine, job.id))
            if job.state is State.DONE:
                self.acked.update(n for n, place in self.places.items() if place == job.id and n not in found)
        for number in self.places.keys() - found.keys():
            last = jobs.get(self.places.pop(number))
            while last is not None and (last.last_error or "").startswith(MOVED):
                last = jobs.get((last.last_error or "").removeprefix(MOVED))
            ended = last is None or last.merge_key is None or last.state in (State.DONE, State.CANCELLED)
            assert ended, f"item {number} is lost from a group that is there"
        self.places.update(found)


def _numbers_of(job: Job) -> list[int]:
    # Done and cancelled groups may keep their items to be read; they are not delivered any more.
    kept = job.items is None or job.state in (State.DONE, State.CANCELLED)
    return [] if kept else [int(one.body) for one in job.items or ()]


class OnlyGroups(MergeMachine):
    """Groups alone: fewer rules, so that a broken one is met sooner."""

    def teardown(self) -> None:
        if hasattr(self, "twins"):
            self.twins.check_structure()
            self.twins.check_figures()
            self.twins.check_structure()


class Groups(MergeMachine, Life):
    """The life cycle with groups beside plain jobs."""


class GroupSleepers(MergeMachine, Sleepers):
    """Waiting processes with groups."""
