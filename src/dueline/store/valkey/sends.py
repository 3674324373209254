"""Sends of plain jobs: from items to one call of send.lua, and from its reply to outcomes. Merging sends, too.

In a namespace with `namespace_ids` the id may be used in another topic. Then the send is repeated on both partitions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from msgspec.structs import replace

from ...engine.completion import Done, through
from ...engine.errors import Unavailable
from ...engine.job import Partition
from ...engine.store import SendItem, SendOutcome
from . import appends, codec
from .batchers import LANES, Run, slot_of
from .id_lookup import MOVED, MOVES
from .openings import Openings


class Sends:
    """`alone` gives the lock of an operation that is not batched."""

    def __init__(self, openings: Openings, alone: Callable[[str, Partition], asyncio.Lock]) -> None:
        self._openings = openings
        self._alone = alone

    def run(self, partition: Partition, policy_version: int) -> Run:
        """How a batch of sends is run."""
        topic = partition.topic.encode() if partition.namespace_ids else None
        slots = [slot_of(policy_version, lane) for lane in range(LANES["send"])]

        def run(items: list[SendItem], lane: int, done: Done) -> None:
            def read(reply: codec.Reply) -> list[SendOutcome] | Coroutine[Any, Any, list[SendOutcome]]:
                if topic is None:
                    return codec.decode_sent(items, reply[0])
                results = codec.decode_sent_anywhere(items, *reply)
                if all(final for _, final in results):
                    return [result for result, _ in results]
                return self._decided(partition, items, policy_version, results)

            encoded = codec.encode_send(items, policy_version, topic)
            self._openings.post(partition, *encoded, slots[lane], through(read, done))

        return run

    async def append(
        self, partition: Partition, items: list[SendItem], policy_version: int, slot: str
    ) -> list[SendOutcome]:
        sends = [(item, item.merge) for item in items if item.merge is not None]
        encoded = appends.encode_append(
            sends, policy_version, partition.topic.encode() if partition.namespace_ids else None
        )
        n, blob = await self._openings.send("append", partition, *encoded, slot, 6)
        return await self._decided(partition, items, policy_version, appends.decode_appended(n, blob))

    async def _decided(
        self, partition: Partition, items: list[SendItem], policy_version: int, results: list[tuple[SendOutcome, bool]]
    ) -> list[SendOutcome]:
        """The outcomes. Sends that are undecided because their id is used in another topic are repeated on both
        partitions."""
        return [
            result if final else await self._send_over(partition, item, policy_version, result.elsewhere or "")
            for item, (result, final) in zip(items, results, strict=True)
        ]

    async def _send_over(
        self, partition: Partition, item: SendItem, policy_version: int, elsewhere: str
    ) -> SendOutcome:
        """A send whose id is used in another topic: one call on both partitions, repeated if the job has moved."""
        for _ in range(MOVES):
            other = replace(partition, topic=elsewhere)
            async with self._alone("send over", partition):
                if item.merge is None:
                    encoded = codec.encode_send([item], policy_version, partition.topic.encode())
                    n, blob = await self._openings.send("send", partition, *encoded, "over", 4, other)
                    [(result, final)] = codec.decode_sent_anywhere([item], n, blob)
                else:
                    encoded = appends.encode_append([(item, item.merge)], policy_version, partition.topic.encode())
                    n, blob = await self._openings.send("append", partition, *encoded, "over", 6, other)
                    [(result, final)] = appends.decode_appended(n, blob)
            if final:
                return result
            elsewhere = result.elsewhere or ""
        raise Unavailable(MOVED)
