"""Checks a history (`dueline.testing.history`) against the server's guarantees. No I/O.

Every check reports only what is CERTAIN. An operation took effect at one moment between its invocation and its answer;
an operation of unknown outcome took effect at any moment after its invocation, or never. A violation is reported only
if no choice of these moments explains what the clients saw.

Two facts make the checks precise without a search, so that n events take O(n log n):

- Operations on different jobs are independent, so each job is checked alone.
- Deliveries of a job are numbered, so their order is known even when their intervals overlap. If an ack accepted the
  token of one delivery, no delivery with a higher number may exist, whenever it was seen.

Two clocks are involved: the history's monotonic one and the store's. They may drift apart by `drift_ppm`, and every
comparison with a duration allows for that.

A job that was replaced is checked life by life (`tracks`). A merge group is checked as a job, its items on their own
(`merge_items`). Not supported: histories in which an id is used again after its tombstone is gone.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator

import msgspec

from .history import Ack, AnyEvent, Append, Cancel, Extend, Fault, Final, Outcome, Pull, Release, Send
from .merge_items import check_items, sends_of_groups
from .tracks import NEVER_NS, Track, lives_of, ok, possible
from .violations import Kind, Violation

__all__ = ["UNAVAILABLE", "Kind", "Report", "Violation", "check"]

NS_PER_MS = 1_000_000
_HOLDER_CODES = frozenset({"lease_lost", "not_found", "already_done"})
UNAVAILABLE = frozenset({"store_down", "loading", "draining", "rate_limited", "unreachable"})
_LIVE = frozenset({"scheduled", "ready", "leased"})


class Report(msgspec.Struct, frozen=True):
    """The result of checking a history. `sends_ok`: jobs with an acknowledged send.
    `recovered`: jobs created by a send of unknown outcome, as a repeat (`kept`) or a delivery showed later.
    `redeliveries`: deliveries of a job after its first (legal under at-least-once delivery).
    `left`: live jobs in the final dump (0 after a full drain). `unavailable`: refusals because the server or the store
    was down. `under_way`: operations without an answer at the moment of a fault; if it is 0, the faults interrupted
    nothing."""

    violations: tuple[Violation, ...]
    sends_ok: int
    sends_failed: int
    sends_unknown: int
    recovered: int
    deliveries: int
    redeliveries: int
    ends_ok: int
    failed: int
    unavailable: int
    unknown: int
    faults: int
    under_way: int
    left: int

    @property
    def ok(self) -> bool:
        """Whether there is no violation."""
        return not self.violations

    def count(self, *kinds: Kind) -> int:
        """The number of violations of these kinds."""
        return sum(1 for violation in self.violations if violation.kind in kinds)


class _Judge:
    """The checks of one job."""

    def __init__(self, topic: str, id: str, track: Track, final: Final, drift_ppm: int) -> None:
        self.topic, self.id, self.track = topic, id, track
        self.kept = final.get((topic, id))
        self.is_last = track.superseded_ns == NEVER_NS  # no other life can have come after this one
        self.revives = [revive for revive in track.revives if possible(revive)]
        self.found: list[Violation] = []
        self._keep_ppm = 1_000_000 - drift_ppm
        self.deliveries = sorted(track.deliveries, key=lambda d: (d.delivery, d.complete_ns))
        self.place = {d.lease: i for i, d in enumerate(self.deliveries)}
        self.sends = [s for s in track.sends if possible(s)]
        self.first_due_ns = min((s.invoke_ns + self._at_least_ns(s.delay_ms) for s in self.sends), default=0)
        for move in track.moves:
            if possible(move):
                self.first_due_ns = min(self.first_due_ns, move.invoke_ns + self._at_least_ns(move.delay_ms))
        self.granted_after_ns = self._grants()
        self.lease_lives_until_ns = self._leases()

    def run(self) -> list[Violation]:
        self._no_loss()
        self._no_ghost()
        self._never_early()
        self._replaced_is_gone()
        if not self.track.renewed:
            self._done_is_done()
            self._one_lease()
            self._fenced()
            self._attempts()
        return self.found

    def _say(self, kind: Kind, why: str) -> None:
        self.found.append(Violation(kind, self.topic, self.id, why))

    def _at_least_ns(self, duration_ms: int) -> int:
        """The least time on the history's clock for a duration on the store's clock."""
        return duration_ms * self._keep_ppm  # ms * 1e6 ns/ms * (1e6 - ppm) / 1e6

    def _grants(self) -> list[int]:
        """The earliest moment at which each delivery can have been granted. The invocation of a long poll may be much
        earlier, but no delivery is granted before its job is due, nor before the delivery with the preceding number."""
        bounds: list[int] = []
        bound = self.first_due_ns
        for delivery in self.deliveries:
            bound = max(bound, delivery.invoke_ns)
            bounds.append(min(bound, delivery.complete_ns))
        return bounds

    def _leases(self) -> list[int]:
        """The time until which each lease was certainly valid: its length, plus confirmed extends, cut off where an
        ack, release or cancel (ok or unknown) may have ended it."""
        until = [
            after + self._at_least_ns(d.lease_ms)
            for after, d in zip(self.granted_after_ns, self.deliveries, strict=True)
        ]
        for extend in self.track.extends:
            place = self.place.get(extend.lease)
            if place is not None and ok(extend):
                until[place] = max(until[place], extend.invoke_ns + self._at_least_ns(extend.lease_ms))
        for touch in (*self.track.acks, *self.track.releases):
            place = self.place.get(touch.lease)
            if place is not None and possible(touch):
                until[place] = min(until[place], touch.invoke_ns)
        cancels = [c.invoke_ns for c in self.track.cancels if possible(c)]
        return [min(end, self.track.superseded_ns, *cancels) for end in until]

    def _no_loss(self) -> None:
        if self.kept is not None or not self.is_last or not any(ok(s) for s in self.track.sends):
            return
        if not any(possible(e) for e in (*self.track.acks, *self.track.cancels)):
            seen = f"after {len(self.deliveries)} deliveries" if self.deliveries else "never delivered"
            self._say(Kind.LOST, f"its send was acknowledged, nobody can have finished it, and it is gone ({seen})")

    def _no_ghost(self) -> None:
        if not self.sends:
            if self.deliveries or self.kept is not None:
                self._say(Kind.GHOST, "the job exists, but none of its sends can have succeeded")
            return
        sent = {s.digest for s in self.sends}
        for delivery in self.deliveries:
            if delivery.digest not in sent:
                self._say(Kind.ALTERED, f"delivery {delivery.delivery} carries a body that nobody sent")

    def _never_early(self) -> None:
        for delivery in self.deliveries if self.sends else ():
            if delivery.complete_ns < self.first_due_ns:
                early_ms = (self.first_due_ns - delivery.complete_ns) / NS_PER_MS
                self._say(Kind.EARLY, f"delivery {delivery.delivery} was seen {early_ms:.3f} ms before its due time")
        moves = [m for m in self.track.moves if possible(m)]
        if not moves:
            for release in self.track.releases:
                self._waits_after_release(release)
            self._waits_after_revive()
        elif len(moves) == 1 and ok(moves[0]):
            due_ns = moves[0].invoke_ns + self._at_least_ns(moves[0].delay_ms)
            for delivery in self.deliveries:
                if moves[0].complete_ns < delivery.invoke_ns and delivery.complete_ns < due_ns:
                    self._say(Kind.EARLY, f"delivery {delivery.delivery} came before the time it was moved to")

    def _waits_after_revive(self) -> None:
        if len(self.revives) != 1 or not ok(self.revives[0]):
            return
        [revive] = self.revives
        due_ns = revive.invoke_ns + self._at_least_ns(revive.delay_ms)
        for delivery in self.deliveries:
            if revive.complete_ns < delivery.invoke_ns and delivery.complete_ns < due_ns:
                self._say(Kind.EARLY, f"delivery {delivery.delivery} came before the time it was revived for")

    def _replaced_is_gone(self) -> None:
        for place, delivery in enumerate(self.deliveries):
            if self.granted_after_ns[place] > self.track.replaced_ns:
                self._say(Kind.AFTER_REPLACE, f"delivery {delivery.delivery} began after it was certainly replaced")
        for op in (*self.track.acks, *self.track.releases, *self.track.extends):
            if ok(op) and op.invoke_ns > self.track.replaced_ns:
                self._say(Kind.STALE_TOKEN_OK, f"{_word(op)} was accepted after the job was certainly replaced")

    def _waits_after_release(self, release: Release) -> None:
        place = self.place.get(release.lease)
        if release.result == "dead":  # only a revive makes it live again, for another time
            return
        if place is None or not ok(release) or place + 1 >= len(self.deliveries):
            return
        after = self.deliveries[place + 1]
        if after.complete_ns < release.invoke_ns + self._at_least_ns(release.delay_ms):
            self._say(Kind.EARLY, f"delivery {after.delivery} came before the wait of {release.delay_ms} ms was over")

    def _ends(self) -> list[Ack | Cancel | Release]:
        """The calls that certainly ended the job. A death does not count if the job may have been revived."""
        dead = [r for r in self.track.releases if r.result == "dead"] if not self.revives else []
        return [e for e in (*self.track.acks, *self.track.cancels, *dead) if ok(e)]

    def _done_is_done(self) -> None:
        ends = self._ends()
        if not ends:
            return
        end = min(ends, key=lambda e: e.complete_ns)
        flagged: set[int] = set()
        for i, delivery in enumerate(self.deliveries):
            if self.granted_after_ns[i] > end.complete_ns:
                flagged.add(i)
                self._say(Kind.AFTER_DONE, f"delivery {delivery.delivery} began after its {_word(end)} was confirmed")
        for other in ends:
            place = None if isinstance(other, Cancel) else self.place.get(other.lease)
            if place is None or place + 1 >= len(self.deliveries) or place + 1 in flagged:
                continue
            after = self.deliveries[place + 1]
            if after.delivery > self.deliveries[place].delivery and after.complete_ns >= other.invoke_ns:
                flagged.add(place + 1)
                why = f"delivery {after.delivery} was made, although the {_word(other)} before it was confirmed"
                self._say(Kind.AFTER_DONE, why)
        if len({type(e) for e in ends}) > 1:
            self._say(Kind.ENDED_TWICE, " and ".join(sorted({_word(e) for e in ends})) + " were both confirmed")
        expected = {"ack": "done", "cancel": "cancelled", "release": "dead"}[_word(end)]
        if self.kept is not None and self.is_last and self.kept.state != expected:
            self._say(Kind.ALIVE_AFTER_DONE, f"its {_word(end)} was confirmed, but at the end it is {self.kept.state}")

    def _one_lease(self) -> None:
        lives_until_ns, holder = 0, 0
        for i, delivery in enumerate(self.deliveries):
            if delivery.complete_ns < lives_until_ns:
                self._say(Kind.TWO_LEASES, f"delivery {delivery.delivery} came while delivery {holder} held the lease")
            if self.lease_lives_until_ns[i] > lives_until_ns:
                lives_until_ns, holder = self.lease_lives_until_ns[i], delivery.delivery
        for op in (*self.track.acks, *self.track.releases, *self.track.extends):
            place = self.place.get(op.lease)
            if place is None or op.outcome is not Outcome.FAIL or op.code not in _HOLDER_CODES:
                continue
            if op.complete_ns < self.lease_lives_until_ns[place]:
                number = self.deliveries[place].delivery
                self._say(Kind.HOLDER_REFUSED, f"{_word(op)} of delivery {number}: {op.code} while its lease lived")

    def _fenced(self) -> None:
        """Report tokens that were accepted although the job was leased again, released or ended before the call."""
        given_back = {r.lease: r.complete_ns for r in self.track.releases if ok(r)}
        ended: dict[str, int] = {}
        for end in self._ends():
            ended[_word(end)] = min(end.complete_ns, ended.get(_word(end), end.complete_ns))
        newest: list[int] = []  # newest[i]: the first answer that showed a delivery after place i
        soonest = 1 << 63
        for delivery in reversed(self.deliveries):
            newest.append(soonest)
            soonest = min(soonest, delivery.complete_ns)
        newest.reverse()
        for op in (*self.track.acks, *self.track.releases, *self.track.extends):
            if not ok(op):
                continue
            place = self.place.get(op.lease)
            if place is None:
                self._say(Kind.STALE_TOKEN_OK, f"{_word(op)} was accepted with a token that no delivery carried")
                continue
            number = self.deliveries[place].delivery
            if newest[place] < op.invoke_ns:
                self._say(Kind.STALE_TOKEN_OK, f"{_word(op)} with the token of delivery {number} after a newer one")
            elif given_back.get(op.lease, op.invoke_ns) < op.invoke_ns:
                self._say(Kind.STALE_TOKEN_OK, f"{_word(op)} with the token of delivery {number} after its release")
            elif any(at_ns < op.invoke_ns for end, at_ns in ended.items() if end != _word(op)):
                self._say(Kind.STALE_TOKEN_OK, f"{_word(op)} with the token of delivery {number} after the job's end")

    def _attempts(self) -> None:
        limits = [s.max_attempts for s in self.sends]
        limits += [revive.max_attempts for revive in self.revives if revive.max_attempts is not None]
        limit = max((x for x in limits if x is not None), default=0) if limits and None not in limits else None
        for before, after in zip(self.deliveries, self.deliveries[1:], strict=False):
            if before.delivery == after.delivery:
                self._say(Kind.NUMBER_REPEATED, f"two deliveries have the number {after.delivery}")
        soonest = 1 << 63
        for delivery in reversed(self.deliveries):
            if soonest < delivery.invoke_ns:
                self._say(Kind.NUMBER_ORDER, f"delivery {delivery.delivery} began after one with a higher number ended")
            soonest = min(soonest, delivery.complete_ns)
            if limit is not None and delivery.attempt > limit:
                self._say(Kind.ATTEMPTS_OVER, f"attempt {delivery.attempt} of at most {limit}")
        if self.kept is None or not self.is_last:
            return
        if limit is not None and self.kept.attempts > limit:
            self._say(Kind.ATTEMPTS_OVER, f"{self.kept.attempts} attempts at the end, at most {limit} are allowed")
        if self.revives:  # the attempts began again, and perhaps with another limit
            return
        if limit is not None and self.kept.reason == "exhausted" and self.kept.attempts < limit:
            self._say(Kind.ATTEMPTS_WRONG, f"dead (exhausted) after {self.kept.attempts} of {limit} attempts")
        uncounted = sum(1 for r in self.track.releases if not r.count and possible(r))
        seen = max((d.attempt for d in self.deliveries), default=0) - uncounted
        if self.kept.state in _LIVE | {"dead"} and self.kept.attempts < seen:
            self._say(Kind.ATTEMPTS_WRONG, f"{self.kept.attempts} attempts at the end, {seen} were seen")


def _one_job_per_id(topic: str, id: str, track: Track) -> Iterator[Violation]:
    """Over all lives of a job."""
    requests = {(s.digest, s.delay_ms, s.max_attempts) for s in track.sends}
    accepted = [s for s in track.sends if ok(s)]
    if sum(1 for s in accepted if s.result == "created") > 1:
        yield Violation(Kind.CREATED_TWICE, topic, id, "more than one send of this id was answered `created`")
    if any(s.replaces for s in track.sends):
        return
    if len({s.digest for s in accepted}) > 1:
        yield Violation(Kind.CONFLICT_ACCEPTED, topic, id, "sends with different bodies were both accepted")
    if len(requests) == 1 and any(s.code == "id_exists" for s in track.sends):
        yield Violation(Kind.RETRY_REFUSED, topic, id, "the same request again was answered id_exists")


def _word(event: Ack | Release | Extend | Cancel) -> str:
    return type(event).__name__.lower()


def check(events: Iterable[AnyEvent], final: Final, drift_ppm: int = 500) -> Report:
    """Check a whole history. `final` is everything the server still has after the drain, including tombstones."""
    tracks: dict[tuple[str, str], Track] = {}
    history = list(events)
    for event in history:
        if isinstance(event, Pull | Fault | Append):
            continue
        track = tracks.get(event.job)
        if track is None:
            track = tracks[event.job] = Track()
        track.add(event)
    for job in final:
        tracks.setdefault(job, Track())
    report = _report(history, tracks, final)
    for send in sends_of_groups(history, final):
        tracks.setdefault(send.job, Track()).add(send)
    violations = check_items(history, final)
    for (topic, id), track in tracks.items():
        for life in lives_of(track):
            violations += _Judge(topic, id, life, final, drift_ppm).run()
        violations += _one_job_per_id(topic, id, track)
    return msgspec.structs.replace(report, violations=tuple(violations))


def _report(history: list[AnyEvent], tracks: dict[tuple[str, str], Track], final: Final) -> Report:
    sends = [event for event in history if isinstance(event, Send | Append)]
    deliveries = [len(t.deliveries) for t in tracks.values()]
    struck_ns = sorted(e.invoke_ns for e in history if isinstance(e, Fault))
    calls = [e for e in history if not isinstance(e, Fault)]
    failed = [e for e in calls if e.outcome is Outcome.FAIL]
    return Report(
        violations=(),
        sends_ok=len({s.job for s in sends if ok(s)}),
        sends_failed=sum(1 for s in sends if s.outcome is Outcome.FAIL),
        sends_unknown=sum(1 for s in sends if s.outcome is Outcome.INFO),
        recovered=sum(1 for job, t in tracks.items() if _recovered(t, job in final)),
        deliveries=sum(deliveries),
        redeliveries=sum(n - 1 for n in deliveries if n),
        ends_ok=sum(1 for t in tracks.values() if any(ok(e) for e in (*t.acks, *t.cancels))),
        failed=len(failed),
        unavailable=sum(1 for e in failed if e.code in UNAVAILABLE),
        unknown=sum(1 for e in calls if e.outcome is Outcome.INFO),
        faults=len(struck_ns),
        under_way=sum(1 for e in calls if bisect_left(struck_ns, e.invoke_ns) < bisect_left(struck_ns, e.complete_ns)),
        left=sum(1 for kept in final.values() if kept.state in _LIVE),
    )


def _recovered(track: Track, kept: bool) -> bool:
    unknown = any(s.outcome is Outcome.INFO for s in track.sends)
    answered = [s.result for s in track.sends if ok(s)]
    return unknown and "created" not in answered and bool(answered or track.deliveries or kept)
