"""The reading calls that return jobs and pages: their requests and replies."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ...engine.bands import Bands, ForecastPart
from ...engine.job import Job, Partition
from ...engine.open_groups import GroupPage, OpenGroup
from ...engine.store import Page, Query
from . import codec, requests
from .calls import Calls

MOST_READ = 500
MOST_COUNTED = 64  # partitions of one forecast.lua
_GROUP_NUMBERS = 8


async def jobs_of(calls: Calls, partition: Partition, ids: Sequence[str], body: bool) -> list[Job | None]:
    """read.lua, for any number of ids"""
    jobs: list[Job | None] = []
    for start in range(0, len(ids), MOST_READ):
        packed = [codec.pack_id(id) for id in ids[start : start + MOST_READ]]
        numbers = [int(body), *map(len, packed)]
        _, n, blob = await calls.look("read", partition, codec.pack_numbers(numbers), b"".join(packed))
        jobs += codec.decode_shown(n, blob, partition.topic)
    return jobs


async def page_of_jobs(calls: Calls, partition: Partition, query: Query) -> Page:
    """list.lua"""
    now_ms, n, blob = await calls.look("list", partition, *requests.query(query))
    jobs = codec.decode_shown(n[1:], blob, partition.topic, n[0])
    return Page([job for job in jobs if job is not None], blob[: n[0]] or None, now_ms)


async def page_of_groups(calls: Calls, partition: Partition, cursor: bytes, limit: int) -> GroupPage:
    """groups.lua"""
    _, n, blob = await calls.look("groups", partition, codec.pack_numbers([limit]), cursor)
    groups: list[OpenGroup] = []
    at = n[0]
    for i in range(1, len(n), _GROUP_NUMBERS):
        id_size, key_size, *numbers = n[i : i + _GROUP_NUMBERS]
        id, key = blob[at : at + id_size], blob[at + id_size : at + id_size + key_size]
        at += id_size + key_size
        groups.append(OpenGroup(codec.unpack_id(id), key.decode(), *numbers))
    return GroupPage(groups, blob[: n[0]] or None)


async def bands_of(calls: Calls, parts: Sequence[ForecastPart], edges_ms: Sequence[int]) -> Bands:
    """forecast.lua, for any number of partitions: as few calls as their slots allow."""
    by_slot: dict[int, list[int]] = {}
    for place, part in enumerate(parts):
        by_slot.setdefault(calls.slot(part.partition), []).append(place)
    groups = [places[i : i + MOST_COUNTED] for places in by_slot.values() for i in range(0, len(places), MOST_COUNTED)]

    async def counts_of(places: list[int]) -> tuple[int, list[int]]:
        some = [parts[place] for place in places]
        numbers = codec.pack_numbers([len(edges_ms), *edges_ms, *(part.paused_bands for part in some)])
        now_ms, n, _ = await calls.look_over("forecast", [part.partition for part in some], "sd", numbers)
        return now_ms, n

    found = await asyncio.gather(*map(counts_of, groups))
    bands = len(edges_ms) - 1
    by_partition = [0] * len(parts)
    for places, (_, n) in zip(groups, found, strict=True):
        for place, count in zip(places, n[3 * bands + 1 :], strict=True):
            by_partition[place] = count
    sums = [sum(column) for column in zip(*(n[: 3 * bands + 1] for _, n in found), strict=True)]
    return Bands(
        now_ms=max(now_ms for now_ms, _ in found),
        counts=tuple(sums[:bands]),
        retries=tuple(sums[bands : 2 * bands]),
        paused=tuple(sums[2 * bands : 3 * bands]),
        later=sums[-1],
        by_partition=tuple(by_partition),
    )
