"""The calls of epochs.lua: which partitions were opened, and with which epoch. Calls of many partitions at once, such
as for the first sends to new topics, share a script call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import chain

from .codec import pack_numbers, unpack_numbers
from .keys import DATA_VERSION
from .shared_call import SharedCall

OPEN, CONFIRM, CLOSING, CLOSED, NOT_CLOSED = range(1, 6)

Run = Callable[[int, bytes, bytes], Awaitable[tuple[bytes, bytes]]]
Question = tuple[Sequence[bytes], Sequence[int]]  # texts, numbers
Answer = tuple[int, str, bool]  # state, epoch, whether the directory has the topic


class EpochCalls:
    """`run` makes one script call. `store_epoch` returns the epoch of the store that this process knows."""

    def __init__(self, run: Run, store_epoch: Callable[[], str]) -> None:
        self._run = run
        self._store_epoch = store_epoch
        self._calls = {what: SharedCall(partial(self._ask_all, what)) for what in range(OPEN, NOT_CLOSED + 1)}

    async def ask(self, what: int, numbers: Sequence[int], name: bytes, *epochs: str) -> Answer:
        return await self._calls[what].ask(((name, *(one.encode() for one in epochs)), numbers))

    async def _ask_all(self, what: int, questions: Sequence[Question]) -> list[Answer]:
        words = [self._store_epoch().encode(), DATA_VERSION.encode()]
        numbers = [*map(len, words), *chain.from_iterable((*map(len, texts), *more) for texts, more in questions)]
        blob = b"".join(chain(words, *(texts for texts, _ in questions)))
        packed, epochs = await self._run(what, pack_numbers(numbers), blob)
        found, at = unpack_numbers(packed), 0
        answers: list[Answer] = []
        for state, size, listed in zip(found[::3], found[1::3], found[2::3], strict=True):
            answers.append((state, epochs[at : at + size].decode(), bool(listed)))
            at += size
        return answers
