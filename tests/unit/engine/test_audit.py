"""Writing the audit log: an entry is there before the answer, and its loss never becomes the call's."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from dueline.engine import audit as module
from dueline.engine.audit import Audit, AuditNote
from dueline.engine.audit_log import AuditEntry, AuditFilter
from dueline.engine.errors import StoreDown
from dueline.store.memory.audit_log import MemoryAuditLog


class AwayLog(MemoryAuditLog):
    """A log whose store is away: appends fail, after `answers` is set."""

    def __init__(self) -> None:
        super().__init__(lambda: 7)
        self.answers = asyncio.Event()
        self.begun = asyncio.Event()

    async def append(self, entries: Sequence[AuditEntry], max_entries: int = 0) -> None:
        self.begun.set()
        await self.answers.wait()
        raise StoreDown("the store is away")


async def entries(log: MemoryAuditLog) -> list[AuditEntry]:
    return (await log.page(AuditFilter(), b"", 500))[0]


async def test_an_entry_is_written_when_write_returns() -> None:
    log = MemoryAuditLog(lambda: 7)
    note = AuditNote("pause", "k1", "deploy", "192.0.2.7", "ns", "t", {"until_ms": 5}, 200)
    await Audit(log, server="host:1").write(note)
    [entry] = await entries(log)
    assert entry == AuditEntry(
        entry.id, "k1", "deploy", "192.0.2.7", "ns", "pause", "t", {"until_ms": 5}, 200, "", "host:1", 7
    )


async def test_every_entry_has_an_id_of_its_own() -> None:
    log = MemoryAuditLog(lambda: 7)
    audit = Audit(log)
    await asyncio.gather(*(audit.write(AuditNote("pause")) for _ in range(50)))
    assert len({entry.id for entry in await entries(log)}) == 50


async def test_no_more_than_twenty_ids_are_named_but_all_are_counted() -> None:
    note = AuditNote()
    note.name_jobs([str(number) for number in range(25)])
    assert note.details == {"ids": [str(number) for number in range(20)], "ids_count": 25}


async def test_a_lost_entry_is_counted_and_reported_and_raises_nothing() -> None:
    log, reported = AwayLog(), list[str]()
    log.answers.set()
    audit = Audit(log)
    audit.on_loss = lambda error: reported.append(str(error))
    await audit.write(AuditNote("pause"))
    await audit.write(AuditNote("pause"))
    assert (audit.lost, reported) == (2, ["the store is away"] * 2)


async def test_refused_calls_of_one_token_and_action_have_one_entry_a_minute_which_counts_the_others() -> None:
    log, now_s = MemoryAuditLog(lambda: 7), [0.0]
    audit = Audit(log, now_s=lambda: now_s[0])
    for at_s, who, action in [(0, "k1", "pause"), (1, "k1", "pause"), (2, "k2", "pause"), (3, "k1", "resume")]:
        now_s[0] = at_s
        await audit.write(AuditNote(action, who, code="forbidden"))
    for at_s in (59.9, 60, 61, 121, 122):
        now_s[0] = at_s
        await audit.write(AuditNote("pause", "k1", code="forbidden"))
    found = [(entry.who, entry.action, entry.details) for entry in await entries(log)]
    assert found == [
        ("k1", "pause", {"repeated": 1}),
        ("k1", "pause", {"repeated": 2}),
        ("k1", "resume", {}),
        ("k2", "pause", {}),
        ("k1", "pause", {}),
    ]
    assert audit.merged == 4


async def test_calls_that_took_place_are_never_merged() -> None:
    log = MemoryAuditLog(lambda: 7)
    audit = Audit(log)
    for code in ("", "", "not_found", "not_found"):
        await audit.write(AuditNote("pause", "k1", code=code))
    assert len(await entries(log)) == 4


async def test_so_many_entries_may_wait_for_the_store_and_more_are_lost() -> None:
    log, reported = AwayLog(), list[str]()
    audit = Audit(log)
    audit.on_loss = lambda error: reported.append(str(error))
    for _ in range(module.MAX_WRITES + 2):
        audit.write_later(AuditNote("pause"))
    assert (audit.lost, len(reported)) == (2, 2)
    log.answers.set()
    await audit.stop()
    assert audit.lost == module.MAX_WRITES + 2


async def test_a_store_that_does_not_answer_holds_a_call_up_for_a_bounded_time() -> None:
    log = AwayLog()
    audit = Audit(log)
    await asyncio.wait_for(audit.write(AuditNote("pause")), 10 * module.WAIT_S)
    assert (log.answers.is_set(), audit.lost) == (False, 0)
    log.answers.set()
    await audit.stop()
    assert audit.lost == 1


async def test_a_caller_that_leaves_does_not_stop_the_entry() -> None:
    log = AwayLog()
    audit = Audit(log)
    call = asyncio.create_task(audit.write(AuditNote("pause")))
    await log.begun.wait()
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    log.answers.set()
    await audit.stop()
    assert audit.lost == 1


async def test_stop_waits_for_what_is_being_written() -> None:
    log = MemoryAuditLog(lambda: 7)
    audit = Audit(log)
    audit.write_later(AuditNote("pause"))
    await audit.stop()
    await audit.stop()
    assert len(await entries(log)) == 1
