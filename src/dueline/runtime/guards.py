"""Which guards of a store hold now, for each shard, as far as this process knows. No I/O besides the log.

    a call is refused        the guard holds from then on (`tripped`)
    a check has an answer    it says which guards hold (`checked`). A guard that a call has tripped since the last
                             check stays until the next one, because a check does not see everything that a call sees
    something knows it       such as the supervisor of the embedded store: it says when it begins and when it ends
                             (`known`)

Each guard logs one line when it begins to hold and one when it is over.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

import msgspec

from ..engine.guards import RULES, Guard, GuardWatch
from ..event_log import EventLog


class Reason(msgspec.Struct, frozen=True):
    """Why a process is not ready, or a warning for the operator. `shard` None: it does not concern one shard."""

    code: str
    message: str
    shard: str | None = None


class GuardState:
    """A guard that holds. `tripped`: by a call, since the last check. `certain`: `known` has said so. `refused` counts
    the calls that it has refused in this process."""

    __slots__ = ("certain", "detail", "refused", "since_s", "tripped")

    def __init__(self, detail: str, since_s: float) -> None:
        self.detail = detail
        self.since_s = since_s
        self.tripped = False
        self.certain = False
        self.refused = 0


class Guards(GuardWatch):
    """`name_of` turns the address of a node into the name of its shard. `trouble` is called when a call was refused or
    has failed."""

    def __init__(self, name_of: Callable[[str], str] = str, now_s: Callable[[], float] = time.monotonic) -> None:
        self.closed = False
        self.trouble: Callable[[], None] | None = None
        self._name_of = name_of
        self._now_s = now_s
        self._holding: dict[tuple[Guard, str], GuardState] = {}
        self._shards: frozenset[str] = frozenset()
        self._log = EventLog("dueline.store")

    def __bool__(self) -> bool:
        return bool(self._holding)

    def holds(self, guard: Guard, shard: str | None = None) -> bool:
        """Whether a guard holds, for this shard or for any."""
        if shard is not None:
            return (guard, self._name_of(shard)) in self._holding
        return any(one is guard for one, _ in self._holding)

    # --- what a store reports and asks ------------------------------------------------------------------------------

    def tripped(self, guard: Guard, shard: str, detail: str) -> None:
        shard = self._name_of(shard)
        if guard is Guard.STORE_FULL and (Guard.DISK_LOW, shard) in self._holding:
            guard = Guard.DISK_LOW  # the embedded store says "full" while its disk is
        state = self._enter(guard, shard, detail)
        state.tripped = True
        state.refused += 1
        self.failed()

    def failed(self) -> None:
        if self.trouble is not None:
            self.trouble()

    def refusal(self, shard: str) -> str | None:
        shard = self._name_of(shard)
        for (guard, where), state in self._holding.items():
            if where == shard and RULES[guard].refused_here:
                state.refused += 1
                return _message(guard, state)
        return None

    # --- what checks find -------------------------------------------------------------------------------------------

    def checked(self, found: Mapping[tuple[Guard, str], str], seen: Iterable[str], shards: Iterable[str]) -> None:
        """The result of a check. `found`: the guards that hold, and why. `seen`: the nodes that have answered; only
        their guards can be over. `shards`: all nodes; guards of others are over."""
        named = {(guard, self._name_of(node)): detail for (guard, node), detail in found.items()}
        answered = {self._name_of(node) for node in seen}
        self._shards = frozenset(self._name_of(node) for node in shards)
        for key, state in list(self._holding.items()):
            shard = key[1]
            stays = shard in self._shards and (state.tripped or shard not in answered)
            state.tripped = False
            if not (stays or state.certain or key in named):
                self._leave(*key)
        for (guard, shard), detail in named.items():
            self._enter(guard, shard, detail).detail = detail

    def known(self, guard: Guard, shard: str, detail: str | None) -> None:
        """It is certain that a guard holds, and why; None: that it no longer does. Other checks do not end it."""
        shard = self._name_of(shard)
        state = self._holding.get((guard, shard))
        if detail is not None:
            state = self._enter(guard, shard, detail)
            state.detail, state.certain = detail, True
        elif state is not None and state.certain:
            self._leave(guard, shard)

    # --- what others show -------------------------------------------------------------------------------------------

    def reasons(self, accepted: frozenset[Guard] = frozenset()) -> tuple[list[Reason], list[Reason]]:
        """Returns why no shard can serve, and the warnings. `accepted`: guards that do not stop a shard."""
        stopping = {key for key in self._holding if RULES[key[0]].stops and key[0] not in accepted}
        none_serves = self._shards <= {shard for _, shard in stopping} and bool(stopping)
        why: list[Reason] = []
        warnings: list[Reason] = []
        for key, state in self._holding.items():
            reason = Reason(key[0], _message(key[0], state), key[1])
            stops_all = key in stopping and (none_serves or RULES[key[0]].whole)
            (why if stops_all else warnings).append(reason)
        return why, warnings

    def values(self) -> dict[tuple[str, ...], float]:
        """1 for each (guard, shard) that holds, 0 for the others."""
        zeros = {(guard.value, shard): 0.0 for guard in Guard for shard in sorted(self._shards)}
        return zeros | {(guard.value, shard): 1.0 for guard, shard in self._holding}

    def _enter(self, guard: Guard, shard: str, detail: str) -> GuardState:
        state = self._holding.get((guard, shard))
        if state is None:
            state = self._holding[guard, shard] = GuardState(detail, self._now_s())
            self._close()
            rule = RULES[guard]
            fields = {"guard": guard.value, "shard": shard, "detail": detail}
            self._log.warning(rule.entered, **fields, effect=rule.refuses, advice=rule.heals)
        return state

    def _leave(self, guard: Guard, shard: str) -> None:
        state = self._holding.pop((guard, shard))
        self._close()
        lasted_s = round(self._now_s() - state.since_s, 1)
        fields = {"guard": guard.value, "shard": shard, "lasted_s": lasted_s, "refused_calls": state.refused}
        self._log.info(RULES[guard].left, **fields)

    def _close(self) -> None:
        self.closed = any(RULES[guard].refused_here for guard, _ in self._holding)


def _message(guard: Guard, state: GuardState) -> str:
    rule = RULES[guard]
    return f"{state.detail}. {rule.refuses} {rule.heals}"
