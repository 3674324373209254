"""fsck: reads a whole store and reports every inconsistency. Changes nothing.

For every partition these must hold:
- Each live id is either in the schedule or in the leases, with its record's send number and its run's time.
- No index entry exists without a record, and no record without an index entry.
- Agenda, dead list, index of retries, tags and counters match the records.
- Every body matches its checksum.
- A partition that holds jobs is one of its topic's.
- Every merge group has its items, and no items exist without their group (fsck_groups).
- It has the epoch that the directory knows, and has lost no sends (stamps).
- The fences of schedules can be read and are counted, and those of schedules that are gone are on the agenda.
- The histories of jobs can be read, and their bytes are those that the partition counts against its budget.

Run it on an idle store or on a copy. A partition that seems wrong is read a second time, in case it changed while it
was read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from ...engine.directory import config_key
from ...engine.fence import GONE_KEEP_MS
from ...engine.job import Partition
from ...engine.topics import unpack_config
from . import codec
from .fsck_audit import audit_faults
from .fsck_groups import check_groups
from .fsck_histories import check_histories
from .fsck_pushes import push_faults
from .keys import (
    directory_keys,
    meta_key,
    partition_keys,
    partition_of,
    push_keys,
    pushed_topic,
    topic_name,
    version_fault,
)
from .reader import StoreReader
from .stamps import read_stamps
from .tls import StoreTls

Progress = Callable[[int, int | None], None]
CONFIG_VERSION_BYTES = 6  # in front of a config in the directory (lua/directory.lua)
RETRIES = 2**50  # lua/lib/retries.lua
_COUNTERS = (b"nD", b"nC", b"nB", b"x1", b"x2", b"x3", b"x4")


class Finding(msgspec.Struct, frozen=True):
    """One inconsistency: the partition, the job (None: the partition itself), and the description."""

    partition: Partition | None
    id: str | None
    what: str

    def __str__(self) -> str:
        place = (
            "store"
            if self.partition is None
            else f"{self.partition.namespace}/{self.partition.topic}/{self.partition.number}"
        )
        return f"{place}{'' if self.id is None else f' job {self.id}'}: {self.what}"


class Report(msgspec.Struct):
    """How much was read, and the findings."""

    partitions: int = 0
    jobs: int = 0
    findings: list[Finding] = []


class _Contents(msgspec.Struct):
    """The stored content of one partition."""

    m: dict[bytes, bytes]
    j: dict[bytes, bytes]
    r: dict[bytes, bytes]
    s: dict[bytes, float]
    l: dict[bytes, float]  # noqa: E741 - the key's letter in the layout
    a: dict[bytes, float]
    d: dict[bytes, float]
    g: dict[bytes, bytes]
    k: dict[bytes, float]


async def fsck(
    url: str, prefix: str = "dueline", progress: Progress | None = None, tls: StoreTls = StoreTls()
) -> Report:
    """Reads every partition of the store behind `url`, on all of its primaries. Raises StoreDown or Loading."""
    report = Report(findings=[])
    client = StoreReader(url, tls)
    try:
        meta = await client.hash(meta_key(prefix))
        fault = version_fault(meta)
        if fault is not None:
            report.findings.append(Finding(None, None, fault))
            return report
        report.findings += [Finding(None, None, fault) for fault in await audit_faults(client, prefix)]
        listed = set(await client.sorted_set(directory_keys(prefix)[0]))
        async for key in client.keys(f"{_glob(prefix)}:*"):
            partition = partition_of(prefix, key)
            if partition is None:
                report.findings += await _of_push(client, prefix, key)
                continue
            findings, jobs, known = await _check_twice(client, prefix, partition)
            report.findings += findings
            report.partitions += 1
            report.jobs += jobs
            if known and jobs and topic_name(partition.namespace, partition.topic) not in listed:
                report.findings.append(
                    Finding(partition, None, "holds jobs, but the directory does not list the topic")
                )
            if known and jobs and not await _is_used(client, prefix, partition):
                report.findings.append(Finding(partition, None, "holds jobs, but its topic does not use it any more"))
            if progress is not None:
                progress(report.jobs, None)
        stamps = await read_stamps(client, prefix)
        report.findings += [Finding(one.partition, None, one.fault) for one in stamps if one.fault is not None]
    finally:
        await client.stop()
    return report


async def _is_used(client: StoreReader, prefix: str, partition: Partition) -> bool:
    """Whether the partition belongs to its topic, as a current or an old one (engine.partition_map). The config is read
    after the partition, because partitions may be added meanwhile."""
    key = config_key(partition.namespace, "" if partition.namespace_ids else partition.topic)
    stored = await client.hash_field(directory_keys(prefix)[2], topic_name(*key))
    config = unpack_config(b"" if stored is None else stored[CONFIG_VERSION_BYTES:])
    return partition.number in config.map.numbers


async def _of_push(client: StoreReader, prefix: str, key: str) -> list[Finding]:
    topic = pushed_topic(prefix, key)
    if topic is None or (key == push_keys(prefix, *topic)[1] and await client.exists(push_keys(prefix, *topic)[0])):
        return []  # not a key of a push target, or checked together with its other key
    return [Finding(Partition(*topic), None, fault) for fault in await push_faults(client, prefix, *topic)]


def _glob(text: str) -> str:
    return "".join(f"\\{c}" if c in "*?[]\\" else c for c in text)


async def _check_twice(client: StoreReader, prefix: str, partition: Partition) -> tuple[list[Finding], int, bool]:
    """The findings that appear in two consecutive reads, because a partition may change during a read."""
    contents = await _read(client, prefix, partition)
    findings = check(partition, contents)
    for _ in range(3):
        if not findings:
            break
        await asyncio.sleep(0.05)
        contents = await _read(client, prefix, partition)
        again = set(check(partition, contents))
        findings = [finding for finding in findings if finding in again]
    return findings, len(contents.j.keys() | contents.r.keys()), b"reg" in contents.m


async def _read(client: StoreReader, prefix: str, partition: Partition) -> _Contents:
    m, j, r, s, l, a, d, g, k = partition_keys(prefix, partition).keys  # noqa: E741

    async def of_hash(key: str) -> dict[bytes, bytes]:
        return {field: value for field, value in (await client.hash(key)).items() if field}

    async def of_zset(key: str) -> dict[bytes, float]:
        return {member: score for member, score in (await client.sorted_set(key)).items() if member}

    records, runs = await of_hash(j), await of_hash(r)
    if partition.namespace_ids:  # keys shared by all topics of the namespace: keep only this topic's jobs
        mine = {
            id for id in records.keys() | runs.keys() if _topic_of(records.get(id), runs.get(id)) == partition.topic
        }
        records = {id: raw for id, raw in records.items() if id in mine}
        runs = {id: raw for id, raw in runs.items() if id in mine}
    return _Contents(
        await of_hash(m), records, runs, await of_zset(s), await of_zset(l),
        await of_zset(a), await of_zset(d), await of_hash(g), await of_zset(k),
    )  # fmt: skip


def _topic_of(record: bytes | None, run: bytes | None) -> str | None:
    """The topic in a record of a namespace with `namespace_ids`. A tombstone keeps the record's head."""
    raw = record if record is not None else codec.head_of(run) if run is not None and run[:1] in b"dc" else None
    try:
        return None if raw is None else codec.decode_record(raw, False, head_only=record is None).topic
    except codec.UNREADABLE:
        return None


class _Run(msgspec.Struct):
    phase: str
    reason: int
    deliveries: int
    uncounted: int
    time: int
    exp: int


def _run(raw: bytes) -> _Run:
    phase, reason = chr(raw[0]), raw[1] & 63
    deliveries, uncounted = int.from_bytes(raw[2:6], "big"), int.from_bytes(raw[6:10], "big")
    return _Run(
        phase, reason, deliveries, uncounted, int.from_bytes(raw[11:17], "big"), int.from_bytes(raw[23:29], "big")
    )


def check(partition: Partition, c: _Contents) -> list[Finding]:
    """All findings for one partition. Pure."""
    findings: list[Finding] = []
    owed: dict[str, set[bytes]] = {letter: set() for letter in "sladkw"}  # entries that the indexes must have
    counts: dict[bytes, int] = dict.fromkeys(_COUNTERS, 0)

    def wrong(id: bytes | None, what: str) -> None:
        findings.append(Finding(partition, None if id is None else _id(id), what))

    for id in c.j.keys() | c.r.keys():
        raw, run = c.j.get(id), _run(c.r[id]) if id in c.r else None
        if run is not None and run.phase not in "LWDCXdc":
            wrong(id, f"unknown phase {run.phase!r}")
            continue
        if raw is None:
            if run is not None and run.phase in "LWDCX":
                wrong(id, "has a run but no record")
                continue
        elif run is not None and run.phase in "dc":
            wrong(id, "is a tombstone and still has a record")
        _owe(id, raw, run, c, owed, counts, wrong)
    check_groups(c.j, c.r, c.g, owed["k"], wrong)
    _check_fences(c, owed["a"], wrong)
    check_histories(c.m, c.r, wrong)
    _compare(c, owed, counts, wrong)
    return findings


def _owe(
    id: bytes,
    raw: bytes | None,
    run: _Run | None,
    c: _Contents,
    owed: dict[str, set[bytes]],
    counts: dict[bytes, int],
    wrong: Callable[[bytes | None, str], None],
) -> None:
    """Add the index entries that one job must have."""
    tags: tuple[str, ...] = ()
    if raw is not None:
        try:
            record = codec.decode_record(raw)
        except codec.UNREADABLE:
            wrong(id, "the record cannot be read")
            return
        tags = record.tags
        if not record.intact:
            wrong(id, "the body does not match its checksum")
        if raw[1] and b"p%d" % raw[1] not in c.m:
            wrong(id, f"its policy {raw[1]} is missing")
    live = run is None or run.phase in "LW"
    if live and raw is not None:
        entry = raw[2:7] + id
        leased = run is not None and run.phase == "L"
        owed["l" if leased else "s"].add(entry)
        score = (c.l if leased else c.s).get(entry)
        if run is not None and score is not None and score != run.time:
            wrong(id, f"its run has the time {run.time}, its index {score:.0f}")
        if (run is not None and run.exp) or (run is None and raw[0] & 4):
            owed["a"].add(b"x" + id)
        if run is not None and not leased and run.deliveries > run.uncounted:
            owed["w"].add(b"w" + id)
            waits = c.d.get(b"w" + id)
            if waits is not None and waits != RETRIES + run.time:
                wrong(id, f"its run has the time {run.time}, the index of retries {waits - RETRIES:.0f}")
        if leased and run is not None and _last(raw, run, c):
            owed["a"].add(b"e" + id)
    elif run is not None:
        owed["a"].add(b"t" + id)
        if run.phase == "X":
            owed["d"].add(b"x" + id)
            counts[b"x%d" % run.reason] = counts.get(b"x%d" % run.reason, 0) + 1
        else:
            counts[b"nD" if run.phase in "Dd" else b"nC"] += 1
    if live or (run is not None and run.phase == "X"):
        owed["k"].update(tag.encode() + b"\0" + id for tag in tags)


def _check_fences(c: _Contents, owed: set[bytes], wrong: Callable[[bytes | None, str], None]) -> None:
    """The fences of schedules (lua/lib/fence.lua)."""
    fences = {field[2:]: value for field, value in c.m.items() if field.startswith(b"o:")}
    for schedule, value in fences.items():
        if len(value) != 18:
            wrong(None, f"the fence of the schedule {_name(schedule)} cannot be read")
            continue
        gone = int.from_bytes(value[12:], "big")
        if gone:
            owed.add(b"o" + schedule)
            ends = c.a.get(b"o" + schedule)
            if ends is not None and ends != gone + GONE_KEEP_MS:
                wrong(None, f"the fence of the schedule {_name(schedule)} ends at {ends:.0f} in the agenda")
    if int(c.m.get(b"on", b"0")) != len(fences):
        wrong(None, f"counter on is {int(c.m.get(b'on', b'0'))}, but there are {len(fences)} fences")


def _name(schedule: bytes) -> str:
    return schedule.decode(errors="replace").replace("\0", "/")


def _last(raw: bytes, run: _Run, c: _Contents) -> bool:
    text = c.m.get(b"p%d" % raw[1]) if raw[1] else raw[codec.HEAD_BYTES + 2 :]
    most = int.from_bytes(text[4:8], "big") if text else 0
    return bool(most) and run.deliveries - run.uncounted >= most


def _compare(
    c: _Contents, owed: dict[str, set[bytes]], counts: dict[bytes, int], wrong: Callable[[bytes | None, str], None]
) -> None:
    names = {
        "s": "the schedule",
        "l": "the leases",
        "a": "the agenda",
        "d": "the dead list",
        "k": "the tags and groups",
        "w": "the index of retries",
    }
    has: dict[str, set[bytes]] = {"s": set(c.s), "l": set(c.l), "a": set(c.a), "k": set(c.k)}
    has["d"] = {entry for entry in c.d if entry[:1] == b"x"}
    has["w"] = {entry for entry in c.d if entry[:1] == b"w"}
    counts[b"nB"] = len(c.d) - len(has["d"]) - len(has["w"])
    for letter, name in names.items():
        for entry in owed[letter] - has[letter]:
            wrong(_id_in(letter, entry), f"is missing in {name}")
        for entry in has[letter] - owed[letter]:
            wrong(_id_in(letter, entry), f"is in {name}, but should not be")
    for entry in c.d:
        if entry[:1] == b"b":
            wrong(entry[1:], "is on the broken list: its record could not be read when it was due")
    for field, count in counts.items():
        if int(c.m.get(field, b"0")) != count:
            wrong(None, f"counter {field.decode()} is {int(c.m.get(field, b'0'))}, but there are {count}")


def _id_in(letter: str, entry: bytes) -> bytes:
    if letter in "sl":
        return entry[5:]
    if letter == "k" and entry[:1] == b"\1":  # a group: size of the key, key, send number of its opening
        return entry[3 + int.from_bytes(entry[1:3], "big") + 5 :]
    return entry.partition(b"\0")[2] if letter == "k" else entry[1:]


def _id(packed: bytes) -> str:
    try:
        return codec.unpack_id(packed)
    except (UnicodeDecodeError, IndexError):
        return packed.hex()
