"""Writes the audit log of this process.

    transport --AuditNote--> handler        both say what they know about the call
              --Audit.write(note)-->        after the call, before its answer --> store.audit

An entry never changes the outcome of its call. The answer waits for it, but at most WAIT_S. Then it is written in the
background. If the store refuses it or cannot be reached, or MAX_WRITES others wait for it, the entry is lost: that is
counted and reported (`on_loss`).

Refused calls must not push everything else out of the log. So of the calls that one token is not allowed to make, or
that are too large, one of each action is written in MERGE_S; the next entry says how many there were in between.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from ..redaction import redacted
from .audit_log import AuditEntry, AuditLog
from .errors import BodyTooLarge, Forbidden, StoreDown
from .ids import new_id

WAIT_S = 1.0
MERGE_S = 60.0
MERGED = frozenset({Forbidden.code, BodyTooLarge.code})  # codes of refused calls of which there may be very many
MAX_MERGED = 10_000  # pairs of token and action that are remembered
MAX_WRITES = 5_000  # entries that wait for the store
IDS_SHOWN = 20
GONE = "client_gone"  # code: the caller left before the answer
LOCAL = "local"  # who: a program or a command on the store itself


class AuditNote(msgspec.Struct):
    """What is known about a call of an audited operation. `command`: which command of the protocol it is, if the body
    of the request names it."""

    action: str = ""
    who: str = ""
    who_name: str = ""
    address: str = ""
    namespace: str = ""
    topic: str = ""
    details: dict[str, Any] = {}
    status: int = 0
    code: str = ""
    command: str = ""

    def name_jobs(self, ids: Sequence[str]) -> None:
        """Add the ids of jobs, or of what else the call is about: the first ones, and how many there are."""
        self.details["ids"] = list(ids[:IDS_SHOWN])
        self.details["ids_count"] = len(ids)


class _Refusals(msgspec.Struct):
    """The refused calls of one token and action since the last entry about them."""

    until_s: float
    repeated: int = 0


class Audit:
    """`max_entries` 0: as many as servers on this store keep. `server` names this process in the entries. `now_s`: a
    clock that does not go back."""

    def __init__(
        self,
        log: AuditLog,
        max_entries: int = 0,
        server: str = "",
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.lost = 0
        self.merged = 0  # refused calls without an entry of their own
        self.on_loss: Callable[[Exception], None] | None = None
        self._log = log
        self._max_entries = max_entries
        self._server = server
        self._now_s = now_s
        self._refusals: dict[tuple[str, str], _Refusals] = {}
        self._writes: set[asyncio.Task[None]] = set()

    async def write(self, note: AuditNote) -> None:
        """Write the entry of a call. Returns when it is written, merged or lost, or after WAIT_S. Raises nothing."""
        task = self.write_later(note)
        if task is not None:
            await asyncio.wait([task], timeout=WAIT_S)

    def write_later(self, note: AuditNote) -> asyncio.Task[None] | None:
        """Write the entry in the background. None: it is merged or lost."""
        if note.code in MERGED and self._merges(note):
            self.merged += 1
            return None
        if len(self._writes) >= MAX_WRITES:
            self._lose(StoreDown(f"{MAX_WRITES} entries are already waiting for the store"))
            return None
        entry = AuditEntry(
            id=new_id(),
            who=note.who,
            who_name=redacted(note.who_name),
            address=note.address,
            namespace=redacted(note.namespace),
            action=note.action,
            topic=redacted(note.topic),
            details=redacted(note.details),
            status=note.status,
            code=note.code,
            server=self._server,
        )
        task = asyncio.get_running_loop().create_task(self._write(entry))
        self._writes.add(task)
        task.add_done_callback(self._writes.discard)
        return task

    async def stop(self) -> None:
        """Wait for the entries that are being written."""
        while self._writes:
            await asyncio.wait(self._writes)

    def _merges(self, note: AuditNote) -> bool:
        """Whether a refused call has no entry of its own. If it has one, that says how many had none before it."""
        key, now_s = (note.who, note.action), self._now_s()
        known = self._refusals.get(key)
        if known is not None and now_s < known.until_s:
            known.repeated += 1
            return True
        if known is None and len(self._refusals) >= MAX_MERGED:
            self._refusals = {one: state for one, state in self._refusals.items() if now_s < state.until_s}
            if len(self._refusals) >= MAX_MERGED:
                return True
        if known is not None and known.repeated:
            note.details["repeated"] = known.repeated
        self._refusals[key] = _Refusals(now_s + MERGE_S)
        return False

    def _lose(self, error: Exception) -> None:
        self.lost += 1
        if self.on_loss is not None:
            self.on_loss(error)

    async def _write(self, entry: AuditEntry) -> None:
        try:
            await self._log.append([entry], self._max_entries)
        except Exception as error:  # whatever the reason, the call that it describes is done
            self._lose(error)
