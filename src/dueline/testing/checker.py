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

Not supported: histories in which an id is replaced or revived, or used again after its tombstone is gone.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from enum import StrEnum

import msgspec

from .history import Ack, AnyEvent, Cancel, Deliver, Extend, Fault, Final, Move, Outcome, Pull, Release, Send

NS_PER_MS = 1_000_000
_HOLDER_CODES = frozenset({"lease_lost", "not_found", "already_done"})
UNAVAILABLE = frozenset({"store_down", "loading", "draining", "rate_limited", "unreachable"})
_LIVE = frozenset({"scheduled", "ready", "leased"})


class Kind(StrEnum):
    """The kinds of violations that clients can observe."""

    LOST = "lost"  # the send was acknowledged, nobody can have finished the job, and it is missing at the end
    GHOST = "ghost"  # a job that nobody can have sent
    ALTERED = "altered"  # a body that nobody sent
    EARLY = "early"  # delivered before invocation + delay
    AFTER_DONE = "after_done"  # delivered after a confirmed end
    ALIVE_AFTER_DONE = "alive_after_done"  # the final dump contradicts a confirmed end
    ENDED_TWICE = "ended_twice"  # both an ack and a cancel were confirmed
    TWO_LEASES = "two_leases"  # leased again while an earlier lease was certainly valid
    HOLDER_REFUSED = "holder_refused"  # the holder was refused while its lease was certainly valid
    STALE_TOKEN_OK = "stale_token_ok"  # a token was accepted that was certainly not current
    NUMBER_REPEATED = "number_repeated"  # two deliveries with one number
    NUMBER_ORDER = "number_order"  # a later delivery has a lower number
    ATTEMPTS_OVER = "attempts_over"  # more attempts than allowed
    ATTEMPTS_WRONG = "attempts_wrong"  # the dump counts fewer attempts than were seen, or the job died too early
    CREATED_TWICE = "created_twice"  # one id made two jobs
    RETRY_REFUSED = "retry_refused"  # a repeat of the same request was answered id_exists
    CONFLICT_ACCEPTED = "conflict_accepted"  # two different requests under one id were both accepted


class Violation(msgspec.Struct, frozen=True):
    """A violation for one job, and the evidence."""

    kind: Kind
    topic: str
    id: str
    why: str

    def __str__(self) -> str:
        return f"{self.kind.value}: {self.topic}/{self.id}: {self.why}"


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


class _Track:
    """Everything the history contains about one job."""

    __slots__ = ("acks", "cancels", "deliveries", "extends", "moves", "releases", "sends")

    def __init__(self) -> None:
        self.sends: list[Send] = []
        self.deliveries: list[Deliver] = []
        self.acks: list[Ack] = []
        self.releases: list[Release] = []
        self.extends: list[Extend] = []
        self.cancels: list[Cancel] = []
        self.moves: list[Move] = []

    def add(self, event: AnyEvent) -> None:
        match event:
            case Send():
                self.sends.append(event)
            case Deliver():
                self.deliveries.append(event)
            case Ack():
                self.acks.append(event)
            case Release():
                self.releases.append(event)
            case Extend():
                self.extends.append(event)
            case Cancel():
                self.cancels.append(event)
            case Move():
                self.moves.append(event)
            case Pull() | Fault():
                pass


def _ok(event: AnyEvent) -> bool:
    return event.outcome is Outcome.OK


def _possible(event: AnyEvent) -> bool:
    return event.outcome is not Outcome.FAIL


class _Judge:
    """The checks of one job."""

    def __init__(self, topic: str, id: str, track: _Track, final: Final, drift_ppm: int) -> None:
        self.topic, self.id, self.track = topic, id, track
        self.kept = final.get((topic, id))
        self.found: list[Violation] = []
        self._keep_ppm = 1_000_000 - drift_ppm
        self.deliveries = sorted(track.deliveries, key=lambda d: (d.delivery, d.complete_ns))
        self.place = {d.lease: i for i, d in enumerate(self.deliveries)}
        self.sends = [s for s in track.sends if _possible(s)]
        self.first_due_ns = min((s.invoke_ns + self._at_least_ns(s.delay_ms) for s in self.sends), default=0)
        for move in track.moves:
            if _possible(move):
                self.first_due_ns = min(self.first_due_ns, move.invoke_ns + self._at_least_ns(move.delay_ms))
        self.granted_after_ns = self._grants()
        self.lease_lives_until_ns = self._leases()

    def run(self) -> list[Violation]:
        self._no_loss()
        self._no_ghost()
        self._never_early()
        self._done_is_done()
        self._one_lease()
        self._fenced()
        self._attempts()
        self._one_job_per_id()
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
        """Until when each lease was certainly valid: its length, plus confirmed extends, cut off where an ack, release
        or cancel (ok or unknown) may have ended it."""
        until = [
            after + self._at_least_ns(d.lease_ms)
            for after, d in zip(self.granted_after_ns, self.deliveries, strict=True)
        ]
        for extend in self.track.extends:
            place = self.place.get(extend.lease)
            if place is not None and _ok(extend):
                until[place] = max(until[place], extend.invoke_ns + self._at_least_ns(extend.lease_ms))
        for touch in (*self.track.acks, *self.track.releases):
            place = self.place.get(touch.lease)
            if place is not None and _possible(touch):
                until[place] = min(until[place], touch.invoke_ns)
        cancels = [c.invoke_ns for c in self.track.cancels if _possible(c)]
        if cancels:
            until = [min(end, *cancels) for end in until]
        return until

    def _no_loss(self) -> None:
        if self.kept is not None or not any(_ok(s) for s in self.track.sends):
            return
        if not any(_possible(e) for e in (*self.track.acks, *self.track.cancels)):
            seen = f"after {len(self.deliveries)} deliveries" if self.deliveries else "never delivered"
            self._say(Kind.LOST, f"acknowledged, {seen}, nobody can have finished it, missing at the end")

    def _no_ghost(self) -> None:
        if not self.sends:
            if self.deliveries or self.kept is not None:
                self._say(Kind.GHOST, "it is there, but no send of it can have been done")
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
        moves = [m for m in self.track.moves if _possible(m)]
        if not moves:
            for release in self.track.releases:
                self._waits_after_release(release)
        elif len(moves) == 1 and _ok(moves[0]):
            due_ns = moves[0].invoke_ns + self._at_least_ns(moves[0].delay_ms)
            for delivery in self.deliveries:
                if moves[0].complete_ns < delivery.invoke_ns and delivery.complete_ns < due_ns:
                    self._say(Kind.EARLY, f"delivery {delivery.delivery} came before the time it was moved to")

    def _waits_after_release(self, release: Release) -> None:
        place = self.place.get(release.lease)
        if place is None or not _ok(release) or place + 1 >= len(self.deliveries):
            return
        after = self.deliveries[place + 1]
        if after.complete_ns < release.invoke_ns + self._at_least_ns(release.delay_ms):
            self._say(Kind.EARLY, f"delivery {after.delivery} came before the wait of {release.delay_ms} ms was over")

    def _ends(self) -> list[Ack | Cancel | Release]:
        dead = [r for r in self.track.releases if r.result == "dead"]
        return [e for e in (*self.track.acks, *self.track.cancels, *dead) if _ok(e)]

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
                self._say(Kind.AFTER_DONE, f"delivery {after.delivery} exists beside a confirmed {_word(other)}")
        if len({type(e) for e in ends}) > 1:
            self._say(Kind.ENDED_TWICE, " and ".join(sorted({_word(e) for e in ends})) + " were both confirmed")
        expected = {"ack": "done", "cancel": "cancelled", "release": "dead"}[_word(end)]
        if self.kept is not None and self.kept.state != expected:
            self._say(Kind.ALIVE_AFTER_DONE, f"its {_word(end)} was confirmed, at the end it is {self.kept.state}")

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
        given_back = {r.lease: r.complete_ns for r in self.track.releases if _ok(r)}
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
            if not _ok(op):
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
        if self.kept is None:
            return
        if limit is not None and self.kept.attempts > limit:
            self._say(Kind.ATTEMPTS_OVER, f"{self.kept.attempts} attempts at the end, at most {limit} are allowed")
        if limit is not None and self.kept.reason == "exhausted" and self.kept.attempts < limit:
            self._say(Kind.ATTEMPTS_WRONG, f"dead (exhausted) after {self.kept.attempts} of {limit} attempts")
        uncounted = sum(1 for r in self.track.releases if not r.count and _possible(r))
        seen = max((d.attempt for d in self.deliveries), default=0) - uncounted
        if self.kept.state in _LIVE | {"dead"} and self.kept.attempts < seen:
            self._say(Kind.ATTEMPTS_WRONG, f"{self.kept.attempts} attempts at the end, {seen} were seen")

    def _one_job_per_id(self) -> None:
        requests = {(s.digest, s.delay_ms, s.max_attempts) for s in self.track.sends}
        accepted = [s for s in self.track.sends if _ok(s)]
        if sum(1 for s in accepted if s.result == "created") > 1:
            self._say(Kind.CREATED_TWICE, "more than one send of this id was answered `created`")
        if len({s.digest for s in accepted}) > 1:
            self._say(Kind.CONFLICT_ACCEPTED, "sends with different bodies were both accepted")
        if len(requests) == 1 and any(s.code == "id_exists" for s in self.track.sends):
            self._say(Kind.RETRY_REFUSED, "the same request again was answered id_exists")


def _word(event: Ack | Release | Extend | Cancel) -> str:
    return type(event).__name__.lower()


def check(events: Iterable[AnyEvent], final: Final, drift_ppm: int = 500) -> Report:
    """Check a whole history. `final` is everything the server still has after the drain, including tombstones."""
    tracks: dict[tuple[str, str], _Track] = {}
    history = list(events)
    for event in history:
        if isinstance(event, Pull | Fault):
            continue
        track = tracks.get(event.job)
        if track is None:
            track = tracks[event.job] = _Track()
        track.add(event)
    for job in final:
        tracks.setdefault(job, _Track())
    violations: list[Violation] = []
    for (topic, id), track in tracks.items():
        violations += _Judge(topic, id, track, final, drift_ppm).run()
    return _report(history, tracks, final, violations)


def _report(
    history: list[AnyEvent], tracks: dict[tuple[str, str], _Track], final: Final, violations: list[Violation]
) -> Report:
    sends = [s for t in tracks.values() for s in t.sends]
    deliveries = [len(t.deliveries) for t in tracks.values()]
    struck_ns = sorted(e.invoke_ns for e in history if isinstance(e, Fault))
    calls = [e for e in history if not isinstance(e, Fault)]
    failed = [e for e in calls if e.outcome is Outcome.FAIL]
    return Report(
        violations=tuple(violations),
        sends_ok=sum(1 for t in tracks.values() if any(_ok(s) for s in t.sends)),
        sends_failed=sum(1 for s in sends if s.outcome is Outcome.FAIL),
        sends_unknown=sum(1 for s in sends if s.outcome is Outcome.INFO),
        recovered=sum(1 for job, t in tracks.items() if _recovered(t, job in final)),
        deliveries=sum(deliveries),
        redeliveries=sum(n - 1 for n in deliveries if n),
        ends_ok=sum(1 for t in tracks.values() if any(_ok(e) for e in (*t.acks, *t.cancels))),
        failed=len(failed),
        unavailable=sum(1 for e in failed if e.code in UNAVAILABLE),
        unknown=sum(1 for e in calls if e.outcome is Outcome.INFO),
        faults=len(struck_ns),
        under_way=sum(1 for e in calls if bisect_left(struck_ns, e.invoke_ns) < bisect_left(struck_ns, e.complete_ns)),
        left=sum(1 for kept in final.values() if kept.state in _LIVE),
    )


def _recovered(track: _Track, kept: bool) -> bool:
    unknown = any(s.outcome is Outcome.INFO for s in track.sends)
    answered = [s.result for s in track.sends if _ok(s)]
    return unknown and "created" not in answered and bool(answered or track.deliveries or kept)
