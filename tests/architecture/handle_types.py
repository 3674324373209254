"""Not a test itself: what a type checker must say about handlers. `# error` marks the lines it must refuse."""

from dataclasses import dataclass
from typing import Any, assert_type

from dueline import Outcome, Sent, Worker
from dueline.worker import Context, Handle

worker = Worker()


@dataclass
class Order:
    number: int


@worker.handles("t")
async def close(order: Order) -> None: ...


@worker.handles("t")
def close_with_context(order: Order, context: Context) -> int:
    return order.number


@worker.handles("t")
def fields(order_id: int, reason: str = "unpaid") -> None: ...


@worker.handles("t")
def more_fields(a: int, b: str, c: float, context: Context) -> None: ...


@worker.handles("t")
def group(orders: list[Order], context: Context) -> None: ...


@worker.handles("t")
def nothing() -> None: ...


@worker.handles("t")
def only_context(context: Context) -> None: ...


@worker.handles("t")
def anything(body: Any) -> None: ...


@worker.handles("t")
def number(body: int) -> None: ...


@worker.handles("t")
def untyped(body): ...


@worker.handles("t")
def with_default(body: int = 3) -> None: ...


def relayed(handle: Handle[..., Any]) -> Sent:
    return handle.send({"a": 1})


def blocking() -> None:
    assert_type(close.send(Order(1), delay="30m"), Sent)
    assert_type(close.at("2030-01-01T00:00:00Z", Order(1)), Sent)
    assert_type(close.cancel("a", missing_ok=True), Outcome)
    close.send(7)  # error
    close.send({"number": 7})  # error
    close.send()  # error
    close.send(Order(1), delayy="1m")  # error
    close.at("2030-01-01T00:00:00Z", 7)  # error
    close_with_context.send(Order(1))
    close_with_context.send("one")  # error
    fields.send({"order_id": 1})
    fields.send(1)  # error
    more_fields.send({"a": 1, "b": "x", "c": 0.5})
    more_fields.send(1)  # error
    group.send(Order(1), merge="all")
    group.send([Order(1)])
    group.send(7, merge="all")  # error
    nothing.send()
    only_context.send()
    only_context.send({"a": 1})
    anything.send({"a": 1})
    untyped.send(7)
    with_default.send(7)
    relayed(close)
    number.send(1)
    number.send("1")  # error
    number.at("2030-01-01T00:00:00Z", "1")  # error


async def awaited() -> None:
    assert_type(await close.asend(Order(1), delay="30m"), Sent)
    assert_type(await close.aat("2030-01-01T00:00:00Z", Order(1)), Sent)
    await close.asend(7)  # error
    await close.aat("2030-01-01T00:00:00Z", 7)  # error
    await fields.asend({"order_id": 1})
    await fields.asend(1)  # error
    await nothing.asend()


def called() -> None:
    assert_type(close_with_context(order=Order(1), context=None), int)  # error
    number(body=1)
    number(body="1")  # error
    fields(1, reason="late")


@worker.handles  # error
def bare(body: int) -> None: ...


@worker.handles("t", retry=3)
def counted(body: int) -> None: ...
