"""What a child process finds where a handler stood."""

from __future__ import annotations

from typing import Any

import pytest

from dueline.worker import TaskWorker, Worker
from dueline.worker.handlers import HandlerLocation
from dueline.worker.locations import handler_at

NOWHERE = "http://127.0.0.1:1"

same_name = Worker(NOWHERE)


@same_name.handles("a", mode="process")
def twin(n: int) -> None: ...


first_twin = twin


@same_name.handles("b", mode="process")
def twin(n: int) -> None: ...


same_topic = Worker(NOWHERE)


@same_topic.handles("a", mode="process")
def again(n: int) -> None: ...


@same_topic.handles("a", mode="process")
def again(n: int) -> None: ...  # noqa: F811


def plain(n: int) -> None: ...


renamed = Worker(NOWHERE)
not_plain = renamed.handles("a", mode="process")(plain)

gone = Worker(NOWHERE)


@gone.handles("a", mode="process")
def fleeting(n: int) -> None: ...


del fleeting


class Task(TaskWorker):
    type = "a"
    mode = "process"

    def invoke(self, params: int) -> None: ...


task_twins = Worker(NOWHERE)
task_twins.bind(Task)


class Task(TaskWorker):  # type: ignore[no-redef]
    type = "a"
    mode = "process"

    def invoke(self, params: int) -> None: ...


several = Worker(NOWHERE)
other = Worker(NOWHERE)


@several.handles("a", mode="process")
@several.handles("b", mode="process")
@other.handles("c", mode="process")
def close(n: int) -> None: ...


class Shop:
    @several.handles("d", mode="process")
    @staticmethod
    def open(n: int) -> None: ...


@pytest.mark.parametrize(
    ("worker", "why"),
    [
        (same_name, r"twin is <handler of b: .*>, not the handler of a"),
        (same_topic, r"again is also the name of something else"),
        (renamed, r"plain is <function plain .*>, not the handler of a"),
        (gone, r"fleeting does not exist after its module was imported"),
        (task_twins, r"Task is also the name of something else"),
    ],
)
async def test_a_worker_with_a_handler_that_its_child_processes_would_not_find_does_not_start(
    worker: Worker, why: str
) -> None:
    with pytest.raises(ValueError, match=rf"would not find the handler of a: {__name__}\.{why}"):
        await worker.start()


def test_one_function_for_several_topics_and_workers_is_found_for_each() -> None:
    found: Any = {topic: handler_at(HandlerLocation(__name__, "close"), topic) for topic in "abc"}
    assert {topic: (handle.topic, handle.worker) for topic, handle in found.items()} == {
        "a": ("a", several),
        "b": ("b", several),
        "c": ("c", other),
    }
    assert handler_at(HandlerLocation(__name__, "Shop.open"), "d") is Shop.open
    assert handler_at(HandlerLocation(__name__, "Task"), "a") is Task


def test_a_child_does_not_run_the_handler_of_another_topic() -> None:
    with pytest.raises(LookupError, match="not the handler of a"):
        handler_at(HandlerLocation(__name__, "twin"), "a")
    with pytest.raises(LookupError, match="not the handler of z"):
        handler_at(HandlerLocation(__name__, "Task"), "z")


async def test_threads_and_coroutines_need_not_be_found_again() -> None:
    worker = Worker(NOWHERE)
    for topic in "ab":

        @worker.handles(topic)
        async def handle(n: int) -> None: ...

    await worker.start()
    await worker.stop(0)
