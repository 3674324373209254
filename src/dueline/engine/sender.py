"""Sends: check the command, register the topic, call the store with the cached policy, and retry if it is stale.

While the topic has old partitions (engine.expansion), a send whose id or merge key may be known there asks the old
partition first. Only if that one is closed and does not have it (MOVED), the job goes to its current partition.
With `namespace_ids` a new partition does not wait for a config, so its senders make sure: they ask the old partition
for every id until they know that it is closed, and copy the fences of schedules before they send an occurrence.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Protocol

from msgspec.structs import replace

from ..rights import EVERYTHING, Grant
from .checks import Checks, at_place
from .commands import Send, Sent
from .completion import Done, awaited, leave
from .errors import DuelineError, IdExists, StoreDown, StoreFull, Unavailable, UnknownOutcome
from .fan_out import Batch, error_for, split
from .fence_copies import copy_fences
from .ids import new_id
from .job import Partition
from .limits import BATCH_BYTES, BATCH_JOBS
from .merging import group_id
from .registrar import Registrar
from .replies import RESULTS, refusal
from .sending import send_item
from .store import Code, Control, SendItem, SendOutcome, StalePolicy, Store
from .timer import Timer
from .topics import Topic, Topics

TRIES = 6
_MOVED = Code.MOVED  # looking up a member of an enum is slow
UNKNOWN_NAMED_ITEM = (
    "The store did not answer in time: the item may have been added. Retry with the same merge.item_id."
)
UNKNOWN_ITEM = (
    "The store did not answer in time: the item may have been added. It has no item_id: a retry may add it twice."
)


class SendWatch(Protocol):
    """Observes the outcome of sends. Called inside the event loop; must not block or raise."""

    def stored(self, namespace: str, topic: str, due_at_ms: int) -> None: ...
    def refused(self, namespace: str, topic: str, error: DuelineError) -> None:
        """No send can be stored at the moment."""


class SendLimit(Protocol):
    """Limits the jobs of a namespace. Called inside the event loop, before anything is stored."""

    def admit(self, namespace: str, jobs: int, grant: Grant) -> Awaitable[None] | None:
        """Count these sends of a caller. Raises QuotaExceeded, at once or when what it returns is awaited."""
        ...


class Sender:
    """Takes a send from command to answer. `watch`: observes the outcomes. `limit`: may refuse sends of a namespace, or
    of a caller; `grant` says who that is."""

    def __init__(self, store: Store, topics: Topics, registrar: Registrar, checks: Checks, timer: Timer) -> None:
        self._store = store
        self._topics = topics
        self._registrar = registrar
        self._checks = checks
        self._time_s = timer.time
        self._now_ms = store.now_ms
        self.watch: SendWatch | None = None
        self.limit: SendLimit | None = None
        self.tell_partitions: Callable[[str, str], Awaitable[Topic]] | None = (
            None  # for partitions that have dropped their topic
        )

    async def send(self, namespace: str, name: str, command: Send, grant: Grant = EVERYTHING) -> Sent:
        """`post` for a caller that awaits."""
        return await awaited(self.post, namespace, name, command, grant)

    def post(self, namespace: str, name: str, command: Send, grant: Grant, done: Done) -> None:
        """Store one job: `done` gets what was sent, or the error. May raise an error, too. A send that must await
        something first leaves the line here; one that is refused for a stale policy leaves it in `_on_reply`."""
        topic = self._topics.known(namespace, name)
        if (
            topic is None
            or topic.old
            or command.merge is not None
            or command.occurrence is not None
            or self._time_s() >= topic.registered_until_s
        ):
            leave(self._send(namespace, name, command, grant), done)
            return
        id = new_id() if command.id is None else command.id
        item = send_item(command, id, topic, self._checks, self._now_ms)
        if self.limit is not None and (counting := self.limit.admit(namespace, 1, grant)) is not None:
            leave(self._send(namespace, name, command, grant, counting), done)
            return
        on_reply = partial(self._on_reply, topic, command, id, done)
        self._store.post_send(topic.partition_of(id), (item,), topic.version, on_reply)

    def _on_reply(
        self, topic: Topic, command: Send, id: str, done: Done, results: Sequence[SendOutcome] | BaseException
    ) -> None:
        if not isinstance(results, BaseException):
            result = results[0]
            if result.code is not _MOVED:
                done(self._answer(topic, id, result))
                return
            results = _moved(topic, result)
        if isinstance(results, StalePolicy):
            leave(self._send_stale(topic, command, id, results), done)
        elif isinstance(results, DuelineError):
            done(self._unstored(topic.namespace, topic.name, command, id, results))
        else:
            done(results)

    async def _send(
        self, namespace: str, name: str, command: Send, grant: Grant, counting: Awaitable[None] | None = None
    ) -> Sent:
        """Store one job, whatever has to be done first. `counting`: the limit's answer, if it was asked already."""
        id = new_id() if command.id is None else command.id
        try:
            topic = self._topics.known(namespace, name) or await self._topics.load(namespace, name)
            version = topic.version  # of the policy used for the item; registering the topic may load a newer one
            item = send_item(command, id, topic, self._checks, self._now_ms)
            if counting is None and self.limit is not None:
                counting = self.limit.admit(namespace, 1, grant)
            if counting is not None:
                await counting
            if self._time_s() >= topic.registered_until_s:
                await self._register(topic)
            if command.merge is not None:
                item = _placed(item, topic)
            try:
                result = await self._stored(topic, command, item, version)
                if result.code is Code.MOVED:
                    raise _moved(topic, result)
                answer = self._answer(topic, id, result)
            except StalePolicy as stale:
                [answer] = await self._send_again(topic, [command], [id], stale.version)
        except DuelineError as error:
            raise self._unstored(namespace, name, command, id, error) from None
        if isinstance(answer, DuelineError):
            raise answer
        return answer

    async def _send_stale(self, topic: Topic, command: Send, id: str, stale: StalePolicy) -> Sent:
        [answer] = await self._send_again(topic, [command], [id], stale.version)
        if isinstance(answer, DuelineError):
            raise answer
        return answer

    def _unstored(self, namespace: str, name: str, command: Send, id: str, error: DuelineError) -> DuelineError:
        """The error of a send whose store call failed."""
        if isinstance(error, UnknownOutcome):
            return _failure(error, command, id)
        return self._refused(namespace, name, error) if isinstance(error, StoreFull | Unavailable) else error

    def send_now(
        self,
        store: Callable[[Partition, SendItem, int], SendOutcome | None],
        namespace: str,
        name: str,
        command: Send,
    ) -> Sent | None:
        """Send from any thread, with a store call that needs no event loop. None: nothing was sent; await `send`.
        Raises the same errors as `send`."""
        topic = self._topics.known(namespace, name)
        if topic is None or topic.old or command.merge is not None or self._time_s() >= topic.registered_until_s:
            return None
        id = new_id() if command.id is None else command.id
        version = topic.version  # read before the item is made, because the loop's thread may load a new policy
        item = send_item(command, id, topic, self._checks, self._now_ms)
        result = store(topic.partition_of(id), item, version)
        if result is None or result.code is Code.MOVED:
            return None
        result_name = RESULTS.get(result.code)
        if result_name is None:
            raise _refusal(result)
        return Sent(id, topic.name, result_name, result.state, result.due_at_ms, result.version)

    async def send_many(
        self, namespace: str, name: str, commands: Sequence[Send], grant: Grant = EVERYTHING
    ) -> list[Sent | DuelineError]:
        self._checks.count(commands)
        ids = [new_id() if command.id is None else command.id for command in commands]
        try:
            topic = await self._topics.get(namespace, name)
            version = topic.version
            items = self._items(topic, commands, ids)
            if not commands:
                return []
            if self.limit is not None and (counting := self.limit.admit(namespace, len(commands), grant)) is not None:
                await counting
            if self._time_s() >= topic.registered_until_s:
                await self._register(topic)
        except Unavailable as error:
            raise self._refused(namespace, name, error) from None
        return await self._send_items(topic, version, commands, [_placed(item, topic) for item in items])

    async def send_occurrences(
        self, namespace: str, name: str, commands: Sequence[Send]
    ) -> list[Sent | DuelineError | BaseException]:
        """Send the jobs of several schedules, with as few store calls as possible. One that is refused does not hold up
        the others."""
        if len(commands) > 1:
            with suppress(DuelineError):  # nothing was sent
                return [*await self.send_many(namespace, name, commands)]
        each = (self.send(namespace, name, command) for command in commands)
        return await asyncio.gather(*each, return_exceptions=True)

    async def _register(self, topic: Topic) -> None:
        try:
            await self._registrar.listed(topic)
        except UnknownOutcome as error:
            raise StoreDown(error.message) from None  # registering the topic failed; the job was not sent

    def _items(self, topic: Topic, commands: Sequence[Send], ids: Sequence[str]) -> list[SendItem]:
        items: list[SendItem] = []
        for place, command in enumerate(commands):
            try:
                items.append(send_item(command, ids[place], topic, self._checks, self._now_ms))
            except DuelineError as error:
                raise at_place(error, place) from None
        return items

    async def _send_items(
        self, topic: Topic, version: int, commands: Sequence[Send], items: Sequence[SendItem]
    ) -> list[Sent | DuelineError]:
        """`version`: of the policy used for the items."""
        answers: dict[int, Sent | DuelineError] = {}
        if any(command.occurrence is not None for command in commands):
            await self._fence(topic)

        async def run(partition: Partition, batch: Batch[SendItem]) -> None:
            own = [commands[place] for place in batch.places]
            some = await self._send_batch(topic, partition, version, own, batch.items)
            answers.update((place, one) for place, one in zip(batch.places, some, strict=True) if one is not None)

        async def run_all(partition_of: Callable[[int], Partition | None]) -> None:
            """Send the jobs that have no answer yet. A job whose partition answers MOVED still has none afterwards."""
            # All batches start at once. The store keeps their order and works on one while the next is prepared.
            left = [place for place in range(len(items)) if place not in answers]
            parts = split(left, items, partition_of, lambda item: len(item.body))
            await asyncio.gather(*(run(partition, batch) for partition, some in parts.items() for batch in some))

        if (
            len(topic.partitions) == 1
            and len(items) <= BATCH_JOBS
            and sum(len(item.body) for item in items) <= BATCH_BYTES
        ):
            await run(topic.partitions[0], Batch(list(range(len(items))), list(items)))
        else:
            current = [topic.partition_of(item.id) for item in items]
            if topic.old:
                old = list(map(partial(_old_partition, topic), commands, items))
                await run_all(old.__getitem__)
            await run_all(current.__getitem__)
        for place in range(len(items)):
            if place not in answers:
                again = [commands[place]], [items[place].id]
                [answers[place]] = await self._send_again(topic, *again, topic.version)
        return [answers[place] for place in range(len(items))]

    async def _stored(self, topic: Topic, command: Send, item: SendItem, version: int) -> SendOutcome:
        """Ask the old partition if there is one, then the current one."""
        current, old = topic.partition_of(item.id), _old_partition(topic, command, item)
        if old is not None:
            [result] = await self._store.send(old, (item,), version)
            if result.code is not Code.MOVED:
                return result
        if command.occurrence is not None:
            await self._fence(topic)
        [result] = await self._store.send(current, (item,), version)
        return result

    async def _fence(self, topic: Topic) -> None:
        """With `namespace_ids`, copy what earlier partitions have decided of schedules. They are closed first, so they
        decide no more."""
        map = topic.map
        if topic.fenced or not topic.namespace_ids or not map.first:
            return
        if topic.old and not topic.left.closed and self.tell_partitions is not None:
            await self.tell_partitions(topic.namespace, "")
        await copy_fences(self._store, topic.numbered(range(map.first)), topic.current)
        topic.fenced = topic.map is map

    async def _send_batch(
        self, topic: Topic, partition: Partition, version: int, commands: Sequence[Send], items: Sequence[SendItem]
    ) -> list[Sent | DuelineError | None]:
        """One store call. If it fails, each of its jobs gets the error. None: the job is moved to another partition."""
        try:
            results = await self._store.send(partition, items, version)
        except StalePolicy as stale:
            return [*await self._send_again(topic, commands, [item.id for item in items], stale.version)]
        except DuelineError as error:
            if isinstance(error, StoreFull | Unavailable) and error.done is not None:
                self._refused(topic.namespace, topic.name, error)
            return [_failure(error, command, item.id) for command, item in zip(commands, items, strict=True)]
        return [
            None if result.code is Code.MOVED else self._answer(topic, item.id, result)
            for item, result in zip(items, results, strict=True)
        ]

    async def _send_again(
        self, topic: Topic, commands: Sequence[Send], ids: Sequence[str], version: int
    ) -> list[Sent | DuelineError]:
        """A partition has a newer policy or has dropped its topic, and nothing was stored. Read the config and send
        again, one job at a time.

        The config is always written to the directory before it is passed to the partitions. If the directory still has
        an older one at the second read, it has lost the newer one. Then the partition's version is used, so that sends
        can continue. In the same way, a partition that is closed although the directory has it as a current one was
        closed for a topic that is gone. It is opened, unless a newer config has closed it in the meantime.
        """
        answers: list[Sent | DuelineError] = []
        for command, id in zip(commands, ids, strict=True):
            try:
                answers.append(await self._send_one_again(topic, command, id, version))
            except DuelineError as error:
                answers.append(_failure(error, command, id))
        return answers

    async def _send_one_again(self, topic: Topic, command: Send, id: str, version: int) -> Sent | DuelineError:
        closed: tuple[Partition, int] | None = None
        for attempt in range(TRIES):
            if version == 0 < topic.version and self.tell_partitions is not None:
                # The topic is being deleted. Registering it first keeps it or creates a new one (engine.deletion).
                await self._register(topic)
                await self.tell_partitions(topic.namespace, topic.name)
            elif topic.version < version:
                await self._topics.load(topic.namespace, topic.name)
            item = _placed(send_item(command, id, topic, self._checks, self._now_ms), topic)
            used = topic.version if attempt < 2 else max(topic.version, version)
            try:
                result = await self._stored(topic, command, item, used)
            except StalePolicy as stale:
                version = stale.version
                continue
            if result.code is not Code.MOVED:
                return self._answer(topic, id, result)
            found = (topic.partition_of(item.id), result.version)
            if found == closed:
                whole = replace(found[0], topic="") if topic.namespace_ids else found[0]
                await self._store.control(whole, Control(policy_version=result.version, closed=False))
            closed = found
            await self._topics.reread(self._topics.map_owner(topic))
        raise Unavailable("the topic's policy is changing; nothing was done")

    def _refused(self, namespace: str, name: str, error: DuelineError) -> DuelineError:
        if self.watch is not None:
            self.watch.refused(namespace, name, error)
        return error

    def _answer(self, topic: Topic, id: str, result: SendOutcome) -> Sent | DuelineError:
        result_name = RESULTS.get(result.code)
        sent = topic.metrics.sent
        if result_name is None:
            sent["refused"] += 1
            return _refusal(result)
        sent[result_name] += 1
        if self.watch is not None:
            self.watch.stored(topic.namespace, topic.name, result.due_at_ms)
        group = result.group
        if group is None:
            return Sent(id, topic.name, result_name, result.state, result.due_at_ms, result.version)
        return Sent(group, topic.name, result_name, result.state, result.due_at_ms, result.version, result.items_count)


def _moved(topic: Topic, result: SendOutcome) -> StalePolicy:
    """The partition is closed: the topic has moved on to a config that this process has not read yet."""
    return StalePolicy(topic.version if topic.namespace_ids else result.version)


def _refusal(result: SendOutcome) -> DuelineError:
    """The error of a send that stored nothing."""
    if result.code is Code.ELSEWHERE:
        return IdExists(f'the id is used in the topic "{result.elsewhere}"', "id")
    return refusal(result.code) or DuelineError()


def _old_partition(topic: Topic, command: Send, item: SendItem) -> Partition | None:
    """The old partition that may have the id or the key of this send. None: the id is new, so none has it."""
    if not topic.old:
        return None
    if item.merge is not None:
        return topic.partitions_of_key(item.merge.key)[1]
    is_new = command.id is None and (topic.left.closed or not topic.namespace_ids)
    return None if is_new else topic.old_partition_of(item.id)


def _placed(item: SendItem, topic: Topic) -> SendItem:
    """The item for the topic's current partitions. Registering the topic may have shown that it has more of them."""
    if item.merge is None or len(topic.current) == 1:
        return item
    id = group_id(item.merge.key, item.id, topic)
    return item if id == item.id else replace(item, id=id)


def _failure(error: DuelineError, command: Send, id: str) -> DuelineError:
    """The error of a store call, for one of its sends. An unknown outcome names the id that makes a retry safe."""
    if command.merge is None or not isinstance(error, UnknownOutcome):
        return error_for(error, id)
    item_id = command.merge.item_id
    return UnknownOutcome(UNKNOWN_ITEM if item_id is None else UNKNOWN_NAMED_ITEM, error.field, item_id)
