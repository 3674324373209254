"""The directory: topics, their configs, and clean-up hints. Its keys have a slot of their own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from ...engine.directory import DIRECTORY_PAGE, Hint, TopicChange, TopicEntry
from .codec import pack_numbers, unpack_numbers
from .keys import partition_name, partition_named, topic_name
from .shared_call import SharedCall

REGISTER, TOPIC, TOPICS, SET_CONFIG, REMOVE, IDLE, NOTE, TAKE, FINISH = range(1, 10)
READING = frozenset({TOPIC, TOPICS, IDLE})  # these change nothing

MOST_NEW = 10_000

Run = Callable[[int, bytes, bytes], Awaitable[tuple[bytes, bytes]]]


class ValkeyDirectory:
    """Each method is one call of directory.lua through `run`. `registered` is called with topics that were listed."""

    def __init__(self, run: Run, registered: Callable[[Sequence[tuple[str, str]]], Awaitable[None]]) -> None:
        self._run = run
        self._registered = registered
        self._reads: SharedCall[bytes, TopicEntry | None] = SharedCall(self._read)
        self._new: dict[tuple[str, str], bool] = {}  # topics that were not listed when they were last read

    def pop_new(self, namespace: str, topic: str) -> bool:
        """Whether the topic was not listed when it was last read. True once, for its first send."""
        return self._new.pop((namespace, topic), False)

    async def _ask(self, what: int, numbers: list[int], blob: bytes = b"") -> tuple[list[int], bytes]:
        packed, answer = await self._run(what, pack_numbers(numbers), blob)
        return unpack_numbers(packed), answer

    async def register(self, topics: Sequence[tuple[str, str]]) -> None:
        names = [topic_name(*topic) for topic in topics]
        for i in range(0, len(names), 100):
            part = names[i : i + 100]
            await self._ask(REGISTER, [len(name) for name in part], b"".join(part))
        await self._registered(topics)

    async def topic(self, namespace: str, topic: str) -> TopicEntry | None:
        """Reads at the same time share a call."""
        entry = await self._reads.ask(topic_name(namespace, topic))
        self._new.pop((namespace, topic), None)
        if entry is None:
            self._new[namespace, topic] = True
            if len(self._new) > MOST_NEW:
                del self._new[next(iter(self._new))]
        return entry

    async def _read(self, names: Sequence[bytes]) -> list[TopicEntry | None]:
        entries = _entries(*await self._ask(TOPIC, [len(name) for name in names], b"".join(names)))
        found = {topic_name(entry.namespace, entry.topic): entry for entry in entries}
        return [found.get(name) for name in names]

    async def topics(self, namespace: str | None, after: str, limit: int) -> list[TopicEntry]:
        """Topics by name, after the name `after` ("" = from the beginning). Namespace None: all; `after` is then
        "namespace NUL topic"."""
        prefix = b"" if namespace is None else topic_name(namespace, "")
        start = b"" if not after else after.encode() if namespace is None else topic_name(namespace, after)
        return _entries(*await self._ask(TOPICS, [min(limit, DIRECTORY_PAGE), len(start), len(prefix)], start + prefix))

    async def set_config(
        self, namespace: str, topic: str, config: bytes, expected_version: int | None
    ) -> TopicEntry | None:
        name = topic_name(namespace, topic)
        expected = -1 if expected_version is None else expected_version
        entries = _entries(*await self._ask(SET_CONFIG, [expected, len(name), len(config)], name + config))
        return entries[0] if entries else None

    async def remove(self, namespace: str, topic: str, seen_ms: int, version: int = 0) -> bool:
        name = topic_name(namespace, topic)
        numbers, _ = await self._ask(REMOVE, [seen_ms, version, len(name)], name)
        return bool(numbers)

    async def idle_topics(self, before_ms: int, limit: int) -> list[TopicEntry]:
        return _entries(*await self._ask(IDLE, [before_ms, min(limit, 100)]))

    async def note(self, hints: Sequence[Hint]) -> None:
        members = [_member(hint) for hint in hints]
        numbers = [n for hint, member in zip(hints, members, strict=True) for n in (hint.at_ms, len(member))]
        await self._ask(NOTE, numbers, b"".join(members))

    async def take(self, limit: int, hold_ms: int) -> tuple[list[Hint], int | None]:
        numbers, blob = await self._ask(TAKE, [min(limit, 100), hold_ms])
        hints: list[Hint] = []
        at = 0
        for size in numbers[1:]:
            member = blob[at : at + size]
            at += size
            hints.append(Hint(partition_named(member[6:]), int.from_bytes(member[:6], "big")))
        return hints, None if numbers[0] < 0 else numbers[0]

    async def finish(self, taken: Sequence[Hint]) -> None:
        members = [_member(hint) for hint in taken]
        await self._ask(FINISH, [len(member) for member in members], b"".join(members))


def announced_change(message: bytes) -> TopicChange:
    """The announcement that directory.lua publishes."""
    number, version, name = message.split(b" ", 2)
    namespace, _, topic = name.decode().partition("\0")
    return TopicChange(int(number), namespace, topic, int(version))


def _member(hint: Hint) -> bytes:
    return hint.at_ms.to_bytes(6, "big") + partition_name(hint.partition)


def _entries(numbers: list[int], blob: bytes) -> list[TopicEntry]:
    entries: list[TopicEntry] = []
    at = 0
    for i in range(0, len(numbers), 4):
        name_size, seen, version, config_size = numbers[i : i + 4]
        namespace, _, topic = blob[at : at + name_size].decode().partition("\0")
        at += name_size
        entries.append(TopicEntry(namespace, topic, seen, version, blob[at : at + config_size]))
        at += config_size
    return entries
