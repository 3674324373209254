"""Writes the audit log of this process.

    transport --AuditNote--> handler        both say what they know about the call
              --Audit.write(note)-->        after the call, before its answer --> store.audit

An entry never changes the outcome of its call. The answer waits for it, but at most WAIT_S. Then it is written in the
background. If the store refuses it or cannot be reached, the entry is lost: that is counted and reported (`on_loss`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from ..redaction import redacted
from .audit_log import AuditEntry, AuditLog
from .ids import new_id

WAIT_S = 1.0
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


class Audit:
    """`max_entries` 0: as many as servers on this store keep. `server` names this process in the entries."""

    def __init__(self, log: AuditLog, max_entries: int = 0, server: str = "") -> None:
        self.lost = 0
        self.on_loss: Callable[[Exception], None] | None = None
        self._log = log
        self._max_entries = max_entries
        self._server = server
        self._writes: set[asyncio.Task[None]] = set()

    async def write(self, note: AuditNote) -> None:
        """Write the entry of a call. Returns when it is written or lost, or after WAIT_S. Raises nothing."""
        await asyncio.wait([self.write_later(note)], timeout=WAIT_S)

    def write_later(self, note: AuditNote) -> asyncio.Task[None]:
        """Write the entry in the background."""
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

    async def _write(self, entry: AuditEntry) -> None:
        try:
            await self._log.append([entry], self._max_entries)
        except Exception as error:  # whatever the reason, the call that it describes is done
            self.lost += 1
            if self.on_loss is not None:
                self.on_loss(error)
