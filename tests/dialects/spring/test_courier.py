"""Whom the courier "spring" calls, with what, and what it makes of answers. Discovery is a table of the test."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dueline.dialects.spring.courier import SpringCourier
from dueline.dialects.spring.groups import group_of, key_of, parts_of
from dueline.engine.headers import pack_headers
from dueline.engine.job import BodyKind, Item, LeasedJob
from dueline.engine.push_target import PushTarget, PushTopic
from dueline.push.call import Response
from dueline.push.courier import Outcome
from dueline.push.discovery import Instance

TARGET = PushTarget(courier="spring", success=(200,), timeout_ms=61_000)
ADDED = {"delay-queue-app": "a", "delay-queue-type": "task1", "delay-queue-time": "1628146026000"}


class Table:
    """Service -> its instances. `appears`: what a fresh look finds beside them."""

    def __init__(self, table: Mapping[str, Sequence[Instance]], appears: Mapping[str, Sequence[Instance]] = {}) -> None:
        self._table = table
        self._appears = appears

    async def instances(self, service: str, fresh: bool = False) -> Sequence[Instance]:
        return (*self._table.get(service, ()), *(self._appears.get(service, ()) if fresh else ()))

    async def services(self) -> Mapping[str, Sequence[Instance]]:
        return self._table

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


def push_topic(topic: str = "a-task1") -> PushTopic:
    return PushTopic("spring", topic, 1, TARGET)


def leased_job(headers: Mapping[str, str] = ADDED, **changes: Any) -> LeasedJob:
    fields: dict[str, Any] = {
        "id": "1",
        "topic": "a-task1",
        "body": b"p",
        "kind": BodyKind.TEXT,
        "headers": pack_headers(tuple(headers.items())),
        "tags": (),
        "attempt": 1,
        "delivery": 1,
        "max_attempts": 7,
        "lease": "t",
        "lease_until_ms": 0,
        "due_at_ms": 1700000000000,
        "created_at_ms": 0,
        "late_ms": 0,
    }
    return LeasedJob(**{**fields, **changes})


async def bodies(courier: SpringCourier, job: LeasedJob, topic: str = "a-task1") -> list[tuple[str, Any]]:
    calls = await courier.calls(push_topic(topic), job)
    return [(call.url, json.loads(call.body)) for call in calls]


ONE = Instance("http://one:1", ("task1", "task2"))
TWO = Instance("https://two:2", ("task1",))
OTHER = Instance("http://other:3", ("task10", "xtask1", "task"))
MUTE = Instance("http://mute:4")


async def test_all_instances_that_name_exactly_this_type_are_called_in_their_order() -> None:
    courier = SpringCourier(Table({"a": (OTHER, ONE, MUTE, TWO)}))
    calls = await courier.calls(push_topic(), leased_job())
    work = b'{"taskId":"1","taskType":"task1","delayTime":1628146026000,"params":"p","appName":"a"}'
    assert [(c.method, c.url, c.headers, c.body, c.timeout_ms) for c in calls] == [
        ("POST", url, (("Content-Type", "application/json;charset=UTF-8"),), work, 61_000)
        for url in ("http://one:1/hf/delay_queue/work", "https://two:2/hf/delay_queue/work")
    ]


async def test_nobody_is_found_before_a_fresh_look_and_who_appears_is_found_by_it() -> None:
    nobody = SpringCourier(Table({"a": (OTHER, MUTE)}))
    assert (await nobody.has_instance(push_topic()), await nobody.calls(push_topic(), leased_job())) == (False, ())
    appeared = SpringCourier(Table({"a": (OTHER,)}, {"a": (ONE,)}))
    assert await appeared.has_instance(push_topic())
    assert len(await appeared.calls(push_topic(), leased_job())) == 1


TEXTS = st.text(st.sampled_from("ab-~01é"), max_size=6) | st.sampled_from(("null", "null-a", "a~4", "b~0"))


@given(st.none() | TEXTS, TEXTS)
def test_what_the_dialect_joins_the_courier_splits(app: str | None, type: str) -> None:
    topic = group_of(app, type)
    assert parts_of(topic) == (None if app is None else (app, type))
    assert key_of(topic) == f"{'null' if app is None else app}-{type}"


@given(st.tuples(st.none() | TEXTS, TEXTS), st.tuples(st.none() | TEXTS, TEXTS))
def test_two_groups_never_have_one_topic(one: tuple[str | None, str], other: tuple[str | None, str]) -> None:
    assert (group_of(*one) == group_of(*other)) == (one == other)


@pytest.mark.parametrize(
    ("app", "type", "topic"),
    [
        ("order", "pay", "order-pay"),
        ("order-pay", "close", "order-pay-close"),
        ("order", "pay-close", "order-pay-close~5"),
        ("Bücher", "a~1", "Bücher-a~1~6"),
        ("", "b-c", "-b-c~0"),
        (None, "pay", "null-pay"),
        (None, "pay-close", "null-pay-close~0"),
        ("null", "pay", "null-pay~4"),
        ("null-pay", "close", "null-pay-close"),
    ],
)
def test_a_topic_has_a_number_when_its_last_dash_would_mislead(app: str | None, type: str, topic: str) -> None:
    assert group_of(app, type) == topic


@pytest.mark.parametrize("topic", ["abc", "abc~1", "a-b~0", "a-b~2", "a-b~99", "a-b~" + "9" * 500, "null-b"])
async def test_a_topic_that_no_application_has_means_nobody(topic: str) -> None:
    courier = SpringCourier(Table({"a": (ONE,), "": (ONE,), "null": (Instance("http://x", ("b",)),)}))
    assert parts_of(topic) is None
    assert not await courier.has_instance(push_topic(topic))
    assert await bodies(courier, leased_job({}), topic) == []


async def test_a_topic_means_one_application() -> None:
    courier = SpringCourier(Table({"a-b": (Instance("http://x", ("c",)),)}))
    assert await courier.has_instance(push_topic("a-b-c"))
    assert not await courier.has_instance(push_topic("a-b-c~1"))
    assert [job["appName"] for _, job in await bodies(courier, leased_job({}), "a-b-c")] == ["a-b"]
    assert await bodies(courier, leased_job({}), "a-b-c~1") == []


async def test_a_job_goes_to_the_application_of_its_topic_whatever_its_headers_say() -> None:
    """Whoever may send to a topic chooses the headers, but may not call the application of another topic."""
    shop, billing = Instance("http://shop", ("close",)), Instance("http://billing", ("pay",))
    courier = SpringCourier(Table({"shop": (shop,), "billing": (billing,)}))
    job = leased_job({"delay-queue-app": "billing", "delay-queue-type": "pay", "delay-queue-time": "5"})
    called = [(url, one["appName"], one["taskType"]) for url, one in await bodies(courier, job, "shop-close")]
    assert called == [("http://shop/hf/delay_queue/work", "shop", "close")]
    assert await bodies(courier, job, "elsewhere") == []


@pytest.mark.parametrize("time", ["", "x", "1.5", "1e3", "9" * 30, "-", "٣"])
async def test_headers_that_somebody_else_made_up_do_no_harm(time: str) -> None:
    courier = SpringCourier(Table({"a": (ONE,)}))
    [(_, job)] = await bodies(courier, leased_job({**ADDED, "delay-queue-time": time}))
    assert (job["taskId"], job["delayTime"]) == ("1", 1700000000000)


async def test_a_job_of_another_protocol_is_sent_as_it_stands() -> None:
    courier = SpringCourier(Table({"a": (ONE,)}))
    jobs = [
        (await bodies(courier, leased_job({}, id="~x", body=b'{"n": 1}', kind=BodyKind.JSON)))[0][1],
        (await bodies(courier, leased_job({}, body=b"\xff\x00", kind=BodyKind.BYTES)))[0][1],
        (await bodies(courier, leased_job({}, items=(Item(b"1", BodyKind.JSON), Item(b"x", BodyKind.TEXT)))))[0][1],
    ]
    assert [(job["taskId"], job["params"], job["delayTime"]) for job in jobs] == [
        ("~x", '{"n": 1}', 1700000000000),
        ("1", "/wA=", 1700000000000),
        ("1", '[1,"x"]', 1700000000000),
    ]


@pytest.mark.parametrize(
    ("status", "headers", "outcome", "delay_ms"),
    [
        (200, {}, Outcome.DONE, None),
        (201, {}, Outcome.RETRY, None),
        (204, {}, Outcome.RETRY, None),
        (302, {}, Outcome.RETRY, None),
        (404, {}, Outcome.RETRY, None),
        (410, {}, Outcome.RETRY, None),
        (410, {"dueline-abort": "no"}, Outcome.DEAD, None),
        (500, {}, Outcome.RETRY, None),
        (503, {"retry-after": "7"}, Outcome.RETRY, 7000),
        (500, {"dueline-abort": "never"}, Outcome.DEAD, None),
    ],
)
def test_only_200_is_done(status: int, headers: dict[str, str], outcome: Outcome, delay_ms: int | None) -> None:
    verdict = SpringCourier(Table({})).judge(push_topic(), Response(status, headers, "", 1), 0)
    assert (verdict.outcome, verdict.delay_ms) == (outcome, delay_ms)
