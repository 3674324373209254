"""One timer for all connections of a front: a coarse wheel of slots.

A connection carries `deadline_s` (loop time) and `slot`. Postponing a deadline is one attribute write: the wheel
notices it when the old slot comes up and moves the connection then. So a busy keep-alive connection costs nothing
here. The timer sleeps until the next filled slot; without connections there is no timer at all.
"""

from __future__ import annotations

import asyncio
import math
from typing import Protocol

NEVER = math.inf


class HasDeadline(Protocol):
    """An object with a deadline. The wheel owns `slot`; 0 means that the object is in no slot."""

    deadline_s: float
    slot: int

    def overdue(self) -> None:
        """The deadline has passed."""
        ...


class Deadlines:
    """Calls `overdue` at most one slot (`grain_s`) after the deadline, never before it."""

    def __init__(self, grain_s: float) -> None:
        self._grain_s = grain_s
        self._slots: dict[int, set[HasDeadline]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_slot = 0

    def watch(self, item: HasDeadline, deadline_s: float) -> None:
        """Set the deadline of `item`."""
        item.deadline_s = deadline_s
        if deadline_s == NEVER:
            return
        slot = math.ceil(deadline_s / self._grain_s)
        if item.slot and item.slot <= slot:
            return
        self.forget(item)
        item.slot = slot
        self._slots.setdefault(slot, set()).add(item)
        if self._timer is None or slot < self._timer_slot:
            self._arm(slot)

    def forget(self, item: HasDeadline) -> None:
        """Stop watching `item`, if it is watched."""
        if item.slot:
            members = self._slots.get(item.slot)
            if members is not None:
                members.discard(item)
            item.slot = 0

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._slots.clear()

    def _arm(self, slot: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_slot = slot
        # A little late on purpose: the loop's clock has whole milliseconds, and waking before the slot is reached would
        # only arm the timer again.
        self._timer = asyncio.get_running_loop().call_at(slot * self._grain_s + 0.002, self._turn)

    def _turn(self) -> None:
        self._timer = None
        now_s = asyncio.get_running_loop().time()
        reached = math.floor(now_s / self._grain_s)
        for slot in [slot for slot in self._slots if slot <= reached]:
            for item in self._slots.pop(slot):
                item.slot = 0
                if item.deadline_s <= now_s:
                    item.overdue()
                else:
                    self.watch(item, item.deadline_s)
        if self._slots:
            upcoming = min(self._slots)
            if self._timer is None or upcoming < self._timer_slot:
                self._arm(upcoming)
