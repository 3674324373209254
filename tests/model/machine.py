"""Random programmes over a few ids: everything a caller can do, in any order, at any moment."""

from __future__ import annotations

import os
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dueline.engine.job import BodyKind, Reason, State
from dueline.engine.limits import LAST_MS
from dueline.engine.policy import AT_ONCE, Backoff, JobPolicy, Ladder
from dueline.engine.store import Credit, Edit, OnConflict, Pull, Revive, SendItem, Spare
from tests.kit.store import item

from .twins import IDS, Lease, SharedStore, Twins

EXAMPLES = int(os.environ.get("DUELINE_MODEL_EXAMPLES", "60"))
STEPS = int(os.environ.get("DUELINE_MODEL_STEPS", "40"))

POLICIES = (
    JobPolicy(),
    JobPolicy(retry=AT_ONCE),
    JobPolicy(lease_ms=20, max_attempts=1, retain_ms=30, dead_retain_ms=40),
    JobPolicy(max_attempts=2, retain_ms=0, dead_retain_ms=0, retry=AT_ONCE),
    JobPolicy(max_attempts=2, retry=Ladder((10, 60)), keep_body=True),
    JobPolicy(lease_ms=5, max_attempts=None, retry=Backoff(10, 3.0, 100, 0.5), retain_ms=100),
)

ids = st.sampled_from(IDS)
delays = st.sampled_from([0, 0, 0, 1, 10, 50])
leases_ms = st.sampled_from([None, 1, 10, 10, 60])
conflicts = st.sampled_from(OnConflict)
policies = st.sampled_from(POLICIES)
tags = st.sampled_from([(), ("t",), ("t", "u")])
names = st.sampled_from([None, "a", "é" * 70])
recent = st.sampled_from([0, 0, 0, 1, 2])  # how many deliveries back


@st.composite
def send_items(draw: st.DrawFn) -> SendItem:
    return item(
        draw(ids),
        body=draw(st.sampled_from([b"x", b"", b"\xff\x00"])),
        kind=draw(st.sampled_from(BodyKind)),
        delay_ms=draw(delays),
        policy=draw(policies),
        ttl_ms=draw(st.sampled_from([None, 5, 30])),
        on_live=draw(conflicts),
        on_ended=draw(conflicts),
        on_overdue=draw(st.sampled_from([None, *OnConflict])),
        tags=draw(tags),
        headers=draw(st.sampled_from([b"", b"h"])),
    )


@st.composite
def edits(draw: st.DrawFn) -> dict[str, Any]:
    """Any subset of what an edit can name."""
    words: dict[str, Any] = {
        "delay_ms": draw(delays),
        "at_ms": 0,
        "body": b"edited",
        "headers": draw(st.sampled_from([b"", b"hh"])),
        "tags": draw(tags),
        "ttl_ms": draw(st.sampled_from([0, 7, 40])),
        "policy": draw(policies),
    }
    chosen = draw(st.sets(st.sampled_from(sorted(words)), min_size=1, max_size=3))
    found = {name: words[name] for name in chosen}
    if "body" in found:
        found["kind"] = BodyKind.BYTES
    if "delay_ms" in found:
        found.pop("at_ms", None)
    return found


class BaseMachine(RuleBasedStateMachine):
    """What every machine does: pull, ack, give back, let time pass. Subclasses set `shared`. Every rule is one call
    or a few on both stores; every step compares every job."""

    shared: SharedStore
    twins: Twins

    @initialize()
    def begin(self) -> None:
        self.twins = Twins(self.shared)

    @rule(every_call=st.booleans())
    def answers_are_lost_and_calls_repeated(self, every_call: bool) -> None:
        self.twins.repeat(every_call)

    def delivery(self, back: int) -> Lease:
        """One of the last deliveries. Its token may be current, stale, or of a job that is long gone."""
        leases = self.twins.leases
        return leases[-1 - back % len(leases)]

    @rule(lease_ms=leases_ms, by=names)
    def pull_one(self, lease_ms: int | None, by: str | None) -> None:
        self.twins.pull(Pull((Credit(1, lease_ms, by),), 15))

    @rule(lease_ms=leases_ms)
    def pull_again_after_a_while(self, lease_ms: int | None) -> None:
        self.shared.clock.advance(10)
        self.twins.pull(Pull((Credit(3, lease_ms),), 15))

    @precondition(lambda self: self.twins.leases)
    @rule(back=recent, twice=st.booleans())
    def ack(self, back: int, twice: bool) -> None:
        lease = self.delivery(back)
        self.twins.ack([(lease.id, lease)] * (2 if twice else 1))

    @precondition(lambda self: self.twins.leases)
    @rule(back=recent)
    def release_by_the_retry_policy(self, back: int) -> None:
        lease = self.delivery(back)
        self.twins.release(lease.id, lease)

    @rule(ms=st.sampled_from([1, 1, 5, 10, 20, 30, 100]))
    def time_goes_on(self, ms: int) -> None:
        self.shared.clock.advance(ms)

    @rule()
    def much_later(self) -> None:
        self.shared.clock.advance(20_000)

    @rule()
    def clean(self) -> None:
        self.twins.clean()

    @rule()
    def histories(self) -> None:
        self.twins.histories()

    @invariant()
    def both_stores_hold_the_same_jobs(self) -> None:
        self.twins.jobs()


class JobMachine(BaseMachine):
    """Everything a caller can do with plain jobs."""

    @rule(items=st.lists(send_items(), min_size=1, max_size=4))
    def send(self, items: list[SendItem]) -> None:
        self.twins.send(items)

    @rule(id=ids, policy=policies, ttl_ms=st.sampled_from([None, 5, 30]))
    def send_a_new_one(self, id: str, policy: JobPolicy, ttl_ms: int | None) -> None:
        self.twins.send([item(id, policy=policy, ttl_ms=ttl_ms, on_live=OnConflict.REPLACE)])

    @rule(credits=st.lists(st.builds(Credit, st.integers(1, 3), leases_ms, names), min_size=1, max_size=2))
    def pull(self, credits: list[Credit]) -> None:
        self.twins.pull(Pull(tuple(credits), 15))

    @rule(id=ids)
    def ack_without_a_token(self, id: str) -> None:
        self.twins.ack([(id, None)])

    @precondition(lambda self: self.twins.leases)
    @rule(id=ids, draw=st.integers(0, 99), lease_ms=st.sampled_from([1, 100]))
    def use_any_token_ever_given_for_any_job(self, id: str, draw: int, lease_ms: int) -> None:
        lease = self.twins.leases[draw % len(self.twins.leases)]
        self.twins.extend(id, lease, lease_ms)
        self.twins.release(id, lease, delay_ms=0)
        self.twins.ack([(id, lease)])

    @precondition(lambda self: self.twins.leases)
    @rule(id=ids, policy=policies, draw=st.integers(0, 99))
    def use_another_token_for_a_new_lease(self, id: str, policy: JobPolicy, draw: int) -> None:
        lease = self.twins.leases[draw % len(self.twins.leases)]
        self.twins.send([item(id, policy=policy, on_live=OnConflict.REPLACE)])
        self.twins.pull(Pull((Credit(3, 10),), 15))
        self.twins.extend(id, lease, 50)
        self.twins.ack([(id, lease)])

    @precondition(lambda self: self.twins.leases)
    @rule(
        back=recent,
        with_token=st.sampled_from([True, True, True, False]),
        delay_ms=st.sampled_from([None, None, 0, 10]),
        error=st.sampled_from([None, "", "é" * 3]),
        count=st.sampled_from([True, True, False]),
        dead=st.sampled_from([None, None, None, None, Reason.REJECTED, Reason.CORRUPT]),
        jitter_draw=st.sampled_from([0.0, 0.25, 1.0]),
    )
    def release(self, back: int, with_token: bool, error: str | None, **words: Any) -> None:
        lease = self.delivery(back)
        self.twins.release(lease.id, lease if with_token else None, error=error or None, **words)

    @precondition(lambda self: self.twins.leases)
    @rule(back=recent, lease_ms=st.sampled_from([1, 10, 100]))
    def extend(self, back: int, lease_ms: int) -> None:
        lease = self.delivery(back)
        self.twins.extend(lease.id, lease, lease_ms)

    @rule(
        chosen=st.lists(ids, min_size=1, max_size=3),
        forget=st.sampled_from([False, False, True]),
        spare=st.sampled_from(Spare),
    )
    def cancel(self, chosen: list[str], forget: bool, spare: Spare) -> None:
        self.twins.cancel(chosen, forget, spare)

    @rule(new=send_items(), forget=st.booleans(), spare=st.sampled_from(Spare), sends=st.booleans())
    def a_ttl_ends_while_its_job_is_leased(self, new: SendItem, forget: bool, spare: Spare, sends: bool) -> None:
        self.twins.send([item(new.id, ttl_ms=5, on_live=OnConflict.REPLACE)])
        self.twins.pull(Pull((Credit(len(IDS), 60),), 15))
        self.shared.clock.advance(5)
        if sends:
            self.twins.send([new])
        else:
            self.twins.cancel([new.id], forget, spare)

    @rule(id=ids, words=edits(), version=st.sampled_from([None, None, 0, 1]))
    def edit(self, id: str, words: dict[str, Any], version: int | None) -> None:
        job = dict(zip(IDS, self.twins.jobs(), strict=False))[id]
        expected = None if version is None or job is None else job.version + version
        self.twins.edit([Edit(id, version=expected, **words)])

    @rule(chosen=st.lists(ids, min_size=1, max_size=3, unique=True), delay_ms=delays, most=st.sampled_from([-1, 0, 2]))
    def revive(self, chosen: list[str], delay_ms: int, most: int) -> None:
        given = {"set_max_attempts": True, "max_attempts": most or None} if most >= 0 else {}
        self.twins.revive(Revive(tuple(chosen), delay_ms=delay_ms, **given))

    @rule()
    def revive_all_the_dead(self) -> None:
        self.twins.revive(Revive(IDS))

    @rule(chosen=st.lists(ids, min_size=1, max_size=2, unique=True))
    def purge(self, chosen: list[str]) -> None:
        self.twins.purge(tuple(chosen))

    @rule(until=st.sampled_from(["resume", "resume", "resume", "soon", "ever"]))
    def pause(self, until: str) -> None:
        until_ms = {"resume": 0, "ever": LAST_MS, "soon": self.shared.clock.now_ms + 15}[until]
        self.twins.control(pause_until_ms=until_ms)

    @rule(most=st.sampled_from([0, 0, 0, 1, 2]))
    def limit(self, most: int) -> None:
        self.twins.control(max_in_flight=most)

    @rule(most=st.sampled_from([1, 2]), policy=policies)
    def a_crowd_under_a_limit(self, most: int, policy: JobPolicy) -> None:
        """Chance alone rarely brings a full partition, a waiter and a freed place together."""
        self.twins.control(pause_until_ms=0, max_in_flight=most)
        self.twins.send([item(id, policy=policy, on_live=OnConflict.REPLACE) for id in IDS])

    @rule(
        id=ids,
        policy=policies,
        ttl_ms=st.sampled_from([None, 5]),
        lease_ms=st.sampled_from([1, 60]),
        ms=st.sampled_from([1, 6]),
    )
    def time_passes_over_a_new_lease(
        self, id: str, policy: JobPolicy, ttl_ms: int | None, lease_ms: int, ms: int
    ) -> None:
        """The lease is lost, the ttl passes under it, or both."""
        self.twins.send([item(id, policy=policy, ttl_ms=ttl_ms, on_live=OnConflict.REPLACE)])
        self.twins.pull(Pull((Credit(3, lease_ms),), 15))
        self.shared.clock.advance(ms)

    @rule(id=ids, policy=policies, by=names, fails=st.booleans(), late_ms=st.sampled_from([0, 0, 60]))
    def a_whole_life(self, id: str, policy: JobPolicy, by: str | None, fails: bool, late_ms: int) -> None:
        """Chance alone rarely acks a running lease, and hardly ever after a retry."""
        self.twins.control(pause_until_ms=0, max_in_flight=0)
        self.twins.send([item(id, policy=policy, on_live=OnConflict.REPLACE)])
        pull = Pull((Credit(len(IDS), 60, by),), 15)
        self.twins.pull(pull)
        if fails:
            lease = self.twins.leases[-1]
            self.twins.release(lease.id, lease, delay_ms=0, error="no")
            self.twins.pull(pull)
        lease = self.twins.leases[-1]
        self.shared.clock.advance(late_ms)
        self.twins.ack([(lease.id, lease)])

    @rule(id=ids, delay_ms=st.sampled_from([20, 50]))
    def send_for_later(self, id: str, delay_ms: int) -> None:
        self.twins.send([item(id, delay_ms=delay_ms, on_live=OnConflict.REPLACE)])

    @rule(delay_ms=st.sampled_from([0, 1, 10]))
    def move_what_waits(self, delay_ms: int) -> None:
        waiting = [job.id for job in self.twins.jobs() if job is not None and job.state is State.SCHEDULED]
        self.twins.edit([Edit(id, delay_ms=delay_ms) for id in waiting[:1]])

    @rule(ms=st.sampled_from([5, 10]))
    def a_moment_later(self, ms: int) -> None:
        self.shared.clock.advance(ms)


class Life(JobMachine):
    """The life cycle: replies, states, figures, versions, retirement; at the end the stored structure itself."""

    @rule()
    def figures(self) -> None:
        self.twins.check_figures()

    @rule(id=ids, delay_ms=delays)
    def edit_a_retry(self, id: str, delay_ms: int) -> None:
        """Chance alone rarely edits a job between its release and its next delivery."""
        self.fail_once(id)
        self.twins.edit([Edit(id, delay_ms=delay_ms)])
        self.twins.check_figures()

    @rule(first=names, second=names)
    def deliver_a_retry_beside_a_new_job(self, first: str | None, second: str | None) -> None:
        """Chance alone rarely brings two attempts, or two consumers, into one call."""
        self.fail_once(IDS[0])
        self.twins.send([item(id, on_live=OnConflict.REPLACE) for id in IDS[1:]])
        self.twins.pull(Pull((Credit(2, 60, first), Credit(len(IDS), 60, second)), 15))
        self.twins.histories()

    def fail_once(self, id: str) -> None:
        self.twins.control(pause_until_ms=0, max_in_flight=0)
        self.twins.send([item(id, on_live=OnConflict.REPLACE)])
        self.twins.pull(Pull((Credit(len(IDS), 60),), 15))
        for lease in [lease for lease in self.twins.leases if lease.id == id][-1:]:
            self.twins.release(id, lease, delay_ms=0)

    @rule(topic_too=st.booleans())
    def retire(self, topic_too: bool) -> None:
        self.twins.retire(topic_too)

    @rule(items=st.lists(send_items(), min_size=1, max_size=2))
    def send_with_a_policy_that_the_partition_may_not_know(self, items: list[SendItem]) -> None:
        self.twins.send(items, self.twins.policy_version + 1)

    @rule(items=st.lists(send_items(), min_size=1, max_size=2), older=st.booleans())
    def send_after_a_change_of_the_policy(self, items: list[SendItem], older: bool) -> None:
        self.twins.policy_version += 1
        self.twins.control(policy_version=self.twins.policy_version)
        self.twins.send(items, self.twins.policy_version - older)

    @rule(items=st.lists(send_items(), min_size=1, max_size=3))
    def send_while_the_partition_is_closed(self, items: list[SendItem]) -> None:
        self.twins.policy_version += 1
        self.twins.close(True)
        for one in items:
            self.twins.send([one], self.twins.policy_version)
        self.twins.send(items, self.twins.policy_version)
        self.twins.close(False)

    def teardown(self) -> None:
        if hasattr(self, "twins"):
            self.twins.check_structure()
            self.twins.check_figures()
            self.twins.check_structure()


def machine_settings(examples: int = EXAMPLES, steps: int = STEPS, *, shrink: bool = True) -> settings:
    """The same programmes on every run; more of them with DUELINE_MODEL_EXAMPLES and DUELINE_MODEL_STEPS."""
    return settings(
        max_examples=examples,
        stateful_step_count=steps,
        derandomize=True,
        database=None,
        report_multiple_bugs=False,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink] if shrink else [Phase.generate],
    )
