"""How old an answer may be, with a time that the test chooses."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from dueline.push.discovery import Instance, Resolver
from dueline.push.discovery.cache import CachingResolver, LookupFailed
from dueline.push.discovery.chain import ResolverChain
from dueline.push.discovery.static import StaticResolver, instance_at

ONE, TWO = Instance("http://one"), Instance("http://two")


class StubResolver:
    """A registry whose answer the test writes; None: it does not answer."""

    def __init__(self) -> None:
        self.now_s = 5000.0
        self.answer: Sequence[Instance] | None = (ONE,)
        self.looks = 0
        self.held: asyncio.Event | None = None

    async def look(self, service: str) -> Sequence[Instance]:
        self.looks += 1
        if self.held is not None:
            await self.held.wait()
        if self.answer is None:
            raise LookupFailed("it is away")
        return self.answer

    def remembered(self) -> CachingResolver:
        return CachingResolver(self.look, lambda: self.now_s)


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_an_answer_counts_for_ten_seconds() -> None:
    told = StubResolver()
    found = told.remembered()
    assert await found.instances("a") == (ONE,)
    told.answer = (TWO,)
    told.now_s += 10
    assert (await found.instances("a"), told.looks) == ((ONE,), 1)


async def test_an_older_one_is_given_while_it_is_looked_up_again_so_that_nobody_waits() -> None:
    told = StubResolver()
    found = told.remembered()
    await found.instances("a")
    told.answer, told.held = (TWO,), asyncio.Event()
    told.now_s += 11
    assert await found.instances("a") == (ONE,)
    told.held.set()
    await settle()
    assert (await found.instances("a"), told.looks) == ((TWO,), 2)


async def test_a_very_old_one_is_not_given() -> None:
    told = StubResolver()
    found = told.remembered()
    await found.instances("a")
    told.answer = ()
    told.now_s += 31
    assert (await found.instances("a"), told.looks) == ((), 2)


async def test_who_waits_for_an_instance_has_it_looked_up_every_second_and_not_more_often() -> None:
    told = StubResolver()
    told.answer = ()
    found = told.remembered()
    assert await found.instances("a", fresh=True) == ()
    told.answer = (ONE,)
    told.now_s += 1.0
    assert (await found.instances("a", fresh=True), told.looks) == ((), 1)
    told.now_s += 0.1
    assert (await found.instances("a", fresh=True), told.looks) == ((ONE,), 2)


async def test_many_who_ask_at_once_are_one_look_up() -> None:
    told = StubResolver()
    told.held = asyncio.Event()
    found = told.remembered()
    asking = [asyncio.create_task(found.instances("a", fresh=bool(n % 2))) for n in range(10)]
    await settle()
    told.held.set()
    assert (await asyncio.gather(*asking), told.looks) == ([(ONE,)] * 10, 1)


async def test_one_who_goes_away_does_not_end_the_look_up_of_the_others() -> None:
    told = StubResolver()
    told.held = asyncio.Event()
    found = told.remembered()
    leaving, staying = (asyncio.create_task(found.instances("a")) for _ in range(2))
    await settle()
    leaving.cancel()
    await settle()
    told.held.set()
    assert (await staying, told.looks) == ((ONE,), 1)


async def test_a_registry_that_does_not_answer_leaves_what_it_told_last_however_long_it_is_away() -> None:
    told = StubResolver()
    found = told.remembered()
    await found.instances("a")
    told.answer = None
    for away_s in (31, 300, 86_400, 30 * 86_400):
        told.now_s += away_s
        assert await found.instances("a") == (ONE,)
        assert await found.instances("a", fresh=True) == (ONE,)
    told.answer = ()  # it is back, and says that nobody is there: that is another thing
    told.now_s += 31
    assert await found.instances("a") == ()


async def test_a_registry_that_does_not_answer_is_not_asked_more_often_than_one_that_does() -> None:
    told = StubResolver()
    told.answer = None
    found = told.remembered()
    for _ in range(5):
        assert await found.instances("a", fresh=True) == ()
    assert told.looks == 1


async def test_the_table_counts_over_the_registry_and_names_are_the_same_in_any_case() -> None:
    told = StubResolver()
    registry: Resolver = _Registry(told.remembered())
    table = StaticResolver({"Billing": [instance_at("http://10.0.0.1:9024/", "task1, task2")]})
    both = ResolverChain(table, registry)
    [billing] = await both.instances("BILLING")
    assert (billing.url, billing.tasks, billing.service) == ("http://10.0.0.1:9024", ("task1", "task2"), "billing")
    assert (await both.instances("mail"), told.looks) == ((ONE,), 1)
    assert dict(await both.services()) == {"billing": (billing,), "mail": (TWO,)}


class _Registry:
    def __init__(self, memory: CachingResolver) -> None:
        self.instances = memory.instances

    async def services(self) -> dict[str, Sequence[Instance]]:
        return {"billing": (ONE,), "mail": (TWO,)}

    async def start(self) -> None: ...

    async def stop(self) -> None: ...
