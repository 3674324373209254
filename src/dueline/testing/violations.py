"""What the checker of histories can find."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Kind(StrEnum):
    """The kinds of violations that clients can observe."""

    LOST = "lost"  # the send was acknowledged, nobody can have finished the job, and it is missing at the end
    GHOST = "ghost"  # a job that nobody can have sent
    ALTERED = "altered"  # a body that nobody sent
    EARLY = "early"  # delivered before invocation + delay
    AFTER_DONE = "after_done"  # delivered after a confirmed end
    AFTER_REPLACE = "after_replace"  # delivered after another job had certainly taken its place
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
    ITEM_TWICE = "item_twice"  # an item of a merge group in two groups that were both acked
    ITEM_ORDER = "item_order"  # two items in another order than they were sent
    CONFLICT_ACCEPTED = "conflict_accepted"  # two different requests under one id were both accepted


class Violation(msgspec.Struct, frozen=True):
    """One job violates a guarantee. `why` is the evidence."""

    kind: Kind
    topic: str
    id: str
    why: str

    def __str__(self) -> str:
        return f"{self.kind.value}: {self.topic}/{self.id}: {self.why}"
