"""Encodes and decodes ids, policies, records, and the numbers and blob of every call.

A batch is sent as one msgpack array of numbers (no nil, no strings, nothing above 2^53) and one binary blob, because
cmsgpack cannot carry binary bodies. This costs a sixth of separate arguments. lua/lib/record.lua describes the formats.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import accumulate, chain, groupby, islice, pairwise, repeat
from operator import add
from typing import Any

import msgspec
from msgspec.structs import astuple

from ...engine.job import BodyKind, Item, Job, Reason, State
from ...engine.limits import LAST_MS
from ...engine.policy import AT_ONCE, Backoff, JobPolicy, Ladder, Retry
from ...engine.store import Code, SendItem, SendOutcome, Stats
from .items import read_group, read_key, sized

pack_numbers = msgspec.msgpack.Encoder().encode
unpack_numbers = msgspec.msgpack.Decoder(list[int]).decode
Reply = tuple[list[int], bytes]  # the numbers and the blob of an answer

STATES = (None, State.SCHEDULED, State.READY, State.LEASED, State.DONE, State.DEAD, State.CANCELLED)
STATE_NUMBER = {state: number for number, state in enumerate(STATES)}
REASONS = (None, Reason.EXHAUSTED, Reason.EXPIRED, Reason.REJECTED, Reason.CORRUPT)
REASON_NUMBER = {reason: number for number, reason in enumerate(REASONS)}
KINDS = (BodyKind.JSON, BodyKind.TEXT, BodyKind.BYTES, BodyKind.JSON)  # 3: a merge group, shown as a JSON array
_GROUP = 3

CODES = {int(code): code for code in Code}
_CREATED, _READY, _SCHEDULED = Code.CREATED, State.READY, State.SCHEDULED  # looking up a member of an enum is slow
_TTL, _HEADERS, _TAGS, _EDITED, _INLINE, _TOPIC = 4, 8, 16, 32, 64, 128
HISTORY, _PROGRESS = 64, 128  # with the reason of a run
HEAD_BYTES = 25
ALL_CREATED = 3  # how many numbers send.lua answers with if all jobs were created
pack_sums = struct.Struct(">IQ").pack  # checksum and fingerprint
_read_head = struct.Struct(">BxBIHII").unpack_from  # flags, seq and created (each in two parts), crc
_Sections = tuple[int, str | None, int | None, bytes, tuple[str, ...]]  # body begins, topic, ttl, headers, tags
_NO_SECTIONS: _Sections = (HEAD_BYTES, None, None, b"", ())
UNREADABLE = (IndexError, UnicodeDecodeError, struct.error)
"""What decoding a damaged record may raise."""


def pack_id(id: str) -> bytes:
    """32 hex characters as 16 bytes, UUIDs as 17, others unchanged; a prefix (2, or 3 3) marks ambiguous ones."""
    if len(id) == 32:
        try:
            packed = bytes.fromhex(id)
        except ValueError:
            packed = b""
        if packed.hex() == id:
            return packed
    elif len(id) == 36 and id[8] == id[13] == id[18] == id[23] == "-":
        plain = id.replace("-", "")
        try:
            packed = bytes.fromhex(plain)
        except ValueError:
            packed = b""
        if packed.hex() == plain and len(packed) == 16:
            return b"\x01" + packed
    text = id.encode()
    if len(text) != 16 and text[:1] > b"\x03":
        return text
    return b"\x03\x03" + text if len(text) == 15 else b"\x02" + text


def unpack_id(packed: bytes) -> str:
    if len(packed) == 16:
        return packed.hex()
    kind = packed[0]
    if kind == 1:
        h = packed[1:].hex()
        return f"{h[:8]}-{h[8:12]}-{h[12:16]}-{h[16:20]}-{h[20:]}"
    return packed[kind - 1 if kind < 4 else 0 :].decode()


def checksum(body: bytes) -> int:
    return zlib.crc32(body)


def _i6(n: int) -> bytes:
    return n.to_bytes(6, "big")


@lru_cache(4096)
def pack_policy(policy: JobPolicy) -> bytes:
    """The stored form. Neither a ladder nor a backoff means "at once", which keeps jobs valid that were stored before
    there was a default retry."""
    retry = policy.retry
    flags = int(policy.keep_body) + (2 if isinstance(retry, Ladder) else 4 if isinstance(retry, Backoff) else 0)
    waits = policy.waits_ms
    head = struct.pack(">II", policy.lease_ms or 0, policy.max_attempts or 0) + _i6(policy.retain_ms)
    jitter = retry.jitter if isinstance(retry, Backoff) else 0.0
    head += _i6(policy.dead_retain_ms) + struct.pack(">BdB", flags, jitter, len(waits)) + b"".join(map(_i6, waits))
    return head + struct.pack(">QdQ", retry.base_ms, retry.factor, retry.max_ms) if isinstance(retry, Backoff) else head


@lru_cache(4096)
def unpack_policy(text: bytes) -> JobPolicy:
    lease, max_attempts = struct.unpack_from(">II", text)
    retain, dead = int.from_bytes(text[8:14], "big"), int.from_bytes(text[14:20], "big")
    flags, jitter, count = struct.unpack_from(">BdB", text, 20)
    retry: Retry = AT_ONCE
    if flags & 2:
        retry = Ladder(tuple(int.from_bytes(text[30 + 6 * i : 36 + 6 * i], "big") for i in range(count)))
    elif flags & 4:
        base, factor, most = struct.unpack_from(">QdQ", text, 30 + 6 * count)
        retry = Backoff(base, factor, most, jitter)
    return JobPolicy(lease or None, max_attempts or None, retain, dead, retry, bool(flags & 1))


def pack_tags(tags: tuple[str, ...]) -> bytes:
    return "\0".join(tags).encode()


def _options(topic: bytes | None, ttl_ms: int | None, headers: bytes, tags: tuple[str, ...]) -> bytes:
    """The sections of a record between its sums and its body."""
    sections = b"" if topic is None else sized(topic)
    if ttl_ms:
        sections += _i6(ttl_ms)
    if headers:
        sections += sized(headers)
    return sections + sized(pack_tags(tags)) if tags else sections


def encode_send(items: Sequence[SendItem], policy_version: int, topic: bytes | None) -> tuple[bytes, bytes]:
    """Numbers and blob of send.lua. `topic` is given in namespaces with `namespace_ids`, where a record must name its
    topic. Works on whole columns, because jobs of one batch are mostly alike."""
    columns = zip(*map(astuple, items), strict=True)
    ids, bodies, kinds, delays, ats, policies, ttls, lives, endeds, prints, tags, headers, _, overdues, *rare = columns
    packed = [*map(pack_id, ids)]
    sections = [*map(pack_sums, map(zlib.crc32, bodies), prints)]
    if topic is not None or any(ttls) or any(headers) or any(tags):
        sections = [*map(add, sections, map(_options, repeat(topic), ttls, headers, tags))]
    rules = zip(lives, endeds, overdues, strict=True)
    alike = zip(
        *(map(len, packed), kinds, policies, delays, ats, ttls, map(bool, headers), map(bool, tags), rules), strict=True
    )
    texts, runs = _runs(alike, 0 if topic is None else _TOPIC)
    special, schedules = ([], []) if {*chain(*rare)} == {None} else _special(items)
    sizes = map(add, map(len, sections), map(len, bodies))
    numbers = [policy_version, len(texts), *map(len, texts), len(items), *runs, *sizes, *special]
    return pack_numbers(numbers), b"".join((*texts, *packed, *chain(*zip(sections, bodies, strict=True)), *schedules))


def _runs(alike: Iterable[tuple[Any, ...]], topic_flag: int) -> tuple[list[bytes], list[int]]:
    """The policies of a batch, and its runs of jobs that have everything in common but id, sums and body."""
    policies: dict[JobPolicy, int] = {}
    runs: list[int] = []
    for common, jobs in groupby(alike):
        id_size, kind, policy, delay_ms, at_ms, ttl_ms, has_headers, has_tags, (live, ended, overdue) = common
        index = policies.setdefault(policy, len(policies) + 1)
        flags = kind | topic_flag
        if ttl_ms:
            flags |= _TTL
        if has_headers:
            flags |= _HEADERS
        if has_tags:
            flags |= _TAGS
        when = delay_ms if at_ms is None else -max(at_ms, 1)
        rules = live + 4 * ended + 16 * (live if overdue is None else overdue)  # two bits each
        runs += (len([*jobs]), id_size, flags, index, when, ttl_ms or 0, rules)
    return [*map(pack_policy, policies)], runs


def _special(items: Sequence[SendItem]) -> tuple[list[int], list[bytes]]:
    """The occurrences of schedules and the jobs that replace a version, and the names of the schedules."""
    special: list[int] = []
    schedules: list[bytes] = []
    for place, item in enumerate(items, 1):
        if item.occurrence is not None:
            schedule = item.occurrence.schedule.encode()
            special += (place, item.occurrence.version, item.occurrence.at_ms, len(schedule))
            schedules.append(schedule)
        elif item.replaces is not None:
            special += (place, item.replaces, 0, -1)
    return special, schedules


def is_single_send(item: SendItem) -> bool:
    """Whether a thread may send it by itself (single_sends): only its time needs an index entry."""
    plain = item.occurrence is None and item.replaces is None and item.merge is None
    return plain and not item.tags and not item.ttl_ms


def decode_created(items: Sequence[SendItem], numbers: Sequence[int]) -> list[SendOutcome]:
    """Results of send.lua if all jobs were created: it says only its time and the last send number, and the rest
    follows from what was sent."""
    now_ms, start_ms, last = numbers
    dues = [
        (start_ms + item.delay_ms if item.delay_ms else now_ms) if item.at_ms is None else max(item.at_ms, now_ms)
        for item in items
    ]
    return [
        SendOutcome(_CREATED, _READY, due_ms, version)
        if due_ms <= now_ms
        else SendOutcome(_CREATED, _SCHEDULED, due_ms if due_ms < LAST_MS else LAST_MS, version)
        for version, due_ms in enumerate(dues, last - len(items) + 1)
    ]


def decode_sent(items: Sequence[SendItem], n: Sequence[int]) -> list[SendOutcome]:
    """Results of send.lua."""
    if len(n) == ALL_CREATED:
        return decode_created(items, n)
    return [SendOutcome(CODES[n[i]], STATES[n[i + 1]] or State.READY, n[i + 2], n[i + 3]) for i in range(0, len(n), 4)]


def decode_sent_anywhere(
    items: Sequence[SendItem], numbers: Sequence[int], blob: bytes
) -> list[tuple[SendOutcome, bool]]:
    """The same in a namespace with `namespace_ids`. False: the id is used in another topic, and nothing was decided
    yet."""
    if len(numbers) == ALL_CREATED:
        return [(result, True) for result in decode_created(items, numbers)]
    results: list[tuple[SendOutcome, bool]] = []
    at = 0
    for i in range(0, len(numbers), 4):
        code, state, due, version = numbers[i : i + 4]
        if code == Code.ELSEWHERE:
            topic = blob[at : at + due].decode()
            at += due
            results.append((SendOutcome(Code.ELSEWHERE, STATES[state] or State.READY, 0, 0, topic), state != 0))
        else:
            results.append((SendOutcome(CODES[code], STATES[state] or State.READY, due, version), True))
    return results


def decode_ids(sizes: Sequence[int], blob: bytes) -> frozenset[str]:
    ends = list(accumulate(sizes, initial=0))
    return frozenset(unpack_id(blob[start:end]) for start, end in pairwise(ends))


def decode_topics(numbers: Sequence[int], blob: bytes) -> list[str | None]:
    """The topic of each id, from the reply of read.lua on a partition without a topic."""
    topics: list[str | None] = []
    at = 0
    rest = iter(numbers)
    for state in rest:
        if state == 0:
            topics.append(None)
        else:
            size = next(rest)
            topics.append(blob[at : at + size].decode())
            at += size
    return topics


class Record(msgspec.Struct, frozen=True):
    """A decoded record. `intact`: its body matches the stored checksum."""

    kind: BodyKind
    version: int
    created_at_ms: int
    topic: str | None
    headers: bytes
    tags: tuple[str, ...]
    body: bytes
    intact: bool
    ttl_ms: int | None = None
    merge_key: str | None = None
    items: tuple[Item, ...] | None = None
    opened: int = 0


def read_record(raw: bytes, whole: bool = True, head_only: bool = False) -> Record:
    """Like decode_record, but never fails, so that damaged jobs can be shown. A damaged body becomes bytes, and an
    unreadable record becomes all body."""
    try:
        record = decode_record(raw, whole, head_only)
    except UNREADABLE:
        return Record(BodyKind.BYTES, 0, 0, None, b"", (), raw, False)
    return record if record.intact else msgspec.structs.replace(record, kind=BodyKind.BYTES)


def decode_record(raw: bytes, whole: bool = True, head_only: bool = False) -> Record:
    """`whole`: the body is included, and its checksum is verified. `head_only`: a tombstone, without the sections that
    only a body needs. Raises one of UNREADABLE."""
    flags, seq_high, seq, created_high, created, crc = _read_head(raw)
    at, topic, ttl_ms, headers, tags = _sections(raw, flags, head_only) if flags > 3 else _NO_SECTIONS
    version, created_at_ms, body = seq_high << 32 | seq, created_high << 32 | created, raw[at:]
    kind = KINDS[flags & 3]
    if flags & 3 == _GROUP and not head_only:
        group = read_group(body, crc)
        intact, items = not whole or group.intact, group.items if whole else None
        return Record(
            kind, version, created_at_ms, topic, headers, tags, b"", intact, ttl_ms, group.key, items, group.opened
        )
    intact = not whole or zlib.crc32(body) == crc
    return Record(kind, version, created_at_ms, topic, headers, tags, body, intact, ttl_ms)


def _sections(raw: bytes, flags: int, head_only: bool) -> _Sections:
    if head_only:
        flags &= _INLINE | _TOPIC
    topic: str | None = None
    ttl_ms: int | None = None
    headers, tags = b"", ()
    at = HEAD_BYTES
    if flags & _INLINE:
        at += 2 + int.from_bytes(raw[at : at + 2], "big")
    if flags & _TOPIC:
        size = int.from_bytes(raw[at : at + 2], "big")
        topic = raw[at + 2 : at + 2 + size].decode()
        at += 2 + size
    if flags & _TTL:
        ttl_ms = int.from_bytes(raw[at : at + 6], "big")
        at += 6
    at += 6 * bool(flags & _EDITED)
    if flags & _HEADERS:
        size = int.from_bytes(raw[at : at + 2], "big")
        headers = raw[at + 2 : at + 2 + size]
        at += 2 + size
    if flags & _TAGS:
        size = int.from_bytes(raw[at : at + 2], "big")
        tags = tuple(raw[at + 2 : at + 2 + size].decode().split("\0"))
        at += 2 + size
    return at, topic, ttl_ms, headers, tags


def head_of(run: bytes) -> bytes:
    """The record's head in a tombstone, and what follows it (lua/lib/record.lua). Before it come the token, the history
    and the progress, if the tombstone has them."""
    rest = run[50 + int.from_bytes(run[48:50], "big") :] if run[1] & HISTORY else run[47:]
    return rest[2 + int.from_bytes(rest[:2], "big") :] if run[1] & _PROGRESS else rest


def _key_of(record: Record, raw: bytes, head_only: bool) -> str | None:
    """The merge key of a job. In a group's tombstone, the kept data with the key follows the head."""
    return read_key(record.body).decode() if head_only and raw[0] & 3 == _GROUP else record.merge_key


def state_of(number: int) -> State:
    """A state from a reply; 0 (none) becomes ready where a state is required."""
    return STATES[number] or State.READY


def decode_shown(numbers: Sequence[int], blob: bytes, topic: str, at: int = 0) -> list[Job | None]:
    """Jobs from a reply made by lib/show.lua; `at` is where their bytes begin in the blob."""
    jobs: list[Job | None] = []
    rest = iter(numbers)
    for state in rest:
        if state in (0, 7):
            if state == 7:
                at += next(rest)  # the name of the topic that has it
            jobs.append(None)
            continue
        n = list(islice(rest, 15))
        id = unpack_id(blob[at : at + n[0]])
        at += n[0]
        raw = blob[at : at + n[10]]
        at += n[10]
        policy = unpack_policy(blob[at : at + n[12]])
        at += n[12]
        error = blob[at : at + n[13]].decode(errors="replace")
        at += n[13]
        progress = blob[at : at + n[14]]
        at += n[14]
        holds = n[11]
        record = read_record(raw, holds == 2, head_only=holds == 0)
        jobs.append(
            Job(
                id=id,
                topic=record.topic if record.topic is not None else topic,
                state=State(STATES[state]),
                reason=REASONS[n[1]],
                body=record.body if holds == 2 and record.merge_key is None else None,
                kind=record.kind,
                headers=record.headers,
                tags=record.tags,
                due_at_ms=n[5],
                created_at_ms=record.created_at_ms,
                updated_at_ms=n[7],
                ended_at_ms=n[8] or None,
                deliveries=n[2],
                refunds=n[3],
                policy=policy,
                expires_at_ms=n[6] or None,
                lease_until_ms=n[4] or None,
                retain_until_ms=n[9] or None,
                version=record.version,
                last_error=error or None,
                merge_key=_key_of(record, raw, holds == 0),
                items=record.items,
                ttl_ms=record.ttl_ms,
                intact=record.intact,
                progress=progress,
            )
        )
    return jobs


def decode_stats(n: Sequence[int], now_ms: int) -> Stats:
    """stats.lua"""
    reasons = {reason.value: count for reason, count in zip(Reason, n[6:10], strict=True)}
    return Stats(
        scheduled=n[0], ready=n[1], leased=n[2], done=n[3], dead=sum(n[6:10]), cancelled=n[4], broken=n[5],
        next_due_at_ms=None if n[10] < 0 else n[10], oldest_ready_at_ms=None if n[11] < 0 else n[11],
        paused_until_ms=None if n[12] < 0 else min(n[12], LAST_MS), waiting=bool(n[13]), dead_by_reason=reasons,
        now_ms=now_ms, history_bytes=n[14], history_dropped=n[15], bands=tuple(n[16:]),
    )  # fmt: skip
