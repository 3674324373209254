"""The events of one job in a history (`Track`), and its lives: a send that replaces a job begins a new one.

Lives are told apart by the digest of the body, so every replacement needs a body of its own. A call without a lease (a
cancel, a move, a revive) is about the life of its moment. Where that moment is not certain, the call becomes one of
unknown outcome in every life that it may have met.
"""

from __future__ import annotations

import msgspec

from .history import Ack, AnyEvent, Cancel, Deliver, Extend, Move, Outcome, Release, Revive, Send

Unleased = Cancel | Move | Revive
NEVER_NS = 1 << 63


class Track:
    """Everything the history contains about one job, or about one life of it.

    `superseded_ns`: from when on a later send may have replaced this life. `replaced_ns`: since when it certainly was
    replaced. `renewed`: a send with the same body may have replaced it, so its deliveries may be those of two lives."""

    __slots__ = (
        *("acks", "cancels", "deliveries", "extends", "moves", "releases", "revives", "sends"),
        *("renewed", "replaced_ns", "superseded_ns"),
    )

    def __init__(self) -> None:
        self.sends: list[Send] = []
        self.deliveries: list[Deliver] = []
        self.acks: list[Ack] = []
        self.releases: list[Release] = []
        self.extends: list[Extend] = []
        self.cancels: list[Cancel] = []
        self.moves: list[Move] = []
        self.revives: list[Revive] = []
        self.superseded_ns = self.replaced_ns = NEVER_NS
        self.renewed = False

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
            case Revive():
                self.revives.append(event)
            case _:
                pass


def ok(event: AnyEvent) -> bool:
    """It was certainly done."""
    return event.outcome is Outcome.OK


def possible(event: AnyEvent) -> bool:
    """It may have been done."""
    return event.outcome is not Outcome.FAIL


def lives_of(track: Track) -> list[Track]:
    """The lives of a job. One, unless a send may have replaced it."""
    sends = [send for send in track.sends if possible(send)]
    if not any(send.replaces for send in sends):
        return [track]
    lives: dict[str, Track] = {send.digest: Track() for send in sends}
    first = lives[sends[0].digest]
    for send in track.sends:
        lives.get(send.digest, first).sends.append(send)
    by_lease: dict[str, Track] = {}
    for delivery in track.deliveries:
        life = by_lease[delivery.lease] = lives.get(delivery.digest, first)
        life.deliveries.append(delivery)
    for call in (*track.acks, *track.releases, *track.extends):
        by_lease.get(call.lease, first).add(call)
    for digest, life in lives.items():
        _place(life, [send for send in sends if send.digest != digest])
        for call in (*track.cancels, *track.moves, *track.revives):
            life.add(call if not ok(call) or _certainly_in(call, life, sends) else _unknown(call))
    return list(lives.values())


def _place(life: Track, others: list[Send]) -> None:
    """Between the sends of the other lives."""
    mine = [send for send in life.sends if possible(send)]
    began_ns = min(send.invoke_ns for send in mine)
    ended_ns = max(send.complete_ns if ok(send) else NEVER_NS for send in mine)
    later = [send for send in others if send.replaces and not (ok(send) and send.complete_ns < began_ns)]
    life.superseded_ns = min((send.invoke_ns for send in later), default=NEVER_NS)
    life.replaced_ns = min((s.complete_ns for s in later if ok(s) and s.invoke_ns > ended_ns), default=NEVER_NS)
    life.renewed = len(mine) > 1 and any(send.replaces for send in mine)


def _certainly_in(call: Unleased, life: Track, sends: list[Send]) -> bool:
    """Whether a call met this life and no other."""
    mine = [send for send in life.sends if possible(send)]
    if any(not ok(send) or send.complete_ns > call.invoke_ns for send in mine):
        return False
    began_ns = min(send.invoke_ns for send in mine)
    others = [send for send in sends if send.digest != mine[0].digest]
    return all((ok(s) and s.complete_ns < began_ns) or s.invoke_ns > call.complete_ns for s in others)


def _unknown(call: Unleased) -> Unleased:
    return msgspec.structs.replace(call, outcome=Outcome.INFO)
