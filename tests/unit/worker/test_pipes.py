"""The two ends of the pipe between a worker and a child."""

from __future__ import annotations

import asyncio
import socket

import pytest

from dueline.worker.pipes import ChildsEnd, Message, WorkersEnd

from .kit import WITHIN_S

BIG = "x" * 2_000_000  # more than a pair of sockets holds


class Heard:
    """What one end has heard; the end of the pipe is heard as ("broken",)."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self._news = asyncio.Event()

    def add(self, message: Message) -> None:
        self.messages.append(message)
        self._news.set()

    async def until(self, number: int) -> list[Message]:
        async with asyncio.timeout(WITHIN_S):
            while len(self.messages) < number:
                await self._news.wait()
                self._news.clear()
        return self.messages


def pair() -> tuple[WorkersEnd, socket.socket, Heard]:
    ours, theirs = socket.socketpair()
    heard = Heard()
    return WorkersEnd(ours, heard.add, lambda: heard.add(("broken",))), theirs, heard


async def turns() -> None:
    """Let the loop hear what has come."""
    for _ in range(3):
        await asyncio.sleep(0)


async def test_what_a_child_does_not_read_yet_is_kept_for_it_in_order_and_nobody_waits() -> None:
    ours, theirs, _ = pair()
    sent = [("job", BIG), ("stopping",), ("job", BIG + "y")]
    for message in sent:
        ours.tell(message)
    child = ChildsEnd(theirs)
    assert [await asyncio.to_thread(child.hear) for _ in sent] == sent
    ours.close()
    ours.close()
    theirs.close()


async def test_half_a_message_is_none_and_two_at_once_are_two() -> None:
    wrong: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, trouble: wrong.append(trouble))
    _ours, theirs, heard = pair()
    other, copy = socket.socketpair()
    child = ChildsEnd(other)
    for message in (("begun",), ("done", 0, None, "é"), ("extend", 5)):
        child.tell(message)
    written = copy.recv(65536)
    for begin, end in ((0, 3), (3, 9), (9, None)):
        theirs.sendall(written[begin:end])
        await turns()
    assert await heard.until(3) == [("begun",), ("done", 0, None, "é"), ("extend", 5)]
    assert wrong == []
    for end in (theirs, other, copy):
        end.close()
    assert (await heard.until(4))[3] == ("broken",)


async def test_the_last_words_of_a_child_are_heard_before_its_end_which_is_heard_once() -> None:
    ours, theirs, heard = pair()
    child = ChildsEnd(theirs)
    await asyncio.to_thread(child.tell, ("done", 0, None, None))
    theirs.shutdown(socket.SHUT_RDWR)
    ours.tell(("job", BIG))  # to nobody
    assert await heard.until(2) == [("done", 0, None, None), ("broken",)]
    ours.tell(("stopping",))
    await turns()
    ours.close()
    assert len(heard.messages) == 2
    theirs.close()


async def test_a_child_hears_that_its_worker_is_gone() -> None:
    ours, theirs, _ = pair()
    child = ChildsEnd(theirs)
    ours.close()
    with pytest.raises(EOFError):
        child.hear()
    theirs.close()
