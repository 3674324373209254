"""How old an answer may be, with a time that the test chooses."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from dueline.push.discovery import Instance, Resolver
from dueline.push.discovery.cache import CachingResolver, LookupFailed
from dueline.push.discovery.chain import ResolverChain
from dueline.push.discovery.static import StaticResolver, instance_at
from tests.kit.waiting import turns

ONE, TWO = Instance("http://one"), Instance("http://two")


class StubResolver:
    """A registry whose answer the test writes; None: it does not answer."""

    def __init__(self) -> None:
        self.now_s = 5000.0
        self.answer: Sequence[Instance] | None = (ONE,)
        self.looks = 0
        self.gate: asyncio.Event | None = None

    async def look(self, service: str) -> Sequence[Instance]:
        self.looks += 1
        if self.gate is not None:
            await self.gate.wait()
        if self.answer is None:
            raise LookupFailed("it is away")
        return self.answer

    def cached(self) -> CachingResolver:
        return CachingResolver(self.look, lambda: self.now_s)


async def settle() -> None:
    await turns(5)


async def test_an_answer_counts_for_ten_seconds() -> None:
    resolver = StubResolver()
    found = resolver.cached()
    assert await found.instances("a") == (ONE,)
    resolver.answer = (TWO,)
    resolver.now_s += 10
    assert (await found.instances("a"), resolver.looks) == ((ONE,), 1)


async def test_an_older_one_is_given_while_it_is_looked_up_again_so_that_nobody_waits() -> None:
    resolver = StubResolver()
    found = resolver.cached()
    await found.instances("a")
    resolver.answer, resolver.gate = (TWO,), asyncio.Event()
    resolver.now_s += 11
    assert await found.instances("a") == (ONE,)
    resolver.gate.set()
    await settle()
    assert (await found.instances("a"), resolver.looks) == ((TWO,), 2)


async def test_a_very_old_one_is_not_given() -> None:
    resolver = StubResolver()
    found = resolver.cached()
    await found.instances("a")
    resolver.answer = ()
    resolver.now_s += 31
    assert (await found.instances("a"), resolver.looks) == ((), 2)


async def test_who_waits_for_an_instance_has_it_looked_up_every_second_and_not_more_often() -> None:
    resolver = StubResolver()
    resolver.answer = ()
    found = resolver.cached()
    assert await found.instances("a", fresh=True) == ()
    resolver.answer = (ONE,)
    resolver.now_s += 1.0
    assert (await found.instances("a", fresh=True), resolver.looks) == ((), 1)
    resolver.now_s += 0.1
    assert (await found.instances("a", fresh=True), resolver.looks) == ((ONE,), 2)


async def test_many_who_ask_at_once_are_one_look_up() -> None:
    resolver = StubResolver()
    resolver.gate = asyncio.Event()
    found = resolver.cached()
    asking = [asyncio.create_task(found.instances("a", fresh=bool(n % 2))) for n in range(10)]
    await settle()
    resolver.gate.set()
    assert (await asyncio.gather(*asking), resolver.looks) == ([(ONE,)] * 10, 1)


async def test_one_who_goes_away_does_not_end_the_look_up_of_the_others() -> None:
    resolver = StubResolver()
    resolver.gate = asyncio.Event()
    found = resolver.cached()
    leaving, staying = (asyncio.create_task(found.instances("a")) for _ in range(2))
    await settle()
    leaving.cancel()
    await settle()
    resolver.gate.set()
    assert (await staying, resolver.looks) == ((ONE,), 1)


async def test_a_registry_that_does_not_answer_leaves_its_last_answer_however_long_it_is_away() -> None:
    resolver = StubResolver()
    found = resolver.cached()
    await found.instances("a")
    resolver.answer = None
    for away_s in (31, 300, 86_400, 30 * 86_400):
        resolver.now_s += away_s
        assert await found.instances("a") == (ONE,)
        assert await found.instances("a", fresh=True) == (ONE,)
    resolver.answer = ()  # it is back, and says that nobody is there: that is another thing
    resolver.now_s += 31
    assert await found.instances("a") == ()


async def test_a_registry_that_does_not_answer_is_not_asked_more_often_than_one_that_does() -> None:
    resolver = StubResolver()
    resolver.answer = None
    found = resolver.cached()
    for _ in range(5):
        assert await found.instances("a", fresh=True) == ()
    assert resolver.looks == 1


async def test_the_table_counts_over_the_registry_and_names_are_the_same_in_any_case() -> None:
    resolver = StubResolver()
    registry: Resolver = _Registry(resolver.cached())
    table = StaticResolver({"Billing": [instance_at("http://10.0.0.1:9024/", "task1, task2")]})
    both = ResolverChain(table, registry)
    [billing] = await both.instances("BILLING")
    assert (billing.url, billing.tasks, billing.service) == ("http://10.0.0.1:9024", ("task1", "task2"), "billing")
    assert (await both.instances("mail"), resolver.looks) == ((ONE,), 1)
    assert dict(await both.services()) == {"billing": (billing,), "mail": (TWO,)}


class _Registry:
    def __init__(self, memory: CachingResolver) -> None:
        self.instances = memory.instances

    async def services(self) -> dict[str, Sequence[Instance]]:
        return {"billing": (ONE,), "mail": (TWO,)}

    async def start(self) -> None: ...

    async def stop(self) -> None: ...
